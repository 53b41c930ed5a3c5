//! A journal in memory, for tests and the simulation: the semantics of the others, no durability.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use hearth_types::{RunId, Timestamp};

use crate::index::HeadIndex;
use crate::{Append, Error, HeadPage, HeadQuery, Journal, LogKey, Position, RunHead, StoredFrame};

/// Clones share one store, as the replicas of a cluster do. Deterministic: no task, no clock.
#[derive(Debug, Clone, Default)]
pub struct MemoryJournal {
    store: Arc<Mutex<Store>>,
}

#[derive(Debug, Default)]
struct Store {
    logs: BTreeMap<LogKey, Log>,
    heads: HeadIndex,
}

#[derive(Debug, Default)]
struct Log {
    frames: VecDeque<Bytes>,
    /// Frames that were removed.
    removed: u64,
    floor: Position,
    last_append_id: String,
}

impl Log {
    fn last(&self) -> Position {
        Position(self.removed + self.frames.len() as u64)
    }
}

impl MemoryJournal {
    const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024;

    pub fn new() -> Self {
        Self::default()
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        // Nothing panics while it holds the lock, so a poisoned store is still whole.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Journal for MemoryJournal {
    async fn append(&self, append: Append) -> Result<Position, Error> {
        append.check(Self::MAX_FRAME_BYTES)?;
        let mut store = self.store();
        let last = store.logs.get(&append.key).map_or(Position(0), Log::last);
        if last != Position(0) && store.logs[&append.key].last_append_id == append.append_id {
            return Ok(last);
        }
        if last != append.expected {
            return Err(Error::Fenced { last });
        }
        let log = store.logs.entry(append.key).or_default();
        log.frames.push_back(append.frame);
        log.floor = log.floor.max(append.floor);
        log.last_append_id = append.append_id;
        let position = log.last();
        if let Some(head) = append.head {
            store.heads.put(head);
        }
        Ok(position)
    }

    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        let store = self.store();
        let Some(log) = store.logs.get(key) else { return Ok(Vec::new()) };
        let after = after.0.max(log.floor.0.saturating_sub(1));
        let skip = usize::try_from(after.saturating_sub(log.removed)).unwrap_or(usize::MAX);
        let numbered = (log.removed + 1..).zip(&log.frames).skip(skip).take(limit);
        Ok(numbered.map(|(n, frame)| StoredFrame { position: Position(n), frame: frame.clone() }).collect())
    }

    async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error> {
        let mut store = self.store();
        let Some(log) = store.logs.get_mut(key) else { return Ok(0) };
        let before = log.floor.0.saturating_sub(1 + log.removed);
        let going = usize::try_from(before).unwrap_or(usize::MAX).min(limit);
        log.frames.drain(..going);
        log.removed += going as u64;
        Ok(going as u64)
    }

    async fn last(&self, key: &LogKey) -> Result<Position, Error> {
        Ok(self.store().logs.get(key).map_or(Position(0), Log::last))
    }

    async fn head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        Ok(self.store().heads.get(run).cloned())
    }

    async fn heads(&self, query: &HeadQuery) -> Result<HeadPage, Error> {
        Ok(self.store().heads.page(query))
    }

    async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
        Ok(self.store().heads.waking(after, limit))
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
        Ok(self.store().heads.due(now, limit))
    }

    async fn ready(&self) -> Result<(), Error> {
        Ok(())
    }
}
