//! What callers ask, as every surface decodes it. Unknown fields are refused.

use std::collections::BTreeMap;

use hearth_types::{InputMode, Isolation, Principal, RunId, RunState, SandboxSpec, Tenant, TraceContext, TurnId};
use serde::Deserialize;
use serde_json::Value;

/// Who calls, and how the call can be repeated and traced.
#[derive(Debug, Clone)]
pub struct Caller {
    pub principal: Principal,
    /// The calling run, for calls from inside a run: it may address its own descendants only.
    pub run: Option<RunId>,
    pub key: Option<Key>,
    pub trace: Option<TraceContext>,
}

/// An idempotency key with what it is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    pub key: String,
    /// Method and path, such as `POST /v1/runs`.
    pub scope: String,
    /// Hash of the parsed body without the time-outs.
    pub digest: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateRun {
    pub agent: String,
    pub prompt: Option<String>,
    /// Parts of the prompt; joined by blank lines.
    pub segments: Option<Vec<String>>,
    pub session_id: Option<String>,
    #[serde(default)]
    pub interactive: bool,
    pub user_id: Option<String>,
    pub metadata: Option<BTreeMap<String, Value>>,
    pub isolation: Option<Isolation>,
    pub sandbox: Option<SandboxSpec>,
    pub run_timeout_seconds: Option<u64>,
    pub wait_ms: Option<u64>,
    #[serde(default)]
    pub cancel_on_disconnect: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenResident {
    pub agent: String,
    pub prompt: String,
    pub parent_run_id: Option<String>,
    pub idle_ttl_seconds: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub isolation: Option<Isolation>,
    pub sandbox: Option<SandboxSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    pub prompt: String,
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    pub timeout_ms: Option<u64>,
    pub turn_id: Option<TurnId>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub text: String,
    #[serde(default)]
    pub mode: InputMode,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    pub reason: Option<String>,
    pub turn_id: Option<TurnId>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Close {
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionMessage {
    pub prompt: String,
    pub agent: Option<String>,
    pub wait_ms: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaySession {
    /// Goes on with the conversation.
    pub agent: String,
    /// Carries what was asked and answered alone, and cuts long texts.
    #[serde(default)]
    pub compress: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeSnapshot {
    /// Takes the durable workspaces of the tree's sessions along.
    #[serde(default)]
    pub workspaces: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    pub state: Option<RunState>,
    pub agent: Option<String>,
    pub root_run_id: Option<RunId>,
    pub parent_run_id: Option<RunId>,
    pub resident: Option<bool>,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
    /// Admins only: narrows to one tenant.
    pub tenant: Option<Tenant>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}
