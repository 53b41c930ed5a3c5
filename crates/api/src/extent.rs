//! Which frames of a tenant's log still count, and so where reading it may begin.
//!
//! Such a log has no snapshots. Its floor is the oldest frame that says something that still holds; where few
//! frames of many do, what the oldest says is said again at the end, and the floor rises. So the log
//! stays about as long as what it holds, and each step is one append, safe to lose.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use hearth_journal::{Append, Error as JournalError, Journal, LogKey, Position};
use hearth_types::RunId;
use serde::Serialize;

/// How many things are said again with one change, at most: more than the change itself adds.
pub(crate) const SAID_AGAIN: usize = 2;
/// Frames more than twice what holds before something is said again.
const SLACK: usize = 256;
/// Frames that are worth removing.
const TRIM: usize = 64;

/// An append whose outcome is unknown is repeated as it is: as another one it would find its own effect.
const REPEATS: u32 = 5;
const REPEAT_PAUSE: Duration = Duration::from_millis(50);

/// The fold of such a log.
pub(crate) trait Folded {
    type Item: Ord + Clone;
    type Entry: Serialize;

    fn extent(&self) -> &Extent<Self::Item>;

    /// The entry that says again what `item` is, as it was said.
    fn restated(&self, item: &Self::Item) -> Option<Self::Entry>;
}

#[derive(Debug, Clone)]
pub(crate) struct Extent<I> {
    /// Those from the declared floor on, oldest first.
    frames: VecDeque<Position>,
    declared: Position,
    holding: BTreeSet<(Position, I)>,
    said_at: BTreeMap<I, Position>,
}

impl<I> Default for Extent<I> {
    fn default() -> Self {
        Self { frames: VecDeque::new(), declared: Position(0), holding: BTreeSet::new(), said_at: BTreeMap::new() }
    }
}

impl<I: Ord + Clone> Extent<I> {
    /// A frame was read, which declares this floor.
    pub fn frame(&mut self, position: Position, floor: Position) {
        self.frames.push_back(position);
        self.declared = self.declared.max(floor);
        while self.frames.front().is_some_and(|frame| *frame < self.declared) {
            self.frames.pop_front();
        }
    }

    /// The newest frame says this, and what an older one said of it does not count any more.
    pub fn says(&mut self, item: I) {
        self.gone(&item);
        let position = self.last();
        self.holding.insert((position, item.clone()));
        self.said_at.insert(item, position);
    }

    pub fn gone(&mut self, item: &I) {
        if let Some(position) = self.said_at.remove(item) {
            self.holding.remove(&(position, item.clone()));
        }
    }

    pub fn last(&self) -> Position {
        self.frames.back().copied().unwrap_or_default()
    }

    /// The floor that the next frame declares. It rises by many frames at once or not at all.
    pub fn floor(&self) -> Position {
        let oldest = self.holding.first().map_or_else(|| self.last(), |(position, _)| *position);
        let behind = self.frames.partition_point(|frame| *frame < oldest);
        if behind < TRIM { self.declared } else { oldest }
    }

    /// What is to be said again, as too many frames after it hold nothing.
    fn crowded(&self) -> Option<&I> {
        let many = self.frames.len() > 2 * self.said_at.len() + SLACK;
        self.holding.first().map(|(_, item)| item).filter(|_| many)
    }

    /// Appends an entry that declares [`Extent::floor`], and removes what is before it. What is not
    /// removed now is the next time.
    pub async fn append<E: Serialize + Sync>(
        &self,
        journal: &dyn Journal,
        key: &LogKey,
        append_id: String,
        entry: &E,
    ) -> Result<(), JournalError> {
        let frame =
            serde_json::to_vec(entry).map_err(|error| JournalError::Unavailable { reason: error.to_string() })?;
        let (expected, floor) = (self.last(), self.floor());
        let append = Append { key: key.clone(), expected, append_id, frame: Bytes::from(frame), head: None, floor };
        let mut tries = REPEATS;
        while let Err(error) = journal.append(append.clone()).await {
            tries -= 1;
            if tries == 0 || !matches!(error, JournalError::Unknown { .. }) {
                return Err(error);
            }
            tokio::time::sleep(REPEAT_PAUSE).await;
        }
        if floor > self.declared
            && let Err(error) = trim_all(journal, key).await
        {
            tracing::warn!(log = %key, %error, "superfluous entries were not removed; later changes try again");
        }
        Ok(())
    }
}

async fn trim_all(journal: &dyn Journal, key: &LogKey) -> Result<(), JournalError> {
    while journal.trim(key, TRIM).await? >= TRIM as u64 {}
    Ok(())
}

/// After a change: says again what holds and is old, if most of the log holds nothing any more. Whether it
/// did; whoever is overtaken leaves it to the others.
pub(crate) async fn say_again<F: Folded>(journal: &dyn Journal, key: &LogKey, fold: &F) -> bool
where
    F::Entry: Sync,
{
    let extent = fold.extent();
    let Some(entry) = extent.crowded().and_then(|item| fold.restated(item)) else { return false };
    let appended = extent.append(journal, key, RunId::generate().to_string(), &entry).await;
    appended.inspect_err(|error| tracing::debug!(log = %key, %error, "a log was not shortened")).is_ok()
}
