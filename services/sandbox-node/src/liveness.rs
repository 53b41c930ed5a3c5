//! Whether a run tree has ended: asked of a replica, over the bus.

use async_trait::async_trait;
use hearth_bus::SharedBus;
use hearth_registry::SharedRegistry;
use hearth_sandbox::{Liveness, RunLiveness};
use hearth_types::RunId;

/// Replicas that are asked before it counts as not known.
const ASKED: usize = 3;

pub struct ReplicaLiveness {
    pub registry: SharedRegistry,
    pub bus: SharedBus,
}

#[async_trait]
impl RunLiveness for ReplicaLiveness {
    /// Only a final state that a replica read says that a tree has ended.
    async fn liveness(&self, root_run: &RunId) -> Liveness {
        let Ok(replicas) = self.registry.replicas().await else { return Liveness::Unknown };
        for row in replicas.iter().take(ASKED) {
            if let Some(state) = hearth_residency::ask_state(&*self.bus, &row.replica, root_run).await {
                return if state.is_final() { Liveness::Ended } else { Liveness::Alive };
            }
        }
        Liveness::Unknown
    }
}

/// A node on its own: no replica tells it of run trees, so idle and absolute time alone end sessions.
pub struct NoReplicas;

#[async_trait]
impl RunLiveness for NoReplicas {
    async fn liveness(&self, _root_run: &RunId) -> Liveness {
        Liveness::Unheld
    }
}
