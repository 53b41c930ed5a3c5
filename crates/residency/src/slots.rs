//! The activations of this replica, by run. A slot makes sure that one run is begun once at a time.

use std::collections::HashMap;
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
struct Table {
    slots: HashMap<RunId, Arc<Slot>>,
    actors: HashMap<ActorId, (RunId, Epoch)>,
}

#[derive(Default)]
pub(crate) struct Slots(Mutex<Table>);

impl Slots {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run's slot, made if there is none.
    pub fn slot(&self, run_id: &RunId) -> Arc<Slot> {
        self.table().slots.entry(run_id.clone()).or_default().clone()
    }

    pub fn get(&self, run_id: &RunId) -> Option<Handle> {
        self.table().slots.get(run_id).and_then(|slot| slot.0.get().cloned())
    }

    /// Remembers whose actor this is, so that its end finds the slot.
    pub fn bind(&self, actor: ActorId, run_id: RunId, epoch: Epoch) {
        self.table().actors.insert(actor, (run_id, epoch));
    }

    /// Removes a slot that could not be filled; another's stays.
    pub fn remove(&self, run_id: &RunId, slot: &Arc<Slot>) {
        let mut table = self.table();
        if table.slots.get(run_id).is_some_and(|held| Arc::ptr_eq(held, slot)) {
            table.slots.remove(run_id);
        }
    }

    /// Removes the slot of an actor that has ended, and tells what it was.
    pub fn remove_actor(&self, actor: ActorId) -> Option<(RunId, Epoch)> {
        let mut table = self.table();
        let (run_id, epoch) = table.actors.remove(&actor)?;
        let is_its = |slot: &Arc<Slot>| slot.0.get().is_none_or(|handle| handle.actor.get_id() == actor);
        if table.slots.get(&run_id).is_some_and(is_its) {
            table.slots.remove(&run_id);
        }
        Some((run_id, epoch))
    }

    /// In the order of their ids.
    pub fn all(&self) -> Vec<(RunId, Handle)> {
        let table = self.table();
        let filled = table.slots.iter().filter_map(|(run, slot)| Some((run.clone(), slot.0.get()?.clone())));
        let mut all: Vec<(RunId, Handle)> = filled.collect();
        drop(table);
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    pub fn len(&self) -> usize {
        self.table().slots.len()
    }
}
