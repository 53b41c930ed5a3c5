//! Close: two events, so that nothing new starts while the subtree goes down.

use hearth_types::{RunState, TurnOutcome};

use super::cancel::partial_output;
use super::{Close, Decision, Reply, recorded};
use crate::{Effect, Event, KeyResult, Refusal, Run};

pub(super) fn decide(run: &Run, close: &Close) -> Result<Decision, Refusal> {
    if let Some(record) = recorded(run, close.key.as_ref())? {
        let KeyResult::Close { initiated } = record.result else { return Err(Refusal::KeyConflict) };
        return Ok(Decision::nothing(Reply::Closing { initiated, replayed: true }));
    }
    let initiated = !run.state.is_final() && run.closing.is_none();
    let mut events = Vec::new();
    if let Some(key) = close.key.clone().filter(|_| !run.state.is_final()) {
        events.push(Event::KeyUsed { key, result: KeyResult::Close { initiated } });
    }
    let reply = Reply::Closing { initiated, replayed: false };
    if !initiated {
        return Ok(Decision::of(events, Vec::new(), reply));
    }
    let (closing, effects) = begin(run, close.reason.clone(), &close.partial);
    events.push(closing);
    Ok(Decision::of(events, effects, reply))
}

/// The event that begins a close, and what follows from it.
pub(super) fn begin(run: &Run, reason: Option<String>, partial: &str) -> (Event, Vec<Effect>) {
    let current = run.current.as_deref();
    let partial = partial_output(partial, current.map(|turn| turn.text_so_far()).unwrap_or_default());
    let mut effects = Vec::new();
    if let Some(turn) = current {
        let abandoned = turn.open_calls().cloned().collect();
        effects.push(Effect::StopTurn { turn_id: turn.turn_id.clone(), abandoned });
    }
    effects.extend(run.live_children().map(|(id, _)| Effect::CloseChild { child_run_id: id.clone() }));
    effects.push(Effect::Settle);
    (Event::Closing { reason, partial }, effects)
}

/// The subtree is down: the run ends.
pub(super) fn settle(run: &Run) -> Decision {
    let Some(partial) = run.closing.clone().filter(|_| !run.state.is_final()) else {
        return Decision::nothing(Reply::Done);
    };
    if run.live_children().next().is_some() {
        return Decision::nothing(Reply::Done);
    }
    let events = match run.current.as_deref() {
        None => vec![Event::Closed],
        Some(turn) => {
            vec![
                Event::TurnCancelled { turn_id: turn.turn_id.clone(), reason: Some("the run was closed".to_owned()) },
                Event::TurnEnded {
                    turn_id: turn.turn_id.clone(),
                    outcome: TurnOutcome::Cancelled,
                    output: Some(partial),
                    truncated: false,
                    error: None,
                    blocker: None,
                    state: RunState::Closed,
                },
            ]
        }
    };
    Decision::of(events, vec![Effect::AnnounceEnd], Reply::Done)
}
