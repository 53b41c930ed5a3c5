//! Which snapshots a tenant has: a log of its own, folded when somebody asks.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use hearth_journal::{Append, Error as JournalError, LogKey, Position};
use hearth_residency::Error;
use hearth_run_core::KeyUse;
use hearth_types::{Fault, FaultCode, RunId, SnapshotId, Tenant, Timestamp, limits};
use serde::{Deserialize, Serialize};

use crate::Hearth;
use crate::answers::{ResumeAnswer, SnapshotView};

/// Snapshots that a tenant may have.
const MAX_SNAPSHOTS: usize = 1_000;
const BATCH: usize = 512;
const TRIES: usize = 8;
/// Frames that are removed in one go.
const TRIM: usize = 256;
/// What was begun and not finished for so long is given up.
const GIVEN_UP: std::time::Duration = std::time::Duration::from_secs(3_600);

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    v: u32,
    at: Timestamp,
    #[serde(flatten)]
    change: Change,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(super) enum Change {
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
pub(super) struct Taken {
    pub blob: SnapshotId,
    pub view: SnapshotView,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyUse>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Resumed {
    pub key: KeyUse,
    pub answer: ResumeAnswer,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    position: Position,
    begun: BTreeMap<SnapshotId, Timestamp>,
    pub taken: BTreeMap<SnapshotId, Taken>,
    resumed: VecDeque<Resumed>,
}

impl Index {
    fn apply(&mut self, entry: Entry, position: Position) {
        self.position = position;
        match entry.change {
            Change::Begun { blob } => drop(self.begun.insert(blob, entry.at)),
            Change::Taken(taken) => {
                self.begun.remove(&taken.blob);
                self.taken.insert(taken.view.snapshot_id.clone(), *taken);
            }
            Change::Dropped { blob } => {
                self.begun.remove(&blob);
                self.taken.retain(|_, taken| taken.blob != blob);
            }
            Change::Resumed(resumed) => {
                self.resumed.push_back(*resumed);
                if self.resumed.len() > limits::KEY_WINDOW_MIN {
                    self.resumed.pop_front();
                }
            }
        }
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
        match self.resumed.iter().find(|resumed| resumed.key.id == key.id) {
            Some(resumed) if resumed.key == *key => Ok(Some(resumed)),
            Some(_) => Err(Error::Taken.into()),
            None => Ok(None),
        }
    }
}

impl Hearth {
    pub(super) async fn snapshot_index(&self, tenant: &Tenant) -> Result<Index, Fault> {
        let key = LogKey::Snapshots(tenant.clone());
        let mut index = Index::default();
        loop {
            let frames = self.deps.journal.read(&key, index.position, BATCH).await.map_err(Error::from)?;
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
        let entry = Entry { v: 1, at: self.deps.clock.now(), change };
        let frame = serde_json::to_vec(&entry).map_err(|error| Fault::internal(error.to_string()))?;
        let append_id = RunId::generate().to_string();
        for _ in 0..TRIES {
            let index = self.snapshot_index(tenant).await?;
            if !allowed(&index)? {
                return Ok(index);
            }
            let append = Append {
                key: LogKey::Snapshots(tenant.clone()),
                expected: index.position,
                append_id: append_id.clone(),
                frame: Bytes::from(frame.clone()),
                head: None,
                floor: Position(0),
            };
            match self.deps.journal.append(append).await {
                Ok(_) => return Ok(index),
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
