//! Everything that can have happened to a run. The journal holds these and nothing else.

use hearth_types::{
    Blocker, CallId, Epoch, ReplicaId, RunId, RunState, SandboxSpec, Seq, Timestamp, ToolCall, ToolOutput,
    TraceContext, TurnError, TurnId, TurnOutcome, Usage,
};
use serde::{Deserialize, Serialize};

use crate::{ChildKind, KeyResult, KeyUse, Run, RunSpec};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    Created {
        spec: Box<RunSpec>,
    },
    /// An activation took over. Its first act: before this stands, it answers nothing.
    Activated {
        epoch: Epoch,
        replica: ReplicaId,
    },
    /// An input was accepted; it waits for its turn.
    TurnAccepted {
        turn_id: TurnId,
        prompt: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<KeyUse>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<TraceContext>,
    },
    TurnStarted {
        turn_id: TurnId,
    },
    Thinking {
        turn_id: TurnId,
        text: String,
    },
    Text {
        turn_id: TurnId,
        text: String,
    },
    /// The model asked for a tool; the call starts once this stands.
    ToolCalled {
        turn_id: TurnId,
        call: ToolCall,
    },
    UsageCounted {
        turn_id: TurnId,
        usage: Usage,
    },
    /// Ends the group of events of one model step that waits for tools.
    StepFinished {
        turn_id: TurnId,
    },
    ToolFinished {
        turn_id: TurnId,
        call_id: CallId,
        output: ToolOutput,
    },
    /// An input for the running turn's model, given to it at its next step.
    Steered {
        turn_id: TurnId,
        text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<KeyUse>,
    },
    TurnCancelled {
        turn_id: TurnId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    Blocked {
        turn_id: TurnId,
        blocker: Blocker,
    },
    /// The one event that ends a turn.
    TurnEnded {
        turn_id: TurnId,
        outcome: TurnOutcome,
        /// `None`: the text of the step that ended the turn, which stands in the same frame; a large
        /// answer is not journaled twice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<String>,
        #[serde(default)]
        truncated: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<TurnError>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blocker: Option<Blocker>,
        /// The run's state once the turn has ended: `awaiting_input`, or a final one.
        state: RunState,
    },
    /// Journaled by the parent before the child exists. Holds all that is needed to create it.
    ChildOpened {
        spec: Box<RunSpec>,
        kind: ChildKind,
        turn_id: TurnId,
        prompt: String,
    },
    /// The child's own journal has begun.
    ChildConfirmed {
        child_run_id: RunId,
    },
    /// The child could not be created: its id is taken by something else.
    ChildRefused {
        child_run_id: RunId,
    },
    ChildEnded {
        child_run_id: RunId,
        state: RunState,
        closed_descendants: u64,
    },
    /// Fences new children and turns; the end follows once the subtree is down.
    Closing {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The output so far of the turn that this cuts off.
        partial: String,
    },
    /// The run ended while no turn ran.
    Closed,
    /// The activation handed the run over in good order.
    Released,
    /// The tree's shared session of a kind is on this node. Journaled by the root run.
    SandboxBound {
        slot: String,
        node: String,
    },
    /// What this run and its descendants open from now on has to be; `None`: nothing beyond what their
    /// definitions say. The session that the run used so far is not its any more.
    SandboxOverridden {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sandbox: Option<SandboxSpec>,
    },
    /// An ancestor's override changed: the run opens anew.
    SandboxForgotten,
    /// The folded state at this event: what a reader needs of everything before it.
    Snapshot {
        run: Box<Run>,
        /// The snapshots before it that reading may still begin at, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        earlier: Vec<Mark>,
    },
    /// A command was answered without any other effect than being remembered by its key.
    KeyUsed {
        key: KeyUse,
        result: KeyResult,
    },
}

impl Event {
    /// Whether the event is still asked for once its frame was folded away: it is part of what the
    /// conversation was, or of how a turn ended.
    pub fn is_history(&self) -> bool {
        matches!(
            self,
            Self::TurnAccepted { .. }
                | Self::TurnStarted { .. }
                | Self::Text { .. }
                | Self::ToolCalled { .. }
                | Self::StepFinished { .. }
                | Self::ToolFinished { .. }
                | Self::Steered { .. }
                | Self::TurnEnded { .. }
        )
    }

    /// About how much of the conversation it is, in bytes: what the run's history grows by.
    pub(crate) fn said_bytes(&self) -> u64 {
        let bytes = match self {
            Self::TurnAccepted { prompt: text, .. }
            | Self::Text { text, .. }
            | Self::Steered { text, .. }
            | Self::TurnEnded { output: Some(text), .. } => text.len(),
            Self::ToolCalled { call, .. } => json_bytes(&call.arguments),
            Self::ToolFinished { output, .. } => json_bytes(&output.content),
            _ => 0,
        };
        bytes as u64
    }

    /// The turn that the event belongs to.
    pub fn turn_id(&self) -> Option<&TurnId> {
        match self {
            Self::TurnAccepted { turn_id, .. }
            | Self::TurnStarted { turn_id }
            | Self::Thinking { turn_id, .. }
            | Self::Text { turn_id, .. }
            | Self::ToolCalled { turn_id, .. }
            | Self::UsageCounted { turn_id, .. }
            | Self::StepFinished { turn_id, .. }
            | Self::ToolFinished { turn_id, .. }
            | Self::Steered { turn_id, .. }
            | Self::TurnCancelled { turn_id, .. }
            | Self::Blocked { turn_id, .. }
            | Self::TurnEnded { turn_id, .. } => Some(turn_id),
            _ => None,
        }
    }
}

/// Where a snapshot stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub seq: Seq,
    /// The store's position of its frame.
    pub position: u64,
}

/// An event with its number and time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    pub seq: Seq,
    pub at: Timestamp,
    pub event: Event,
}

/// Of the texts in a value, without writing it out.
fn json_bytes(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(|item| 1 + json_bytes(item)).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + json_bytes(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
    }
}
