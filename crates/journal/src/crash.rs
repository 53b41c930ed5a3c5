//! Ends the process at a chosen append, so that tests can show what is left after it.
//!
//! It is compiled into debug builds only. A release build has no code that could end it, and refuses the
//! variable that asks for this as an unknown setting.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use hearth_types::{RunId, Timestamp};

use crate::{Append, Error, HeadPage, HeadQuery, Journal, LogKey, Position, RunHead, SharedJournal, StoredFrame};

/// Which append, counted from the start of the process, and on which side of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashPoint {
    /// Nothing of the append is stored.
    Before(u64),
    /// The append is stored, and nobody has heard of it.
    After(u64),
}

impl FromStr for CrashPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || format!("{text:?} is no crash point; allowed: before:N and after:N, N from 1");
        let (side, number) = text.split_once(':').ok_or_else(wrong)?;
        let number = number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
        match side {
            "before" => Ok(Self::Before(number)),
            "after" => Ok(Self::After(number)),
            _ => Err(wrong()),
        }
    }
}

pub struct CrashingJournal {
    inner: SharedJournal,
    point: CrashPoint,
    appends: AtomicU64,
}

impl CrashingJournal {
    pub fn new(inner: SharedJournal, point: CrashPoint) -> Self {
        Self { inner, point, appends: AtomicU64::new(0) }
    }

    /// As `kill -9` would: nothing is flushed, closed or told.
    fn crash_at(&self, here: CrashPoint) {
        if self.point == here {
            std::process::abort();
        }
    }
}

#[async_trait]
impl Journal for CrashingJournal {
    async fn append(&self, append: Append) -> Result<Position, Error> {
        let number = self.appends.fetch_add(1, Ordering::SeqCst) + 1;
        self.crash_at(CrashPoint::Before(number));
        let position = self.inner.append(append).await?;
        self.crash_at(CrashPoint::After(number));
        Ok(position)
    }

    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        self.inner.read(key, after, limit).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_point_is_a_side_and_a_number() {
        assert_eq!("before:1".parse(), Ok(CrashPoint::Before(1)));
        assert_eq!("after:20".parse(), Ok(CrashPoint::After(20)));
        for wrong in ["", "1", "before", "before:", "before:0", "before:-1", "at:1", "after:1:2"] {
            assert!(wrong.parse::<CrashPoint>().is_err(), "{wrong:?}");
        }
    }
}
