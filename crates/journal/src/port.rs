//! The contract that every journal adapter keeps.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use hearth_types::{RunId, SessionId, SnapshotId, Tenant, Timestamp};

use crate::{Error, HeadPage, HeadQuery, RunHead};

pub type SharedJournal = Arc<dyn Journal>;

/// Which log. A session id may be chosen by a caller, so a session's log is its tenant's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogKey {
    Run(RunId),
    Session(Tenant, SessionId),
    /// The dynamic agent and skill definitions of one tenant.
    Catalog(Tenant),
    /// What is still asked for of the frames that were removed from a run's log.
    History(RunId),
    /// Which snapshots a tenant has.
    Snapshots(Tenant),
    /// The records of one snapshot.
    Snapshot(Tenant, SnapshotId),
}

impl fmt::Display for LogKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(run) => write!(f, "run/{run}"),
            Self::Session(tenant, session) => write!(f, "session/{tenant}/{session}"),
            Self::Catalog(tenant) => write!(f, "catalog/{tenant}"),
            Self::History(run) => write!(f, "history/{run}"),
            Self::Snapshots(tenant) => write!(f, "snapshots/{tenant}"),
            Self::Snapshot(tenant, snapshot) => write!(f, "snapshot/{tenant}/{snapshot}"),
        }
    }
}

/// Where a frame stands in the store's own order. Grows along a log, not always by one. Zero is
/// before the first frame.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position(pub u64);

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One frame to append.
#[derive(Debug, Clone)]
pub struct Append {
    pub key: LogKey,
    /// The position of the log's last frame as the writer knows it; zero for an empty log.
    pub expected: Position,
    /// Names this append for ever: a repeat of it is recognised and has no second effect.
    pub append_id: String,
    pub frame: Bytes,
    /// The run's new row in the index; `None` leaves it as it is. For logs of runs only.
    pub head: Option<RunHead>,
    /// Where reading the log begins from now on: the position of one of its frames, which needs none
    /// of those before it; zero for all of them. Never lower than the frame before said.
    pub floor: Position,
}

impl Append {
    /// What every adapter refuses before it asks its store: a frame over `limit`, and two mistakes of
    /// the caller: a head that would show one run as another, and a floor that would empty the log.
    pub(crate) fn check(&self, limit: usize) -> Result<(), Error> {
        if self.frame.len() > limit {
            return Err(Error::TooLarge { bytes: self.frame.len(), limit });
        }
        if self.floor > self.expected {
            return Err(Error::Corrupt {
                place: self.key.to_string(),
                reason: format!("the append sets the floor {}, after the last frame {}", self.floor, self.expected),
            });
        }
        match (&self.head, &self.key) {
            (Some(head), LogKey::Run(run)) if head.run_id == *run => Ok(()),
            (None, _) => Ok(()),
            (Some(head), key) => Err(Error::Corrupt {
                place: key.to_string(),
                reason: format!("the append carries the index row of {}", head.run_id),
            }),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFrame {
    pub position: Position,
    pub frame: Bytes,
}

/// Append-only logs.
///
/// - **Fence.** An append succeeds only if `expected` is the position of the log's last frame. Of
///   several appends that expect the same position at most one succeeds.
/// - **Order.** [`Journal::read`] returns frames in the order they were appended, and includes every
///   frame that was acknowledged before the call, whoever wrote it.
/// - **Durability.** An acknowledged frame survives the death of any process.
/// - **Idempotence.** An append whose `append_id` is that of the log's last frame returns that frame's
///   position and changes nothing.
/// - **Atomicity.** A frame, its head and its floor become visible together, or none does.
/// - **Floor.** Frames before a log's floor are not returned, whether they are there or not: a read from
///   before it begins at it. Only an append raises it, so the fence guards it: an activation that was
///   superseded cannot, and what may be removed was declared so by the lineage that stands. A frame that
///   is missing at the floor or after it is damage, and reported as such.
/// - **Cancelling** (dropping the future of) an append leaves its outcome unknown. Cancelling a read
///   leaves nothing behind.
#[async_trait]
pub trait Journal: Send + Sync + 'static {
    async fn append(&self, append: Append) -> Result<Position, Error>;

    /// The frames after `after`, oldest first, up to `limit` of them.
    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error>;

    /// Removes frames before the log's floor, oldest first, up to `limit` of them; how many it removed.
    /// Fewer than `limit`: none is left. The last frame always stays, and with it the fence. After an
    /// error or a cancelled call some may be gone; calling again goes on. Anyone may call it: what it
    /// may remove is in the log.
    async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error>;

    /// The position of the log's last frame; zero when it has none.
    async fn last(&self, key: &LogKey) -> Result<Position, Error>;

    /// The index row of one run.
    async fn head(&self, run: &RunId) -> Result<Option<RunHead>, Error>;

    /// A page of index rows, newest first (by `created_at`, then by id).
    async fn heads(&self, query: &HeadQuery) -> Result<HeadPage, Error>;

    /// Runs whose row says `wake`: they need an owner (mid-turn, closing, or ended with something
    /// left to end). In an order that stays, after `after`, which was listed before, up to `limit`.
    async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error>;

    /// Runs whose `due_at` is not after `now`, soonest first, up to `limit`.
    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error>;

    /// Answers once the store can take an append; an error says why it cannot.
    async fn ready(&self) -> Result<(), Error>;
}
