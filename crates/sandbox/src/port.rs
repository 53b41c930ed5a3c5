//! The sandbox port: the tools of the contract, typed. Served here by the replica's own process and
//! later by nodes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use hearth_types::{ExecId, Fault, Isolation, RunId, SandboxId, SandboxLimits, Tenant, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Workspaces;

pub type SharedSandboxes = Arc<dyn Sandboxes>;

/// Who a call is for. Comes from the engine or from headers, never from an argument.
#[derive(Clone, Default)]
pub struct Caller {
    /// Owns sessions and workspaces: the tenant, or the token itself where none is named.
    pub principal: Tenant,
    pub root_run: Option<RunId>,
    /// The run that calls, for `changed_by`.
    pub run: Option<RunId>,
    /// Names the tool call for ever, so that an open repeated after a crash finds the session that it
    /// opened before, `own` ones too.
    pub call: Option<String>,
    /// Secrets for the commands' environment. Never shown, logged or stored.
    pub secrets: BTreeMap<String, String>,
    /// What a session must hold for the run that calls, whoever opened it.
    pub needs: Needs,
}

/// The narrowest that a run's definition, its opener and the overrides allow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    pub isolation: Option<Isolation>,
    /// A session that the run opened itself.
    pub own: bool,
    pub read_only: bool,
    pub no_network: bool,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller")
            .field("principal", &self.principal)
            .field("root_run", &self.root_run)
            .field("run", &self.run)
            .field("call", &self.call)
            .field("secrets", &self.secrets.keys())
            .field("needs", &self.needs)
            .finish()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenArgs {
    pub workspace: Option<String>,
    pub image: Option<String>,
    /// `none` or `egress`.
    pub network: Option<String>,
    pub cpu: Option<f64>,
    pub mem_mb: Option<u64>,
    pub pids: Option<u64>,
    pub tmpfs_mb: Option<u64>,
    pub isolation: Option<Isolation>,
    pub runtime: Option<String>,
    pub read_only: Option<bool>,
    pub own: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenResult {
    pub session_id: SandboxId,
    /// `/work` in a container; the real path for a local session.
    pub workspace_path: String,
    /// Whether `/work` is a durable workspace.
    pub persistent: bool,
    pub network: String,
    pub isolation: Isolation,
    pub runtime: String,
    pub limits: SandboxLimits,
    pub expires_at: Timestamp,
    pub idle_expires_at: Timestamp,
    pub node: String,
    /// Whether the session was there already, or came from the pool.
    pub warm: bool,
    /// What confinement does not hold here, in words; absent when the level holds in full.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub notice: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExecArgs {
    pub session_id: SandboxId,
    pub command: String,
    /// Absent: 30. At most 3600.
    #[serde(default)]
    pub timeout_seconds: Option<u64>,
    /// Absent: 1 MiB.
    #[serde(default)]
    pub max_output_bytes: Option<u64>,
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub stdin: Option<String>,
    #[serde(default)]
    pub background: Option<bool>,
    /// The same id again re-attaches, or returns the recorded result.
    #[serde(default)]
    pub exec_id: Option<ExecId>,
}

impl ExecArgs {
    /// With nothing beside the command.
    pub fn new(session: &SandboxId, command: &str) -> Self {
        Self {
            session_id: session.clone(),
            command: command.to_owned(),
            timeout_seconds: None,
            max_output_bytes: None,
            cwd: None,
            env: None,
            stdin: None,
            background: None,
            exec_id: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecResult {
    pub exec_id: ExecId,
    /// stdout and stderr interleaved as written.
    pub output: String,
    /// `base64` when the output is not UTF-8; absent for text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub encoding: Option<String>,
    /// `null` while it runs.
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub signal: Option<String>,
    pub timed_out: bool,
    pub oom_killed: bool,
    pub truncated: bool,
    /// Bytes that the command wrote, those past the cap included.
    pub output_bytes: u64,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PollArgs {
    pub session_id: SandboxId,
    pub exec_id: ExecId,
    /// Absent or 0: a snapshot.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct KillArgs {
    pub session_id: SandboxId,
    pub exec_id: ExecId,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WriteArgs {
    pub session_id: SandboxId,
    pub path: String,
    pub content: String,
    /// `utf8` (default) or `base64`.
    #[serde(default)]
    pub encoding: Option<String>,
    /// Permission bits, such as 420 (0644), or the octal text "0644".
    #[serde(default)]
    pub mode: Option<serde_json::Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WriteResult {
    pub bytes_written: u64,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReadArgs {
    pub session_id: SandboxId,
    pub path: String,
    #[serde(default)]
    pub encoding: Option<String>,
    #[serde(default)]
    pub offset: Option<u64>,
    /// Absent: 1 MiB.
    #[serde(default)]
    pub max_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadResult {
    pub content: String,
    pub encoding: String,
    /// Of the whole file, in bytes.
    pub size: u64,
    pub truncated: bool,
    /// The run that changed the file since the reader last saw it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub changed_by: Option<RunId>,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SessionArgs {
    pub session_id: SandboxId,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CloseRunArgs {
    pub root_run_id: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CloseRunResult {
    pub closed: u64,
}

/// What a session uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionUsage {
    /// CPU time since the session began.
    pub cpu_seconds: f64,
    pub memory_bytes: u64,
    pub processes: u64,
    /// What its `/work` holds: its own, or the durable workspace's. Absent where that is not known.
    #[serde(default)]
    pub disk_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionRow {
    pub session_id: SandboxId,
    pub principal: Tenant,
    pub root_run_id: Option<RunId>,
    pub workspace: Option<String>,
    pub image: Option<String>,
    pub isolation: Isolation,
    pub runtime: String,
    pub network: String,
    pub node: String,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
    pub expires_at: Timestamp,
    pub idle_expires_at: Timestamp,
    /// Commands in flight.
    pub running: u64,
    /// Measured while somebody looks at lists, every few seconds; absent before.
    #[serde(default)]
    pub usage: Option<SessionUsage>,
}

/// The tools of the contract. A session of another principal is `not_found` everywhere.
///
/// - **Idempotence.** `open` returns the tree's shared session for the same (image, workspace);
///   `exec` with a known `exec_id` re-attaches or returns the recorded result; `close` and
///   `close_run` can be repeated.
/// - **Cancelling.** Dropping the future of an `open` or `close` leaves a job that finishes by itself;
///   dropping that of an `exec` leaves the command running, to be found again by its id.
/// - **Durability.** Sessions and the execs in them survive the death of this process; a new process
///   on the same state folder finds them again.
#[async_trait]
pub trait Sandboxes: Send + Sync + 'static {
    async fn open(&self, caller: &Caller, args: OpenArgs) -> Result<OpenResult, Fault>;
    /// The result of an open could not be told to its caller: a session that an open again would not find goes,
    /// unless somebody uses it all the same.
    async fn unclaimed(&self, _caller: &Caller, _session: &SandboxId) {}
    async fn exec(&self, caller: &Caller, args: ExecArgs) -> Result<ExecResult, Fault>;
    async fn poll(&self, caller: &Caller, args: PollArgs) -> Result<ExecResult, Fault>;
    async fn kill(&self, caller: &Caller, args: KillArgs) -> Result<ExecResult, Fault>;
    async fn write(&self, caller: &Caller, args: WriteArgs) -> Result<WriteResult, Fault>;
    async fn read(&self, caller: &Caller, args: ReadArgs) -> Result<ReadResult, Fault>;
    async fn touch(&self, caller: &Caller, args: SessionArgs) -> Result<SessionRow, Fault>;
    async fn close(&self, caller: &Caller, args: SessionArgs) -> Result<(), Fault>;
    /// Closes all sessions of one run tree. `tombstone`: the tree has ended for good, and an `open`
    /// that comes late is refused.
    async fn close_run(&self, caller: &Caller, root_run: &RunId, tombstone: bool) -> Result<CloseRunResult, Fault>;
    async fn list(&self, caller: &Caller) -> Result<Vec<SessionRow>, Fault>;
    /// Every principal's sessions, for the operator's lists.
    async fn list_all(&self) -> Result<Vec<SessionRow>, Fault>;
    /// The same without a wait for who does not answer, and whether somebody did not.
    async fn list_some(&self) -> Result<(Vec<SessionRow>, bool), Fault> {
        Ok((self.list_all().await?, false))
    }
    /// Makes a node take no new sessions. Those that it has go on.
    async fn drain(&self, _node: &str) -> Result<(), Fault> {
        Err(Fault::not_found())
    }

    /// Durable workspaces as a whole, where they can be reached from here.
    fn workspaces(&self) -> Option<&dyn Workspaces> {
        None
    }
}

/// Whether a run tree is still alive, as the journal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// A resident of the tree lives, or its root runs.
    Alive,
    /// The tree lives, but nothing of it holds its sessions: their idle time counts. Also the answer
    /// where nobody keeps runs at all.
    Unheld,
    /// The root's final state was read.
    Ended,
    /// Could not be found out; means alive until the absolute time-out.
    Unknown,
}

/// What a node asks of the cluster that it is part of. The sweeper asks before it closes a session for idleness or
/// for its tree's end, an open before it takes a workspace from another node.
#[async_trait]
pub trait RunLiveness: Send + Sync + 'static {
    async fn liveness(&self, root_run: &RunId) -> Liveness;

    /// Whether another node is gone for certain: its lease has run out, by every count. Where there is no cluster
    /// nobody else can use the storage.
    async fn node_is_gone(&self, _node: &str) -> bool {
        true
    }
}
