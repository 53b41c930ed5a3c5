//! Writes as the next version of this program would, so that tests can show what members of two versions do in one
//! cluster.
//!
//! It is compiled into debug builds only, as what ends the process at an append is.

use std::str::FromStr;

use async_trait::async_trait;
use bytes::Bytes;
use hearth_types::{RunId, Timestamp};
use serde_json::{Value, json};

use crate::{Append, Error, HeadPage, HeadQuery, Journal, LogKey, Position, RunHead, SharedJournal, StoredFrame};

/// How the next version differs from this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextVersion {
    /// By fields that this one does not know.
    Minor,
    /// By frames that this one must not read.
    Major,
}

/// The version of frames that [`NextVersion::Major`] stands for.
const NEXT: u64 = 1_000_000;

impl FromStr for NextVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "minor" => Ok(Self::Minor),
            "major" => Ok(Self::Major),
            _ => Err(format!("{text:?} is no next version; allowed: minor, major")),
        }
    }
}

pub struct NextVersionJournal {
    inner: SharedJournal,
    version: NextVersion,
}

impl NextVersionJournal {
    pub fn new(inner: SharedJournal, version: NextVersion) -> Self {
        Self { inner, version }
    }

    fn written(&self, append: Append) -> Append {
        if !matches!(append.key, LogKey::Run(_)) {
            return append;
        }
        let mut append = append;
        append.frame = changed(&append.frame, |frame| {
            add(frame);
            frame["events"].as_array_mut().into_iter().flatten().for_each(add);
            if self.version == NextVersion::Major {
                frame["v"] = NEXT.into();
            }
        });
        if let Some(head) = &mut append.head
            && let Ok(mut body) = head.body.read::<Value>()
        {
            add(&mut body);
            head.body = body.into();
        }
        append
    }

    /// It reads what it wrote, and what earlier versions did.
    fn read(&self, stored: StoredFrame) -> StoredFrame {
        if self.version == NextVersion::Minor {
            return stored;
        }
        let frame = changed(&stored.frame, |frame| {
            if frame["v"] == NEXT {
                frame["v"] = 1.into();
            }
        });
        StoredFrame { frame, ..stored }
    }
}

fn add(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.insert("of_the_next_version".to_owned(), json!({ "known": false }));
    }
}

fn changed(bytes: &Bytes, change: impl FnOnce(&mut Value)) -> Bytes {
    let Ok(mut value) = hearth_types::from_own_json::<Value>(bytes) else { return bytes.clone() };
    if value.is_object() {
        change(&mut value);
    }
    Bytes::from(value.to_string())
}

#[async_trait]
impl Journal for NextVersionJournal {
    async fn append(&self, append: Append) -> Result<Position, Error> {
        self.inner.append(self.written(append)).await
    }

    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        let frames = self.inner.read(key, after, limit).await?;
        let of_run = matches!(key, LogKey::Run(_));
        Ok(frames.into_iter().map(|stored| if of_run { self.read(stored) } else { stored }).collect())
    }

    async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error> {
        self.inner.trim(key, limit).await
    }

    async fn last(&self, key: &LogKey) -> Result<Position, Error> {
        self.inner.last(key).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.inner.head(run).await
    }

    async fn heads(&self, query: &HeadQuery) -> Result<HeadPage, Error> {
        self.inner.heads(query).await
    }

    async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
        self.inner.waking(after, limit).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
        self.inner.due(now, limit).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.inner.ready().await
    }
}
