//! What a run is, fixed at its creation.

use std::collections::BTreeMap;
use std::sync::Arc;

use hearth_types::{
    AgentDefinition, CallId, Isolation, RunId, SandboxSpec, SessionId, Tenant, TraceContext, derive_hex,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The use of an idempotency key. `id` names (tenant, subject, method and path, key); `digest` the body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyUse {
    pub id: String,
    pub digest: String,
}

impl KeyUse {
    pub fn new(tenant: &str, subject: &str, scope: &str, key: &str, digest: &str) -> Self {
        Self { id: derive_hex(&["key", tenant, subject, scope, key]), digest: digest.to_owned() }
    }
}

/// Why a child exists, and with that how long it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildKind {
    /// Parks between turns; counts against its parent's cap until it is final.
    Resident,
    /// Does one turn for one call of its parent's turn, and ends with that turn at the latest.
    Spawn,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub run_id: RunId,
    /// The tool call that opened the child; absent for an open from outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<CallId>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    pub run_id: RunId,
    pub session_id: SessionId,
    pub root_run_id: RunId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Levels below the root.
    #[serde(default)]
    pub depth: u32,
    pub tenant: Tenant,
    pub subject: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    pub agent: Arc<AgentDefinition>,
    /// Parks after a turn instead of ending.
    pub interactive: bool,
    pub idle_ttl_ms: u64,
    /// The longest a turn may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSpec>,
    /// Resident children that this run may hold.
    pub max_residents: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyUse>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

impl RunSpec {
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }
}
