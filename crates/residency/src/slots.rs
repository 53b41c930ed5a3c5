//! The activations of this replica, by run. A slot makes sure that one run is begun once at a time.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hearth_types::{Epoch, RunId, Timestamp};
use ractor::{ActorId, ActorRef};
use tokio::sync::{OnceCell, Semaphore};

use crate::actor::Message;

/// Commands that wait for one activation at the most.
pub(crate) const ADMISSION: usize = 256;

/// The way to one activation.
#[derive(Clone)]
pub(crate) struct Handle {
    pub actor: ActorRef<Message>,
    pub epoch: Epoch,
    pub admission: Arc<Semaphore>,
    /// When the run parked, in milliseconds; negative while a turn runs.
    pub parked: Arc<AtomicI64>,
}

impl Handle {
    pub fn parked_since(&self) -> Option<Timestamp> {
        let ms = self.parked.load(Ordering::Relaxed);
        (ms >= 0).then(|| Timestamp::from_millis(ms))
    }
}

#[derive(Default)]
pub(crate) struct Slot(pub OnceCell<Handle>);

#[derive(Default)]
struct Entry {
    slot: Arc<Slot>,
    claims: usize,
}

#[derive(Default)]
struct Table {
    slots: HashMap<RunId, Entry>,
    actors: HashMap<ActorId, (RunId, Epoch)>,
}

#[derive(Default)]
pub(crate) struct Slots(Mutex<Table>);

/// A slot held by somebody who fills it or waits for it to be filled. When the last one goes and it is
/// empty still, be it by an error or because the caller went away, nothing of it stays.
pub(crate) struct Claim<'s> {
    slots: &'s Slots,
    run_id: RunId,
    slot: Arc<Slot>,
}

impl Deref for Claim<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut table = self.slots.table();
        let held = table.slots.get_mut(&self.run_id).filter(|entry| Arc::ptr_eq(&entry.slot, &self.slot));
        let Some(entry) = held else { return };
        entry.claims -= 1;
        if entry.claims == 0 && !self.slot.0.initialized() {
            table.slots.remove(&self.run_id);
        }
    }
}

impl Slots {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run's slot, made if there is none.
    pub fn claim(&self, run_id: &RunId) -> Claim<'_> {
        let mut table = self.table();
        let entry = table.slots.entry(run_id.clone()).or_default();
        entry.claims += 1;
        Claim { slots: self, run_id: run_id.clone(), slot: entry.slot.clone() }
    }

    pub fn get(&self, run_id: &RunId) -> Option<Handle> {
        self.table().slots.get(run_id).and_then(|entry| entry.slot.0.get().cloned())
    }

    /// Remembers whose actor this is, so that its end finds the slot.
    pub fn bind(&self, actor: ActorId, run_id: RunId, epoch: Epoch) {
        self.table().actors.insert(actor, (run_id, epoch));
    }

    /// Removes the slot of an actor that has ended, and tells what it was.
    pub fn remove_actor(&self, actor: ActorId) -> Option<(RunId, Epoch)> {
        let mut table = self.table();
        let (run_id, epoch) = table.actors.remove(&actor)?;
        let is_its = |entry: &Entry| entry.slot.0.get().is_none_or(|handle| handle.actor.get_id() == actor);
        if table.slots.get(&run_id).is_some_and(is_its) {
            table.slots.remove(&run_id);
        }
        Some((run_id, epoch))
    }

    /// In the order of their ids.
    pub fn all(&self) -> Vec<(RunId, Handle)> {
        let table = self.table();
        let filled = table.slots.iter().filter_map(|(run, entry)| Some((run.clone(), entry.slot.0.get()?.clone())));
        let mut all: Vec<(RunId, Handle)> = filled.collect();
        drop(table);
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    pub fn len(&self) -> usize {
        self.table().slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_nobody_filled_leaves_nothing_behind() {
        let slots = Slots::default();
        let run_id = RunId::derive(&["run"]);
        let (first, second) = (slots.claim(&run_id), slots.claim(&run_id));
        drop(first);
        assert_eq!(slots.len(), 1, "another one is about to fill it");
        assert!(Arc::ptr_eq(&second.slot, &slots.claim(&run_id).slot), "whoever comes meets the one that waits");
        drop(second);
        assert_eq!(slots.len(), 0);
    }
}
