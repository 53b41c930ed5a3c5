//! A registry in memory: for one process, and for the replicas of a simulation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hearth_types::{ReplicaId, RunId, SandboxId, Tenant};
use tokio::time::Instant;

use crate::{Count, Error, Location, NodeRow, Registry, ReplicaRow, SandboxPlace, Seat, WorkspaceHome};

/// Clones share one store. Its clock is tokio's, so that a paused clock decides when a lease ends.
#[derive(Debug, Clone, Default)]
pub struct MemoryRegistry {
    store: Arc<Mutex<Store>>,
}

#[derive(Debug, Clone, Default)]
struct Store {
    locations: BTreeMap<RunId, Location>,
    replicas: BTreeMap<ReplicaId, (ReplicaRow, Instant)>,
    nodes: BTreeMap<String, (NodeRow, Instant)>,
    halls: BTreeMap<Tenant, Hall>,
    homes: BTreeMap<String, WorkspaceHome>,
    sandboxes: BTreeMap<SandboxId, (SandboxPlace, Instant)>,
}

/// The seats of one tenant.
#[derive(Debug, Clone, Default)]
struct Hall {
    since: BTreeMap<RunId, Instant>,
    counted: Option<(Instant, bool)>,
}

impl Hall {
    fn count(&self) -> Count {
        match self.counted {
            None => Count::Lost,
            Some((_, true)) => Count::Whole,
            Some((at, false)) => Count::Recounted { ago: at.elapsed() },
        }
    }
}

impl MemoryRegistry {
    /// Locations that are kept. An activation that ends without a release leaves its own behind; past
    /// the bound some location is forgotten, which costs its run a look into the journal.
    pub const MAX_LOCATIONS: usize = 1_000_000;

    pub fn new() -> Self {
        Self::default()
    }

    /// Loses everything, as a store may at any moment.
    pub fn forget(&self) {
        *self.store() = Store::default();
    }

    /// A store of its own that holds what this one holds now.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { store: Arc::new(Mutex::new(self.store().clone())) }
    }

    /// Goes back to what `earlier` holds, as a store may that lost its last writes.
    pub fn restore(&self, earlier: &Self) {
        let earlier = earlier.store().clone();
        *self.store() = earlier;
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // Nothing panics while it holds the lock, so a poisoned store is still whole.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Registry for MemoryRegistry {
    async fn claim(&self, run: &RunId, location: Location) -> Result<(), Error> {
        let mut store = self.store();
        if store.locations.get(run).is_none_or(|known| location.epoch > known.epoch) {
            store.locations.insert(run.clone(), location);
        }
        if store.locations.len() > Self::MAX_LOCATIONS {
            // Ids are ordered by time: the first is that of an old run.
            store.locations.pop_first();
        }
        Ok(())
    }

    async fn release(&self, run: &RunId, location: &Location) -> Result<(), Error> {
        let mut store = self.store();
        if store.locations.get(run) == Some(location) {
            store.locations.remove(run);
        }
        Ok(())
    }

    async fn locate(&self, run: &RunId) -> Result<Option<Location>, Error> {
        Ok(self.store().locations.get(run).cloned())
    }

    async fn heartbeat(&self, row: ReplicaRow, lease: Duration) -> Result<bool, Error> {
        let now = Instant::now();
        let mut store = self.store();
        store.replicas.retain(|_, (_, until)| *until > now);
        Ok(store.replicas.insert(row.replica.clone(), (row, now + lease)).is_some())
    }

    async fn leave(&self, replica: &ReplicaId) -> Result<(), Error> {
        self.store().replicas.remove(replica);
        Ok(())
    }

    async fn replicas(&self) -> Result<Vec<ReplicaRow>, Error> {
        let now = Instant::now();
        let store = self.store();
        Ok(store.replicas.values().filter(|(_, until)| *until > now).map(|(row, _)| row.clone()).collect())
    }

    async fn announce(&self, row: NodeRow, lease: Duration) -> Result<(), Error> {
        let now = Instant::now();
        let mut store = self.store();
        store.nodes.retain(|_, (_, until)| *until > now);
        store.nodes.insert(row.node.clone(), (row, now + lease));
        Ok(())
    }

    async fn withdraw(&self, node: &str) -> Result<(), Error> {
        self.store().nodes.remove(node);
        Ok(())
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        let now = Instant::now();
        let store = self.store();
        Ok(store.nodes.values().filter(|(_, until)| *until > now).map(|(row, _)| row.clone()).collect())
    }

    async fn take_seat(&self, tenant: &Tenant, run: &RunId, limit: u64) -> Result<Seat, Error> {
        let mut store = self.store();
        let hall = store.halls.entry(tenant.clone()).or_default();
        let count = hall.count();
        let free = count != Count::Lost && (hall.since.len() as u64) < limit;
        if free {
            hall.since.entry(run.clone()).or_insert_with(Instant::now);
        }
        Ok(Seat { granted: hall.since.contains_key(run), taken: hall.since.len() as u64, count })
    }

    async fn leave_seat(&self, tenant: &Tenant, run: &RunId) -> Result<(), Error> {
        if let Some(hall) = self.store().halls.get_mut(tenant) {
            hall.since.remove(run);
        }
        Ok(())
    }

    async fn seats(&self, tenant: &Tenant, skip: u64, limit: usize) -> Result<Vec<(RunId, Duration)>, Error> {
        let store = self.store();
        let Some(hall) = store.halls.get(tenant) else { return Ok(Vec::new()) };
        let mut seats: Vec<(&RunId, &Instant)> = hall.since.iter().collect();
        seats.sort_by_key(|(run, since)| (**since, (*run).clone()));
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        Ok(seats.into_iter().skip(skip).take(limit).map(|(run, since)| (run.clone(), since.elapsed())).collect())
    }

    async fn seat_all(&self, tenant: &Tenant, runs: &[RunId]) -> Result<(), Error> {
        let mut store = self.store();
        let hall = store.halls.entry(tenant.clone()).or_default();
        for run in runs {
            hall.since.entry(run.clone()).or_insert_with(Instant::now);
        }
        Ok(())
    }

    async fn counted(&self, tenant: &Tenant, whole: bool) -> Result<(), Error> {
        self.store().halls.entry(tenant.clone()).or_default().counted = Some((Instant::now(), whole));
        Ok(())
    }

    async fn home(&self, workspace: &str) -> Result<Option<WorkspaceHome>, Error> {
        Ok(self.store().homes.get(workspace).cloned())
    }

    async fn move_home(&self, workspace: &str, home: WorkspaceHome) -> Result<WorkspaceHome, Error> {
        let mut store = self.store();
        match store.homes.get(workspace) {
            Some(known) if known.generation >= home.generation => Ok(known.clone()),
            _ => {
                store.homes.insert(workspace.to_owned(), home.clone());
                Ok(home)
            }
        }
    }

    async fn forget_home(&self, workspace: &str) -> Result<(), Error> {
        self.store().homes.remove(workspace);
        Ok(())
    }

    async fn note_sandbox(&self, session: &SandboxId, place: SandboxPlace, keep: Duration) -> Result<(), Error> {
        let now = Instant::now();
        let mut store = self.store();
        store.sandboxes.retain(|_, (_, until)| *until > now);
        store.sandboxes.insert(session.clone(), (place, now + keep));
        Ok(())
    }

    async fn sandbox(&self, session: &SandboxId) -> Result<Option<SandboxPlace>, Error> {
        let now = Instant::now();
        let store = self.store();
        Ok(store.sandboxes.get(session).filter(|(_, until)| *until > now).map(|(place, _)| place.clone()))
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::Epoch;

    use super::*;
    use crate::conformance::{self, Store};

    #[tokio::test(start_paused = true)]
    async fn the_memory_registry_keeps_the_contract() {
        conformance::run_all(async || {
            let registry = MemoryRegistry::new();
            Store::new(vec![Arc::new(registry.clone()), Arc::new(registry)], ())
        })
        .await;
    }

    #[tokio::test]
    async fn a_store_that_forgets_is_empty_and_usable() {
        let registry = MemoryRegistry::new();
        let run = RunId::parse("run_a").unwrap();
        let location = |epoch| Location { replica: ReplicaId::parse("r").unwrap(), epoch: Epoch(epoch) };
        registry.claim(&run, location(7)).await.unwrap();
        registry.forget();
        assert_eq!(registry.locate(&run).await.unwrap(), None);
        registry.claim(&run, location(1)).await.unwrap();
        assert_eq!(registry.locate(&run).await.unwrap(), Some(location(1)));
    }

    #[tokio::test]
    async fn a_store_that_goes_back_holds_what_it_held() {
        let registry = MemoryRegistry::new();
        let run = RunId::parse("run_a").unwrap();
        let location = |epoch| Location { replica: ReplicaId::parse("r").unwrap(), epoch: Epoch(epoch) };
        registry.claim(&run, location(1)).await.unwrap();
        let earlier = registry.copy();
        registry.claim(&run, location(2)).await.unwrap();
        assert_eq!(earlier.locate(&run).await.unwrap(), Some(location(1)));
        registry.restore(&earlier);
        assert_eq!(registry.locate(&run).await.unwrap(), Some(location(1)));
    }
}
