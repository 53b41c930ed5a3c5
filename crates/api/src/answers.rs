//! What callers get back, as every surface encodes it.

use std::collections::BTreeMap;

use hearth_library::{Origin, Skill};
use hearth_registry::NodeUsage;
use hearth_types::{
    AgentDefinition, Envelope, Isolation, ReplicaId, RunId, RunState, SandboxId, SessionId, SnapshotId, Tenant,
    Timestamp, TurnError, TurnId, TurnOutcome, Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An answer, and whether it is the first one of its key again (`Idempotent-Replay: true`).
#[derive(Debug, Clone)]
pub struct Answer<T> {
    pub body: T,
    pub replayed: bool,
}

/// Answer to `POST /v1/runs` and to a session message. The wait passed first when the envelope's
/// state is `running`.
#[derive(Debug, Clone, Serialize)]
pub struct RunAnswer {
    #[serde(flatten)]
    pub envelope: Envelope,
    pub session_id: SessionId,
    pub root_run_id: RunId,
    pub usage: Usage,
}

#[derive(Debug, Clone, Serialize)]
pub struct InputAnswer {
    pub run_id: RunId,
    pub turn_id: TurnId,
    /// `now` or `queued`.
    pub delivered: &'static str,
}

#[derive(Debug, Clone, Serialize)]
pub struct CancelAnswer {
    #[serde(flatten)]
    pub envelope: Envelope,
    pub stopped: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct CloseAnswer {
    pub run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<RunId>,
    pub state: RunState,
    pub closed_descendants: u64,
}

#[derive(Debug, Clone, Serialize)]
pub struct LastTurn {
    pub turn_id: TurnId,
    pub outcome: TurnOutcome,
    /// Lists show the first bytes of it.
    pub output: String,
    /// Whether `output` is less than all that the turn put out.
    pub truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
}

/// One run as `GET /v1/runs` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct RunView {
    pub run_id: RunId,
    pub session_id: SessionId,
    pub root_run_id: RunId,
    pub parent_run_id: Option<RunId>,
    pub agent: String,
    pub tenant_id: Tenant,
    pub state: RunState,
    pub last_turn: Option<LastTurn>,
    pub resident: bool,
    /// `active` (in memory somewhere), `passivated`, or `null` for runs that are not residents.
    pub resident_state: Option<&'static str>,
    pub owner_replica: Option<ReplicaId>,
    pub epoch: u64,
    pub turns: u64,
    pub user_id: Option<String>,
    pub metadata: BTreeMap<String, Value>,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
    pub usage: Usage,
    pub trace_id: Option<String>,
}

/// One resident as `GET /v1/_resident` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct ResidentView {
    pub child_run_id: RunId,
    pub agent: String,
    pub state: RunState,
    pub parent_run_id: Option<RunId>,
    pub root_run_id: RunId,
    pub tenant_id: Tenant,
    pub idle_ttl_seconds: u64,
    pub last_used_at: Timestamp,
    pub opened_at: Timestamp,
    pub owner_replica: Option<ReplicaId>,
    pub epoch: u64,
    pub turns: u64,
    pub sandbox_session_id: Option<SandboxId>,
}

/// A page of anything. The surface names the list (`runs`, `resident`, …).
#[derive(Debug, Clone)]
pub struct Listing<T> {
    pub items: Vec<T>,
    pub next_cursor: Option<String>,
    pub as_of: Timestamp,
    /// A store could not be asked.
    pub partial: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct TranscriptMessage {
    pub role: String,
    pub content: Value,
    pub run_id: RunId,
    pub turn_id: Option<TurnId>,
    pub at: Timestamp,
}

#[derive(Debug, Clone, Serialize)]
pub struct Transcript {
    pub session_id: SessionId,
    pub messages: Vec<TranscriptMessage>,
    pub next_cursor: Option<String>,
}

/// Answer to a replay.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayAnswer {
    pub session_id: SessionId,
    /// Messages that the new session begins with.
    pub events_copied: u64,
    pub compressed: bool,
}

/// A snapshot as `GET /v1/snapshots` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotView {
    pub snapshot_id: SnapshotId,
    /// The run that was taken, with what was below it.
    pub run_id: RunId,
    pub agent: String,
    pub tenant_id: Tenant,
    pub subject: String,
    pub created_at: Timestamp,
    pub runs: u64,
    pub size_bytes: u64,
    pub sha256: String,
    pub workspaces: Vec<String>,
    /// What could not be taken along, in words.
    pub left_out: Vec<String>,
    /// It came in as a file.
    pub imported: bool,
}

/// Answer to a resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeAnswer {
    pub snapshot_id: SnapshotId,
    /// The new root.
    pub run_id: RunId,
    pub session_id: SessionId,
    pub state: RunState,
    pub runs: Vec<ResumedRun>,
    pub workspaces: Vec<ResumedWorkspace>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumedRun {
    pub from: RunId,
    pub run_id: RunId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumedWorkspace {
    pub name: String,
    /// `false`: there is one of this name, which stays as it is.
    pub restored: bool,
}

#[derive(Debug, Clone, Serialize)]
pub struct ReplicaView {
    pub replica_id: ReplicaId,
    pub url: Option<String>,
    pub version: String,
    pub started_at: Timestamp,
    pub draining: bool,
    pub active_residents: u64,
    pub running_turns: u64,
}

/// A sandbox node and its load.
#[derive(Debug, Clone, Serialize)]
pub struct NodeView {
    pub node_id: String,
    pub url: String,
    pub version: String,
    pub started_at: Timestamp,
    pub draining: bool,
    pub sessions: u64,
    pub max_sessions: u64,
    pub levels: Vec<Isolation>,
    pub runtimes: Vec<String>,
    pub image: String,
    pub images: Vec<String>,
    /// Whether durable workspaces can be had there.
    pub workspaces: bool,
    /// The storage that they are on; nodes that share it have the same.
    pub store: Option<String>,
    /// Sessions that are kept ready for whoever comes.
    pub pool: u64,
    pub usage: NodeUsage,
}

/// One event of a run's stream.
#[derive(Debug, Clone)]
pub struct StreamEvent {
    /// `None` for live deltas.
    pub id: Option<u64>,
    pub name: &'static str,
    /// With `seq` (journaled events), `run_id`, `at` and, inside a turn, `turn_id`.
    pub data: Value,
}

/// A definition as `GET /v1/agents` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct AgentView {
    #[serde(flatten)]
    pub definition: AgentDefinition,
    /// Names the definition by its content.
    pub def_id: String,
    pub origin: Origin,
}

impl AgentView {
    pub fn new(origin: Origin, definition: &AgentDefinition, def_id: String) -> Self {
        Self { definition: definition.clone(), def_id, origin }
    }
}

/// A skill as `GET /v1/skills` shows it.
#[derive(Debug, Clone, Serialize)]
pub struct SkillView {
    #[serde(flatten)]
    pub skill: Skill,
    pub origin: &'static str,
}

impl SkillView {
    pub fn new(skill: &Skill, origin: &'static str) -> Self {
        Self { skill: skill.clone(), origin }
    }
}
