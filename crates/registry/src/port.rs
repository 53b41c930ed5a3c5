//! The contract that every registry adapter keeps.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hearth_types::{Epoch, Isolation, ReplicaId, RunId, SandboxId, Tenant, Timestamp};
use serde::{Deserialize, Serialize};

pub type SharedRegistry = Arc<dyn Registry>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store cannot be reached; the outcome of a write is unknown, which harms nothing.
    #[error("the registry is out of reach: {reason}")]
    Unavailable { reason: String },
}

/// Where a run's activation was last known to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    pub replica: ReplicaId,
    pub epoch: Epoch,
}

/// What a replica says of itself at each heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicaRow {
    pub replica: ReplicaId,
    pub url: Option<String>,
    pub version: String,
    pub started_at: Timestamp,
    pub draining: bool,
    /// Activations in memory.
    pub active: u64,
    /// Turns that run now.
    pub turns: u64,
}

/// What a sandbox node says of itself at each heartbeat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Of the form of an id.
    pub node: String,
    /// Where replicas reach it, such as `http://10.0.0.5:9000`.
    pub url: String,
    pub version: String,
    pub started_at: Timestamp,
    pub draining: bool,
    pub sessions: u64,
    pub max_sessions: u64,
    pub levels: Vec<Isolation>,
    pub runtimes: Vec<String>,
    /// The image of sessions that name none.
    pub image: String,
    /// Those that a session may name.
    #[serde(default)]
    pub images: Vec<String>,
    /// Whether durable workspaces can be had.
    pub workspaces: bool,
    /// The name of the storage that they are on. Nodes that share it have the same.
    #[serde(default)]
    pub store: Option<String>,
    /// Sessions that are kept ready for whoever comes.
    #[serde(default)]
    pub pool: u64,
    #[serde(default)]
    pub usage: NodeUsage,
}

/// Whether the store knows every seat of a tenant that is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// It has lost them, or never knew: what it says of them means nothing until they were counted.
    Lost,
    /// They were counted this long ago, perhaps not all of them.
    Recounted {
        ago: Duration,
    },
    Whole,
}

/// The answer to who asks for a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seat {
    /// Whether the run has one now. Never while the count is lost, unless it had one before.
    pub granted: bool,
    /// Seats of its tenant that are taken, this run's included.
    pub taken: u64,
    pub count: Count,
}

/// What a node's machine has, and how much of it is in use, by whomever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeUsage {
    pub cpus: u64,
    /// CPUs that were busy since the last beat, a fraction allowed.
    pub cpus_used: f64,
    pub memory_bytes: u64,
    pub memory_used_bytes: u64,
    /// Of the storage that workspaces are on, or else the node's state.
    pub disk_bytes: u64,
    pub disk_used_bytes: u64,
    /// Commands that run in sessions.
    pub execs: u64,
}

/// Where a durable workspace is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceHome {
    pub node: String,
    pub store: String,
    /// Grows by one with every move.
    pub generation: u64,
}

/// Where a sandbox session was opened. Also known of one whose node is gone, so that its caller learns that it is lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlace {
    pub node: String,
    pub principal: Tenant,
    pub root_run: Option<RunId>,
    /// Its durable workspace.
    pub workspace: Option<String>,
}

/// Seats are what a tenant's quota counts: each run of it that is not final takes one. Which runs those are is in the
/// journal; the store makes counting them fast, and exact while several replicas open runs.
///
/// - **Order.** A workspace's home is replaced only by one of a higher generation. A claim replaces a location
///   only if its epoch is higher; a release removes one only if
///   replica and epoch are those of the location. So late messages of an older activation change nothing.
/// - **Durability.** None. An empty answer proves nothing.
/// - **Cancelling** any call leaves the write done or not done, and nothing else.
#[async_trait]
pub trait Registry: Send + Sync + 'static {
    async fn claim(&self, run: &RunId, location: Location) -> Result<(), Error>;

    async fn release(&self, run: &RunId, location: &Location) -> Result<(), Error>;

    async fn locate(&self, run: &RunId) -> Result<Option<Location>, Error>;

    /// Writes the replica's row and makes it live for `lease` of the store's clock. Whether it was live: a replica that
    /// was not has lost its lease, or the store has lost what it knew.
    async fn heartbeat(&self, row: ReplicaRow, lease: Duration) -> Result<bool, Error>;

    /// Removes the replica's row at once (a clean stop).
    async fn leave(&self, replica: &ReplicaId) -> Result<(), Error>;

    /// The replicas whose lease has not run out, in the order of their ids.
    async fn replicas(&self) -> Result<Vec<ReplicaRow>, Error>;

    /// Writes a sandbox node's row and makes it live for `lease` of the store's clock.
    async fn announce(&self, row: NodeRow, lease: Duration) -> Result<(), Error>;

    /// Removes a node's row at once (a clean stop).
    async fn withdraw(&self, node: &str) -> Result<(), Error>;

    /// The nodes whose lease has not run out, in the order of their names.
    async fn nodes(&self) -> Result<Vec<NodeRow>, Error>;

    /// Takes a seat for a run, if it has one already or fewer than `limit` are taken.
    async fn take_seat(&self, tenant: &Tenant, run: &RunId, limit: u64) -> Result<Seat, Error>;

    /// Gives it back; of a run that has none, nothing.
    async fn leave_seat(&self, tenant: &Tenant, run: &RunId) -> Result<(), Error>;

    /// The runs that have seats and for how long, the oldest first; `skip` of them are left out.
    async fn seats(&self, tenant: &Tenant, skip: u64, limit: usize) -> Result<Vec<(RunId, Duration)>, Error>;

    /// Gives seats to runs that were found to need one, however many are taken.
    async fn seat_all(&self, tenant: &Tenant, runs: &[RunId]) -> Result<(), Error>;

    /// Says that the seats have just been counted, and whether that found all of them.
    async fn counted(&self, tenant: &Tenant, whole: bool) -> Result<(), Error>;

    /// The home of a workspace, by a key that names its principal and itself.
    async fn home(&self, workspace: &str) -> Result<Option<WorkspaceHome>, Error>;

    /// Gives a workspace a home, unless it has one of this generation or a higher one: the home that
    /// stands then.
    async fn move_home(&self, workspace: &str, home: WorkspaceHome) -> Result<WorkspaceHome, Error>;

    /// Forgets the home of a workspace that was deleted.
    async fn forget_home(&self, workspace: &str) -> Result<(), Error>;

    /// Remembers where a session was opened, for `keep` of the store's clock.
    async fn note_sandbox(&self, session: &SandboxId, place: SandboxPlace, keep: Duration) -> Result<(), Error>;

    async fn sandbox(&self, session: &SandboxId) -> Result<Option<SandboxPlace>, Error>;
}
