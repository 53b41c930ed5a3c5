//! Which snapshots a tenant has: a log of its own, folded when somebody asks.

use std::collections::BTreeMap;

use bytes::Bytes;
use hearth_journal::{Append, Error as JournalError, LogKey, Position};
use hearth_residency::Error;
use hearth_run_core::KeyUse;
use hearth_types::{Fault, FaultCode, RunId, SnapshotId, Tenant, Timestamp, limits};
use serde::{Deserialize, Serialize};

use crate::Hearth;
use crate::answers::{ResumeAnswer, SnapshotView};
use crate::extent::{Extent, Folded, SAID_AGAIN, say_again};

/// Snapshots that a tenant may have.
const MAX_SNAPSHOTS: usize = 1_000;
const BATCH: usize = 512;
const TRIES: usize = 8;
/// Frames that are removed in one go.
const TRIM: usize = 256;
/// What was begun and not finished for so long is given up.
const GIVEN_UP: std::time::Duration = std::time::Duration::from_secs(3_600);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    v: u32,
    at: Timestamp,
    /// Where reading the log begins from this entry on.
    #[serde(default)]
    floor: u64,
    #[serde(flatten)]
    change: Change,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum Change {
    /// Records are being written under this name; nothing refers to them yet.
    Begun {
        blob: SnapshotId,
    },
    Taken(Box<Taken>),
    /// The records are gone, or will be.
    Dropped {
        blob: SnapshotId,
    },
    Resumed(Box<Resumed>),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Taken {
    pub blob: SnapshotId,
    pub view: SnapshotView,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyUse>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Resumed {
    pub key: KeyUse,
    pub answer: ResumeAnswer,
}

/// What an entry may say that holds until another one says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    Begun(SnapshotId),
    Taken(SnapshotId),
    /// When, and by the id of which key.
    Resumed(Timestamp, String),
}

#[derive(Debug, Default)]
pub(super) struct Index {
    extent: Extent<Item>,
    begun: BTreeMap<SnapshotId, Timestamp>,
    pub taken: BTreeMap<SnapshotId, Taken>,
    resumed: BTreeMap<(Timestamp, String), Resumed>,
}

impl Index {
    fn apply(&mut self, entry: Entry, position: Position) {
        self.extent.frame(position, Position(entry.floor));
        match entry.change {
            Change::Begun { blob } => {
                self.extent.says(Item::Begun(blob.clone()));
                self.begun.insert(blob, entry.at);
            }
            Change::Taken(taken) => {
                self.no_longer_begun(&taken.blob);
                let id = taken.view.snapshot_id.clone();
                self.extent.says(Item::Taken(id.clone()));
                self.taken.insert(id, *taken);
            }
            Change::Dropped { blob } => {
                self.no_longer_begun(&blob);
                for (id, _) in self.taken.extract_if(.., |_, taken| taken.blob == blob) {
                    self.extent.gone(&Item::Taken(id));
                }
            }
            Change::Resumed(resumed) => {
                let place = (entry.at, resumed.key.id.clone());
                self.extent.says(Item::Resumed(place.0, place.1.clone()));
                self.resumed.insert(place, *resumed);
                if self.resumed.len() > limits::KEY_WINDOW_MIN
                    && let Some(((at, key), _)) = self.resumed.pop_first()
                {
                    self.extent.gone(&Item::Resumed(at, key));
                }
            }
        }
    }

    fn no_longer_begun(&mut self, blob: &SnapshotId) {
        self.begun.remove(blob);
        self.extent.gone(&Item::Begun(blob.clone()));
    }

    /// What a key took before.
    pub fn taken_by(&self, key: Option<&KeyUse>) -> Result<Option<&Taken>, Fault> {
        let Some(key) = key else { return Ok(None) };
        let same = |taken: &&Taken| taken.key.as_ref().is_some_and(|used| used.id == key.id);
        match self.taken.values().find(same) {
            Some(taken) if taken.key.as_ref() == Some(key) => Ok(Some(taken)),
            Some(_) => Err(Error::Taken.into()),
            None => Ok(None),
        }
    }

    pub fn resumed_by(&self, key: Option<&KeyUse>) -> Result<Option<&Resumed>, Fault> {
        let Some(key) = key else { return Ok(None) };
        match self.resumed.values().find(|resumed| resumed.key.id == key.id) {
            Some(resumed) if resumed.key == *key => Ok(Some(resumed)),
            Some(_) => Err(Error::Taken.into()),
            None => Ok(None),
        }
    }
}

impl Folded for Index {
    type Item = Item;
    type Entry = Entry;

    fn extent(&self) -> &Extent<Item> {
        &self.extent
    }

    fn restated(&self, item: &Item) -> Option<Entry> {
        let (at, change) = match item {
            Item::Begun(blob) => (*self.begun.get(blob)?, Change::Begun { blob: blob.clone() }),
            Item::Taken(id) => (Timestamp::default(), Change::Taken(Box::new(self.taken.get(id)?.clone()))),
            Item::Resumed(at, key) => {
                let resumed = self.resumed.get(&(*at, key.clone()))?;
                (*at, Change::Resumed(Box::new(resumed.clone())))
            }
        };
        Some(Entry { v: 1, at, floor: self.extent.floor().0, change })
    }
}

impl Hearth {
    pub(super) async fn snapshot_index(&self, tenant: &Tenant) -> Result<Index, Fault> {
        let key = LogKey::Snapshots(tenant.clone());
        let mut index = Index::default();
        loop {
            let frames = self.deps.journal.read(&key, index.extent.last(), BATCH).await.map_err(Error::from)?;
            let whole = frames.len() == BATCH;
            for frame in frames {
                let entry: Entry = hearth_types::from_own_json(&frame.frame)
                    .map_err(|error| Fault::internal(format!("the list of snapshots is damaged: {error}")))?;
                index.apply(entry, frame.position);
            }
            if !whole {
                return Ok(index);
            }
        }
    }

    /// Appends a change; overtaken, `allowed` is asked anew. The index before the change.
    pub(super) async fn change_snapshots(
        &self,
        tenant: &Tenant,
        change: Change,
        allowed: impl Fn(&Index) -> Result<bool, Fault>,
    ) -> Result<Index, Fault> {
        let append_id = RunId::generate().to_string();
        let at = self.deps.clock.now();
        let (journal, log) = (&*self.deps.journal, LogKey::Snapshots(tenant.clone()));
        for _ in 0..TRIES {
            let index = self.snapshot_index(tenant).await?;
            if !allowed(&index)? {
                return Ok(index);
            }
            let entry = Entry { v: 1, at, floor: index.extent.floor().0, change: change.clone() };
            match index.extent.append(journal, &log, append_id.clone(), &entry).await {
                Ok(()) => {
                    for _ in 0..SAID_AGAIN {
                        let Ok(index) = self.snapshot_index(tenant).await else { break };
                        if !say_again(journal, &log, &index).await {
                            break;
                        }
                    }
                    return Ok(index);
                }
                Err(JournalError::Fenced { .. } | JournalError::Unknown { .. }) => {}
                Err(error) => return Err(Error::from(error).into()),
            }
        }
        Err(Fault::new(FaultCode::Conflict, "others take snapshots at the same time; try again"))
    }

    /// A place for the records of a new snapshot. What was left of others that were never finished goes.
    pub(super) async fn begin_snapshot(&self, tenant: &Tenant) -> Result<SnapshotId, Fault> {
        let blob = SnapshotId::generate();
        let room = |index: &Index| {
            if index.taken.len() + index.begun.len() >= MAX_SNAPSHOTS {
                let message = format!("the tenant has {MAX_SNAPSHOTS} snapshots, which is its cap; remove some");
                return Err(Fault::new(FaultCode::QuotaExceeded, message));
            }
            Ok(true)
        };
        let before = self.change_snapshots(tenant, Change::Begun { blob: blob.clone() }, room).await?;
        let now = self.deps.clock.now();
        for (left, _) in before.begun.into_iter().filter(|(_, at)| now.since(*at) >= GIVEN_UP) {
            self.drop_snapshot(tenant, left).await?;
        }
        Ok(blob)
    }

    /// Takes the records of a snapshot away.
    pub(super) async fn drop_snapshot(&self, tenant: &Tenant, blob: SnapshotId) -> Result<(), Fault> {
        let known =
            |index: &Index| Ok(index.begun.contains_key(&blob) || index.taken.values().any(|taken| taken.blob == blob));
        self.change_snapshots(tenant, Change::Dropped { blob: blob.clone() }, known).await?;
        let (journal, key) = (&self.deps.journal, LogKey::Snapshot(tenant.clone(), blob));
        // The last frame of a log stays: from now on it is one that says nothing.
        let last = journal.last(&key).await.map_err(Error::from)?;
        if last == Position(0) {
            return Ok(());
        }
        let append_id = "dropped".to_owned();
        let append = Append {
            key: key.clone(),
            expected: last,
            append_id,
            frame: Bytes::from_static(b"{}"),
            head: None,
            floor: last,
        };
        journal.append(append).await.map_err(Error::from)?;
        while journal.trim(&key, TRIM).await.map_err(Error::from)? >= TRIM as u64 {}
        Ok(())
    }
}
