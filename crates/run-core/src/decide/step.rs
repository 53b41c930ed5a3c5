//! What the turn's driver reports: model steps, tool results, guardrails.

use hearth_types::{Blocker, TurnId, TurnOutcome, limits};

use super::turn_end::{TurnEnd, bounded, end_turn};
use super::{Decision, Reply, StepReport, ToolReport};
use crate::{Effect, Event, Refusal, Run, Turn};

fn current<'r>(run: &'r Run, turn_id: &TurnId) -> Result<&'r Turn, Refusal> {
    run.current_turn(turn_id).filter(|_| run.closing.is_none()).ok_or(Refusal::StaleTurn)
}

pub(super) fn finished(run: &Run, report: &StepReport) -> Result<Decision, Refusal> {
    let turn = current(run, &report.turn_id)?;
    let turn_id = &report.turn_id;
    let (mut events, mut effects) = (Vec::new(), Vec::new());
    if !report.thinking.is_empty() {
        events.push(Event::Thinking { turn_id: turn_id.clone(), text: report.thinking.clone() });
    }
    let ends = report.calls.is_empty();
    let (text, cut) = bounded(report.text.clone());
    let has_text = !text.is_empty();
    if has_text {
        events.push(Event::Text { turn_id: turn_id.clone(), text });
    }
    for call in &report.calls {
        events.push(Event::ToolCalled { turn_id: turn_id.clone(), call: call.clone() });
    }
    if !report.usage.is_zero() {
        events.push(Event::UsageCounted { turn_id: turn_id.clone(), usage: report.usage });
    }
    let iterations = run.spec.agent.max_iterations.unwrap_or(limits::MAX_ITERATIONS) as usize;
    if let Some(error) = &report.error {
        let output = (!has_text).then(|| turn.text_so_far().to_owned());
        end_turn(run, turn, TurnEnd::failed(output, error.clone()), &mut events, &mut effects);
    } else if ends {
        let mut end = TurnEnd::new(TurnOutcome::Finished, None);
        end.truncated = report.truncated || cut;
        end_turn(run, turn, end, &mut events, &mut effects);
    } else if turn.steps.len() + 1 >= iterations {
        let blocker = Blocker {
            tripped: format!("max_iterations: the turn has made {iterations} model steps"),
            last_safe_state: format!("after step {iterations}; its tool calls were not started"),
            next_action: "send a smaller task, or raise max_iterations in the agent's definition".to_owned(),
        };
        events.retain(|event| !matches!(event, Event::ToolCalled { .. }));
        push_block(run, turn, blocker, &mut events, &mut effects);
    } else {
        events.push(Event::StepFinished { turn_id: turn_id.clone() });
    }
    Ok(Decision::of(events, effects, Reply::Done))
}

pub(super) fn tool_finished(run: &Run, report: &ToolReport) -> Result<Decision, Refusal> {
    let turn = current(run, &report.turn_id)?;
    if !turn.open_calls().any(|call| call.id == report.call_id) {
        return Err(Refusal::StaleTurn);
    }
    let event = Event::ToolFinished {
        turn_id: report.turn_id.clone(),
        call_id: report.call_id.clone(),
        output: report.output.clone(),
    };
    Ok(Decision::of(vec![event], Vec::new(), Reply::Done))
}

pub(super) fn blocked(run: &Run, turn_id: &TurnId, blocker: &Blocker) -> Result<Decision, Refusal> {
    let turn = current(run, turn_id)?;
    let (mut events, mut effects) = (Vec::new(), Vec::new());
    push_block(run, turn, blocker.clone(), &mut events, &mut effects);
    Ok(Decision::of(events, effects, Reply::Done))
}

fn push_block(run: &Run, turn: &Turn, blocker: Blocker, events: &mut Vec<Event>, effects: &mut Vec<Effect>) {
    events.push(Event::Blocked { turn_id: turn.turn_id.clone(), blocker: blocker.clone() });
    let mut end = TurnEnd::new(TurnOutcome::Blocked, Some(turn.text_so_far().to_owned()));
    end.blocker = Some(blocker);
    end_turn(run, turn, end, events, effects);
}
