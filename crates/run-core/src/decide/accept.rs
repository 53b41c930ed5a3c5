//! An input: it starts a turn, waits for one, or is steered into the running one.

use hearth_types::{InputMode, limits};

use super::{Accept, Decision, Reply, recorded, refuse_if_over};
use crate::{Effect, Event, KeyResult, Refusal, Run};

pub(super) fn decide(run: &Run, accept: &Accept) -> Result<Decision, Refusal> {
    if let Some(record) = recorded(run, accept.key.as_ref())? {
        let KeyResult::Turn { turn_id, queued } = &record.result else { return Err(Refusal::KeyConflict) };
        return Ok(Decision::nothing(Reply::Accepted { turn_id: turn_id.clone(), queued: *queued, replayed: true }));
    }
    if let Some(queued) = known(run, accept) {
        return Ok(Decision::nothing(Reply::Accepted { turn_id: accept.turn_id.clone(), queued, replayed: false }));
    }
    refuse_if_over(run)?;
    if run.said_bytes >= limits::MAX_SAID_BYTES {
        return Err(Refusal::TooMuchSaid);
    }
    let turn_id = accept.turn_id.clone();
    let accepted = Event::TurnAccepted {
        turn_id: turn_id.clone(),
        prompt: accept.prompt.clone(),
        key: accept.key.clone(),
        trace: accept.trace.clone(),
    };
    let reply = |turn_id, queued| Reply::Accepted { turn_id, queued, replayed: false };
    match (&run.current, accept.mode) {
        (None, _) => Ok(Decision::of(
            vec![accepted, Event::TurnStarted { turn_id: turn_id.clone() }],
            vec![Effect::StartTurn { turn_id: turn_id.clone() }],
            reply(turn_id, false),
        )),
        (Some(turn), InputMode::Steer) => {
            if turn.steered.len() >= limits::MAX_QUEUED_TURNS {
                return Err(Refusal::QueueFull);
            }
            let steered =
                Event::Steered { turn_id: turn.turn_id.clone(), text: accept.prompt.clone(), key: accept.key.clone() };
            Ok(Decision::of(vec![steered], Vec::new(), reply(turn.turn_id.clone(), false)))
        }
        (Some(_), InputMode::Queue) => {
            if run.queue.len() >= limits::MAX_QUEUED_TURNS {
                return Err(Refusal::QueueFull);
            }
            Ok(Decision::of(vec![accepted], Vec::new(), reply(turn_id, true)))
        }
    }
}

/// Whether this very command was taken before and its answer lost: its turn is there. An input that
/// is steered makes no turn, so its sender gives it a key.
fn known(run: &Run, accept: &Accept) -> Option<bool> {
    if run.queue.iter().any(|queued| queued.turn_id == accept.turn_id) {
        return Some(true);
    }
    let ended = run.ended.iter().any(|turn| turn.turn_id == accept.turn_id);
    (ended || run.current_turn(&accept.turn_id).is_some()).then_some(false)
}
