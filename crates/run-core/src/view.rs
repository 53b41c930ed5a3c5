//! What a run shows: envelopes and the index row.

use std::collections::BTreeMap;

use hearth_types::{Envelope, Epoch, ReplicaId, RunState, SandboxId, Timestamp, TurnError, TurnId, TurnOutcome, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{EndedTurn, Run};

/// Bytes of the last output that an index row holds.
const HEAD_OUTPUT_BYTES: usize = 1024;

/// What an index row holds besides its searched columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadBody {
    pub epoch: Epoch,
    pub owner: Option<ReplicaId>,
    pub turns: u64,
    pub usage: Usage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    pub idle_ttl_ms: u64,
    pub last_used_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_session: Option<SandboxId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_turn: Option<HeadTurn>,
}

impl HeadBody {
    /// A row that says nothing, for one that cannot be read: its run is then taken up.
    pub fn unowned() -> Self {
        Self {
            epoch: Epoch(0),
            owner: None,
            turns: 0,
            usage: Usage::default(),
            user_id: None,
            metadata: BTreeMap::new(),
            trace_id: None,
            idle_ttl_ms: 0,
            last_used_at: Timestamp::default(),
            sandbox_session: None,
            last_turn: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HeadTurn {
    pub turn_id: TurnId,
    pub outcome: TurnOutcome,
    /// The first bytes of it.
    pub output: String,
    /// Whether `output` is less than all of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
}

impl Run {
    /// The envelope of a turn, or `None` when the state no longer holds that turn: it is in the
    /// journal. `live` is the text of the step that runs now.
    pub fn envelope(&self, turn_id: &TurnId, live: &str) -> Option<Envelope> {
        if self.current_turn(turn_id).is_some() || self.queue.iter().any(|queued| &queued.turn_id == turn_id) {
            let current = self.current_turn(turn_id);
            let finished = current.map(|turn| turn.text_so_far()).unwrap_or_default();
            let output = match &self.closing {
                Some(partial) if current.is_some() => partial.as_str(),
                _ if current.is_some() && !live.is_empty() => live,
                _ => finished,
            };
            return Some(self.bare_envelope(RunState::Running, turn_id, None, output.to_owned()));
        }
        if let Some(turn) = self.ended.iter().find(|turn| &turn.turn_id == turn_id) {
            return self.ended_envelope(turn);
        }
        None
    }

    /// The envelope of an ended turn whose output is known.
    pub fn ended_envelope(&self, turn: &EndedTurn) -> Option<Envelope> {
        let output = turn.output.clone()?;
        let state = if self.state.is_final() { self.state } else { turn.state };
        let mut envelope = self.bare_envelope(state, &turn.turn_id, Some(turn.outcome), output);
        envelope.truncated = turn.truncated;
        envelope.error.clone_from(&turn.error);
        envelope.blocker.clone_from(&turn.blocker);
        Some(envelope)
    }

    /// The envelope of a prompt whose turn never started because the run ended first.
    pub fn never_started(&self, turn_id: &TurnId) -> Envelope {
        self.bare_envelope(self.state, turn_id, Some(TurnOutcome::Cancelled), String::new())
    }

    /// The envelope of a run that has no turn at all.
    pub fn turnless_envelope(&self) -> Envelope {
        Envelope {
            run_id: self.spec.run_id.clone(),
            child_run_id: self.spec.interactive.then(|| self.spec.run_id.clone()),
            state: self.state,
            turn_id: None,
            outcome: None,
            output: String::new(),
            truncated: false,
            error: None,
            blocker: None,
        }
    }

    fn bare_envelope(
        &self,
        state: RunState,
        turn_id: &TurnId,
        outcome: Option<TurnOutcome>,
        output: String,
    ) -> Envelope {
        Envelope { state, turn_id: Some(turn_id.clone()), outcome, output, ..self.turnless_envelope() }
    }

    pub fn head_body(&self) -> HeadBody {
        HeadBody {
            epoch: self.epoch,
            owner: self.owner.clone(),
            turns: self.turns,
            usage: self.usage,
            user_id: self.spec.user_id.clone(),
            metadata: self.spec.metadata.clone(),
            trace_id: self.spec.trace.as_ref().map(|trace| trace.trace_id().to_owned()),
            idle_ttl_ms: self.spec.idle_ttl_ms,
            last_used_at: self.last_used_at,
            sandbox_session: self.sandbox_session.clone(),
            last_turn: self.last_ended().map(head_turn),
        }
    }
}

fn head_turn(turn: &EndedTurn) -> HeadTurn {
    let whole = turn.output.as_deref().unwrap_or_default();
    let cut = whole.floor_char_boundary(HEAD_OUTPUT_BYTES.min(whole.len()));
    HeadTurn {
        turn_id: turn.turn_id.clone(),
        outcome: turn.outcome,
        output: whole[..cut].to_owned(),
        truncated: turn.truncated || cut < whole.len(),
        error: turn.error.clone(),
        started_at: turn.started_at,
        ended_at: turn.ended_at,
    }
}
