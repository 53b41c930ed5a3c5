//! The end of a turn, however it comes, and what the run does next.

use hearth_types::{Blocker, RunState, TurnError, TurnId, TurnOutcome, limits};

use crate::{ChildKind, Effect, Event, Run, Turn};

pub(super) struct TurnEnd {
    pub outcome: TurnOutcome,
    /// `None`: the text of the step that ends the turn.
    pub output: Option<String>,
    pub truncated: bool,
    pub error: Option<TurnError>,
    pub blocker: Option<Blocker>,
}

impl TurnEnd {
    pub fn new(outcome: TurnOutcome, output: Option<String>) -> Self {
        Self { outcome, output, truncated: false, error: None, blocker: None }
    }

    pub fn failed(output: Option<String>, error: TurnError) -> Self {
        Self { error: Some(error), ..Self::new(TurnOutcome::Failed, output) }
    }
}

/// Adds the end of the current turn to the events, the start of the next one if an input waits, and
/// what follows.
pub(super) fn end_turn(run: &Run, turn: &Turn, end: TurnEnd, events: &mut Vec<Event>, effects: &mut Vec<Effect>) {
    let next = next_input(run, turn, &end);
    let state = if next.is_some() { RunState::AwaitingInput } else { state_after(run, end.outcome) };
    let (output, cut) = match end.output.map(bounded) {
        Some((output, cut)) => (Some(output), cut),
        None => (None, false),
    };
    events.push(Event::TurnEnded {
        turn_id: turn.turn_id.clone(),
        outcome: end.outcome,
        output,
        truncated: end.truncated || cut,
        error: end.error,
        blocker: end.blocker,
        state,
    });
    effects.push(Effect::StopTurn { turn_id: turn.turn_id.clone(), abandoned: turn.open_calls().cloned().collect() });
    for (id, child) in run.live_children() {
        if state.is_final() || child.kind == ChildKind::Spawn {
            effects.push(Effect::CloseChild { child_run_id: id.clone() });
        }
    }
    // An end is announced once the subtree is down: whoever closes this run then knows that of all of it.
    if state.is_final() && run.live_children().next().is_none() {
        effects.push(Effect::AnnounceEnd);
    }
    match next {
        Some(NextInput::Queued(turn_id)) => {
            events.push(Event::TurnStarted { turn_id: turn_id.clone() });
            effects.push(Effect::StartTurn { turn_id });
        }
        Some(NextInput::Steered { turn_id, prompt }) => {
            events.push(Event::TurnAccepted { turn_id: turn_id.clone(), prompt, key: None, trace: turn.trace.clone() });
            events.push(Event::TurnStarted { turn_id: turn_id.clone() });
            effects.push(Effect::StartTurn { turn_id });
        }
        None => {}
    }
}

enum NextInput {
    Queued(TurnId),
    /// Input that was steered into the turn but came after its last step: it was accepted, so it is
    /// not dropped but becomes a turn.
    Steered {
        turn_id: TurnId,
        prompt: String,
    },
}

fn next_input(run: &Run, turn: &Turn, end: &TurnEnd) -> Option<NextInput> {
    let goes_on = run.spec.interactive || matches!(end.outcome, TurnOutcome::Finished | TurnOutcome::Cancelled);
    if !goes_on || run.closing.is_some() {
        return None;
    }
    if !turn.steered.is_empty() && end.outcome == TurnOutcome::Finished {
        let turn_id = TurnId::derive(&["steered", run.spec.run_id.as_str(), turn.turn_id.as_str()]);
        return Some(NextInput::Steered { turn_id, prompt: turn.steered.join("\n\n") });
    }
    run.queue.front().map(|queued| NextInput::Queued(queued.turn_id.clone()))
}

/// A cancelled turn never ends its run: a run that is not interactive waits for input then, until
/// its idle time is over.
fn state_after(run: &Run, outcome: TurnOutcome) -> RunState {
    if run.closing.is_some() {
        return RunState::Closed;
    }
    match outcome {
        _ if run.spec.interactive => RunState::AwaitingInput,
        TurnOutcome::Finished => RunState::Completed,
        TurnOutcome::Cancelled => RunState::AwaitingInput,
        TurnOutcome::Blocked | TurnOutcome::Rejected | TurnOutcome::Failed => RunState::Failed,
    }
}

/// Output as it is kept, and whether that is less than there was.
pub(super) fn bounded(mut output: String) -> (String, bool) {
    if output.len() <= limits::MAX_OUTPUT_BYTES {
        return (output, false);
    }
    output.truncate(output.floor_char_boundary(limits::MAX_OUTPUT_BYTES));
    (output, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_past_its_bound_is_cut_at_a_character_and_that_is_said() {
        let whole = "x".repeat(limits::MAX_OUTPUT_BYTES);
        assert_eq!(bounded(whole.clone()), (whole, false));
        let (cut, truncated) = bounded("é".repeat(limits::MAX_OUTPUT_BYTES / 2) + "é");
        assert!(truncated && cut.len() == limits::MAX_OUTPUT_BYTES && cut.ends_with('é'));
    }
}
