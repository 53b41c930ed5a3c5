//! The driver port: how a sandbox session comes to be and goes. What runs in it goes through its init
//! ([`InitClient`](crate::init::InitClient)), the same for every driver.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use hearth_types::{Isolation, RunId, SandboxId, SandboxLimits, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Error, SessionUsage};

pub type SharedDriver = Arc<dyn Driver>;

/// The user and group that code runs as, wherever the driver may choose. The same in every driver,
/// so that a durable workspace can be used by one after the other.
pub const SESSION_UID: u32 = 1000;
pub const SESSION_GID: u32 = 1000;

/// Where `/work` comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// Of the session's own, gone with it, `mb` MiB large where the host can hold it to that.
    Tmpfs { mb: u64 },
    /// A durable workspace on this host. It exists already, and no driver ever removes it.
    Durable { host_dir: PathBuf, read_only: bool },
}

/// Whether code in a session may reach the network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    #[default]
    None,
    Egress,
}

impl Network {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Egress => "egress",
        }
    }
}

/// What a session is to be. Resolved: limits are all set, the policy has been asked, paths are checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionSpec {
    pub session: SandboxId,
    pub root_run: Option<RunId>,
    /// The node that owns it, for labels.
    pub node: String,
    /// Absent: the driver's default. Meaningless for `local`, which refuses one.
    pub image: Option<String>,
    pub work: Work,
    pub network: Network,
    pub limits: SandboxLimits,
    /// A runtime asked for by name; a driver that does not have it refuses.
    pub runtime: Option<String>,
    /// When the session ends by itself, even if its node is gone.
    pub deadline: Timestamp,
    /// The session's part of every command's environment, beside
    /// [`session_env`](crate::session_env) and the image's own.
    pub env: BTreeMap<String, String>,
}

/// Sessions of fewer processes leave all of them to commands.
const SPARE_FROM_PIDS: u64 = 64;

impl SessionSpec {
    /// Whether processes may wait for the next command.
    pub(crate) fn has_room_for_a_spare(&self) -> bool {
        self.limits.pids.is_none_or(|pids| pids >= SPARE_FROM_PIDS)
    }
}

/// A session that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The socket of its init on this host, for [`InitClient::connect`](crate::init::InitClient::connect).
    pub socket: PathBuf,
    /// Where commands see the workspace: `/work`, or its real path where nothing can be mounted.
    pub workspace_path: String,
    /// What confines it: the name of the engine's runtime, `bwrap` or `process`.
    pub runtime: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    Running,
    /// Nothing of it runs, or it was never there. Its folder or container may still have to be
    /// cleared away with [`Driver::stop`].
    Gone,
}

/// Starts and stops sessions on this host.
///
/// - **Independence.** A session does not depend on the process that started it: that may be killed,
///   and another one over the same state folder finds the session with [`reattach`](Self::reattach).
/// - **Idempotence.** All calls can be repeated. `start` of a session that runs returns it as it is,
///   whatever else the spec says; `stop` of one that is gone, or never was, succeeds.
/// - **Ordering.** Calls for one session come one after the other (its owner sees to that); calls for
///   different sessions run at once.
/// - **Cancelling.** A dropped `start` or `stop` may leave a part of the session behind. Before it
///   makes anything, `start` records the session under its id, so that a later `stop` by that id,
///   from this process or the next, clears everything away.
/// - **Ownership.** A driver touches only what carries the id of the session asked for and is its
///   own node's.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// `docker` or `local`.
    fn kind(&self) -> &'static str;

    fn isolation(&self) -> Isolation;

    /// What the level does not hold on this host, in words; absent when it holds in full.
    fn notice(&self) -> Option<String>;

    /// Whether a session can be asked for with this runtime by its name.
    fn has_runtime(&self, _name: &str) -> bool {
        false
    }

    /// The images that are here, by their names; none where sessions have no image.
    async fn images(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Every session of this node that has something left here, running or not. The node compares them
    /// with its records and stops what it does not know.
    async fn owned(&self) -> Result<Vec<SandboxId>, Error> {
        Ok(Vec::new())
    }

    /// Starts the session and returns once its init answers.
    async fn start(&self, spec: &SessionSpec) -> Result<Started, Error>;

    /// Ends every process of the session and removes all of it but a durable workspace. When it
    /// returns, nothing is left.
    async fn stop(&self, session: &SandboxId) -> Result<(), Error>;

    /// What a session that runs uses now; nothing where that is not known.
    async fn usage(&self, _session: &SandboxId) -> Result<Option<SessionUsage>, Error> {
        Ok(None)
    }

    /// Whether it runs. An error means that this could not be found out, never that it is gone.
    async fn inspect(&self, session: &SandboxId) -> Result<SessionState, Error>;

    /// Finds a session again that an earlier process started. [`ErrorKind::SessionLost`] when it is
    /// gone; it is not started again, since what ran in it would be missing.
    ///
    /// [`ErrorKind::SessionLost`]: crate::ErrorKind::SessionLost
    async fn reattach(&self, spec: &SessionSpec) -> Result<Started, Error>;
}
