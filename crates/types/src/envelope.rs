//! The answer about a turn, the same on every surface.

use serde::{Deserialize, Serialize};

use crate::{FaultCode, RunId, RunState, TurnId, TurnOutcome};

/// Describes the turn in `turn_id`: `running` with the output so far until that turn has ended,
/// then `awaiting_input` or the run's final state, even if another turn has started since.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    pub run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub child_run_id: Option<RunId>,
    pub state: RunState,
    pub turn_id: Option<TurnId>,
    pub outcome: Option<TurnOutcome>,
    pub output: String,
    pub truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<TurnError>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blocker: Option<Blocker>,
}

/// Why a turn failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnError {
    pub code: FaultCode,
    pub message: String,
}

/// What a guardrail says when it trips.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    pub tripped: String,
    pub last_safe_state: String,
    pub next_action: String,
}
