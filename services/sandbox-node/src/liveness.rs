//! Whether a run tree has ended: asked of a replica, over the bus.

use std::time::Duration;

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
    /// Of nodes.
    pub lease: Duration,
}

#[async_trait]
impl RunLiveness for ReplicaLiveness {
    /// Only a final state that a replica read says that a tree has ended.
    async fn liveness(&self, root_run: &RunId) -> Liveness {
        let Ok(replicas) = self.registry.replicas().await else { return Liveness::Unknown };
        for row in replicas.iter().take(ASKED) {
            match hearth_residency::ask_state(&*self.bus, &row.replica, root_run).await {
                Some(Some(state)) if state.is_final() => return Liveness::Ended,
                Some(Some(_)) => return Liveness::Alive,
                // A name that a client made up: nobody lives who could hold the session.
                Some(None) => return Liveness::Unheld,
                None => {}
            }
        }
        Liveness::Unknown
    }

    /// Absent twice, a lease apart: a registry that has just lost everything lists nobody, but a node that lives is
    /// back in it within a beat; and one that cannot reach it any more has ended its sessions by then.
    async fn node_is_gone(&self, node: &str) -> bool {
        let absent = async || self.registry.nodes().await.is_ok_and(|rows| rows.iter().all(|row| row.node != node));
        if !absent().await {
            return false;
        }
        tokio::time::sleep(self.lease).await;
        absent().await
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
