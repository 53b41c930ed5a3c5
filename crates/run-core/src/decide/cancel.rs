//! Cancel: ends a turn, keeps the run. Cancel and completion race here, in the order of commands.

use hearth_types::TurnOutcome;

use super::turn_end::{TurnEnd, end_turn};
use super::{Cancel, Decision, Reply, recorded};
use crate::{Event, KeyResult, Refusal, Run};

pub(super) fn decide(run: &Run, cancel: &Cancel) -> Result<Decision, Refusal> {
    if let Some(record) = recorded(run, cancel.key.as_ref())? {
        let KeyResult::Cancel { turn_id, stopped } = &record.result else { return Err(Refusal::KeyConflict) };
        let reply = Reply::Cancelled { turn_id: turn_id.clone(), stopped: *stopped, replayed: true };
        return Ok(Decision::nothing(reply));
    }
    let named = cancel.turn_id.as_ref();
    let target = run.current.as_deref().filter(|turn| named.is_none_or(|id| id == &turn.turn_id));
    let target = target.filter(|_| !run.state.is_final() && run.closing.is_none());
    let turn_id =
        target.map(|turn| turn.turn_id.clone()).or_else(|| named.cloned()).or_else(|| run.newest_turn.clone());
    let stopped = target.is_some();
    let (mut events, mut effects) = (Vec::new(), Vec::new());
    if let Some(key) = cancel.key.clone().filter(|_| !run.state.is_final()) {
        let result = KeyResult::Cancel { turn_id: turn_id.clone(), stopped };
        events.push(Event::KeyUsed { key, result });
    }
    if let Some(turn) = target {
        events.push(Event::TurnCancelled { turn_id: turn.turn_id.clone(), reason: cancel.reason.clone() });
        let output = partial_output(&cancel.partial, turn.text_so_far());
        end_turn(run, turn, TurnEnd::new(TurnOutcome::Cancelled, Some(output)), &mut events, &mut effects);
    }
    Ok(Decision::of(events, effects, Reply::Cancelled { turn_id, stopped, replayed: false }))
}

/// What a turn that is cut off shows: the live text of its step, else the last finished text.
pub(super) fn partial_output(live: &str, finished: &str) -> String {
    if live.is_empty() { finished.to_owned() } else { live.to_owned() }
}
