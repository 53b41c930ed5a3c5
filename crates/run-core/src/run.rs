//! The folded state of a run's journal.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use hearth_types::{
    Blocker, Epoch, ReplicaId, RunId, RunState, SandboxId, SandboxSpec, Seq, Timestamp, ToolCall, ToolOutput,
    TraceContext, TurnError, TurnId, TurnOutcome, Usage,
};
use serde::{Deserialize, Serialize};

use crate::{ChildKind, KeyUse, RunSpec};

/// Ended turns whose results stay in memory; older ones are read from the journal.
pub(crate) const ENDED_TURNS_KEPT: usize = 4;
/// Bytes of output up to which an ended turn but the last stays in memory.
pub(crate) const ENDED_OUTPUT_KEPT: usize = 4 * 1024;
/// Final children that are remembered, so that an open repeated late finds them.
pub(crate) const FINAL_CHILDREN_KEPT: usize = 256;

/// Events between two snapshots of a parked run, and of one whose turn runs.
const SNAPSHOT_PARKED: u64 = 256;
const SNAPSHOT_IN_TURN: u64 = 4_096;
/// Keys that a snapshot holds for each event since the one before it, at the most.
const KEYS_PER_EVENT: u64 = 8;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub spec: Arc<RunSpec>,
    pub state: RunState,
    pub epoch: Epoch,
    pub owner: Option<ReplicaId>,
    /// The number of the last event.
    pub seq: Seq,
    /// Turns started.
    pub turns: u64,
    pub current: Option<Box<Turn>>,
    pub queue: VecDeque<QueuedTurn>,
    /// The newest turn that was accepted.
    pub newest_turn: Option<TurnId>,
    /// The last few turns that ended, oldest first.
    pub ended: VecDeque<EndedTurn>,
    pub children: BTreeMap<RunId, Child>,
    pub final_children: VecDeque<RunId>,
    pub keys: HashMap<String, KeyRecord>,
    /// The order of `keys`, oldest first.
    pub key_order: VecDeque<String>,
    pub usage: Usage,
    pub sandbox_session: Option<SandboxId>,
    /// The node of each kind of shared session of the tree; in the root run only.
    #[serde(default)]
    pub sandbox_nodes: BTreeMap<String, String>,
    /// Set from outside, for this run and its descendants.
    #[serde(default)]
    pub sandbox_override: Option<SandboxSpec>,
    /// A close is under way; holds the output so far of the turn it cut off.
    pub closing: Option<String>,
    /// Descendants that this run's close has closed.
    pub closed_descendants: u64,
    /// Activations since anything else happened.
    pub fruitless_activations: u32,
    /// The number of the last snapshot; zero before the first.
    #[serde(default)]
    pub snapshot_seq: Seq,
    pub created_at: Timestamp,
    pub last_used_at: Timestamp,
    /// Bytes of the conversation, from the run's beginning.
    #[serde(default)]
    pub said_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedTurn {
    pub turn_id: TurnId,
    pub prompt: String,
    pub trace: Option<TraceContext>,
}

/// The turn that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub turn_id: TurnId,
    pub prompt: String,
    pub trace: Option<TraceContext>,
    pub started_at: Timestamp,
    /// The run's sandbox session when the turn started.
    #[serde(default)]
    pub sandbox_session: Option<SandboxId>,
    /// Finished model steps, and last the one whose events are being folded.
    pub steps: Vec<StepRecord>,
    /// Steered input that no step has seen yet.
    pub steered: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    pub thinking: String,
    pub text: String,
    pub calls: Vec<CallRecord>,
    pub usage: Usage,
    /// What was steered in after this step and before the next.
    pub steered: Vec<String>,
    pub finished: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    pub call: ToolCall,
    pub result: Option<(ToolOutput, Timestamp)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndedTurn {
    pub turn_id: TurnId,
    pub outcome: TurnOutcome,
    /// `None` when it was too large to keep: it is in the journal.
    pub output: Option<String>,
    pub truncated: bool,
    pub error: Option<TurnError>,
    pub blocker: Option<Blocker>,
    /// The run's state right after the turn.
    pub state: RunState,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Child {
    pub agent: String,
    pub kind: ChildKind,
    /// The first turn of the child.
    pub turn_id: TurnId,
    /// What to create it from, until its journal is known to have begun.
    pub unconfirmed: Option<Box<(RunSpec, String)>>,
    /// The parent's turn that a spawn belongs to.
    pub for_turn: Option<TurnId>,
    /// The key that opened it, for an open from outside.
    #[serde(default)]
    pub key: Option<KeyUse>,
    pub state: Option<RunState>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    pub digest: String,
    pub at: Timestamp,
    pub result: KeyResult,
}

/// What a command returned, as far as a repeat cannot derive it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum KeyResult {
    Turn { turn_id: TurnId, queued: bool },
    Cancel { turn_id: Option<TurnId>, stopped: bool },
    Close { initiated: bool },
}

impl Run {
    /// Whether the run needs an owner although nobody calls.
    pub fn wakes(&self) -> bool {
        if self.state.is_final() {
            return self.live_children().next().is_some();
        }
        self.current.is_some() || self.closing.is_some() || self.children.values().any(Child::needs_parent)
    }

    /// The run has ended and nothing lives below it.
    pub fn is_down(&self) -> bool {
        self.state.is_final() && self.live_children().next().is_none()
    }

    pub fn live_children(&self) -> impl Iterator<Item = (&RunId, &Child)> {
        self.children.iter().filter(|(_, child)| child.state.is_none())
    }

    pub fn live_residents(&self) -> usize {
        self.live_children().filter(|(_, child)| child.kind == ChildKind::Resident).count()
    }

    /// When something is to happen by itself.
    pub fn due_at(&self) -> Option<Timestamp> {
        if self.state.is_final() || self.closing.is_some() {
            return None;
        }
        match &self.current {
            Some(turn) => self.turn_deadline(turn),
            None => Some(self.idle_deadline()),
        }
    }

    pub(crate) fn idle_deadline(&self) -> Timestamp {
        self.last_used_at.plus(std::time::Duration::from_millis(self.spec.idle_ttl_ms))
    }

    pub(crate) fn turn_deadline(&self, turn: &Turn) -> Option<Timestamp> {
        let limit = self.spec.turn_timeout_ms?;
        Some(turn.started_at.plus(std::time::Duration::from_millis(limit)))
    }

    /// Whether enough has happened since the last snapshot for the next one. While a turn runs a
    /// snapshot holds all its steps, so it is put off for longer; and it holds all keys, so the more of
    /// them there are the rarer it is, and each event pays for a few of them at the most.
    pub fn wants_snapshot(&self) -> bool {
        let since = self.seq.0.saturating_sub(self.snapshot_seq.0);
        let pause = if self.current.is_some() { SNAPSHOT_IN_TURN } else { SNAPSHOT_PARKED };
        since >= pause.max(self.keys.len() as u64 / KEYS_PER_EVENT)
    }

    pub fn last_ended(&self) -> Option<&EndedTurn> {
        self.ended.back()
    }

    pub fn current_turn(&self, turn_id: &TurnId) -> Option<&Turn> {
        self.current.as_deref().filter(|turn| &turn.turn_id == turn_id)
    }
}

impl Child {
    fn needs_parent(&self) -> bool {
        self.state.is_none() && (self.unconfirmed.is_some() || self.kind == ChildKind::Spawn)
    }
}

impl Turn {
    /// The step whose calls are in flight, if any is.
    pub fn open_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.steps.last().into_iter().flat_map(|step| &step.calls).filter(|c| c.result.is_none()).map(|c| &c.call)
    }

    /// The text of the last step that had any.
    pub fn text_so_far(&self) -> &str {
        self.steps.iter().rev().map(|step| step.text.as_str()).find(|text| !text.is_empty()).unwrap_or_default()
    }
}
