//! Deliberate breaks of the state machine, for the tests that show that each would be noticed.
//!
//! Production compiles none of this: it is there for this crate's tests and with the feature `breaks`,
//! and even then nothing is broken until a test breaks it, on its own thread only.

use std::sync::Arc;

use hearth_types::{RunState, Timestamp, TurnOutcome};

use crate::decide::sound;
use crate::effects::under_way;
use crate::{Command, Decision, Effect, Event, Refusal, Reply, Run};

type Decided = Result<Decision, Refusal>;

/// One way in which the state machine may be wrong.
#[derive(Debug, Clone, Copy)]
pub struct Break {
    pub name: &'static str,
    pub decide: fn(&Run, &Command, Timestamp) -> Decided,
    pub pending: fn(&Run) -> Vec<Effect>,
}

const fn decision(name: &'static str, decide: fn(&Run, &Command, Timestamp) -> Decided) -> Break {
    Break { name, decide, pending: under_way }
}

const fn take_over(name: &'static str, pending: fn(&Run) -> Vec<Effect>) -> Break {
    Break { name, decide: sound, pending }
}

pub const BREAKS: [Break; 17] = [
    decision("skip the key window", skip_the_key_window),
    decision("forget the key", forget_the_key),
    decision("answer another body", answer_another_body),
    decision("reuse the epoch", reuse_the_epoch),
    decision("settle early", settle_early),
    decision("forget a child at the close", forget_a_child),
    decision("forget the children at the end", forget_the_children),
    decision("open while closing", open_while_closing),
    decision("drop the queue", drop_the_queue),
    decision("queue without a bound", queue_without_a_bound),
    decision("open past the cap", open_past_the_cap),
    decision("cancel a turn that has ended", cancel_an_ended_turn),
    decision("take a report for another turn", take_a_stale_report),
    decision("take a result twice", take_a_result_twice),
    decision("end too early", end_too_early),
    take_over("leave the turn at a take-over", |run| without(run, |e| matches!(e, Effect::StartTurn { .. }))),
    take_over("leave a close at a take-over", |run| without(run, |e| matches!(e, Effect::Settle))),
];

#[cfg(feature = "breaks")]
mod active {
    use std::cell::Cell;

    use super::Break;

    thread_local! {
        static ACTIVE: Cell<Option<Break>> = const { Cell::new(None) };
    }

    /// Breaks the state machine on this thread, or mends it.
    pub fn set(broken: Option<Break>) {
        ACTIVE.set(broken);
    }

    pub(crate) fn get() -> Option<Break> {
        ACTIVE.get()
    }
}

#[cfg(feature = "breaks")]
pub(crate) use active::get;
#[cfg(feature = "breaks")]
pub use active::set;

/// Decides as if the state were another.
fn on(run: &Run, command: &Command, now: Timestamp, change: impl FnOnce(&mut Run)) -> Decided {
    let mut changed = run.clone();
    change(&mut changed);
    sound(&changed, command, now)
}

fn skip_the_key_window(run: &Run, command: &Command, now: Timestamp) -> Decided {
    on(run, command, now, |run| run.keys.clear())
}

fn forget_the_key(run: &Run, command: &Command, now: Timestamp) -> Decided {
    let mut decision = sound(run, command, now)?;
    for event in &mut decision.events {
        if let Event::TurnAccepted { key, .. } | Event::Steered { key, .. } = event {
            *key = None;
        }
    }
    decision.events.retain(|event| !matches!(event, Event::KeyUsed { .. }));
    Ok(decision)
}

fn answer_another_body(run: &Run, command: &Command, now: Timestamp) -> Decided {
    let key = match command {
        Command::Accept(accept) => accept.key.as_ref(),
        Command::Cancel(cancel) => cancel.key.as_ref(),
        Command::Close(close) => close.key.as_ref(),
        _ => None,
    };
    on(run, command, now, |run| {
        if let Some(key) = key
            && let Some(record) = run.keys.get_mut(&key.id)
        {
            record.digest.clone_from(&key.digest);
        }
    })
}

fn reuse_the_epoch(run: &Run, command: &Command, now: Timestamp) -> Decided {
    let mut decision = sound(run, command, now)?;
    for event in &mut decision.events {
        if let Event::Activated { epoch, .. } = event {
            *epoch = run.epoch;
        }
    }
    Ok(decision)
}

/// A close is over as soon as it has begun, whatever lives below.
fn settle_early(run: &Run, command: &Command, now: Timestamp) -> Decided {
    let mut decision = sound(run, command, now)?;
    if matches!(command, Command::Close(_)) && decision.effects.contains(&Effect::Settle) {
        let mut childless = run.clone();
        childless.closing = Some(String::new());
        childless.children.clear();
        let settled = sound(&childless, &Command::Settle, now)?;
        decision.events.extend(settled.events);
        decision.effects.extend(settled.effects);
    }
    Ok(decision)
}

/// The last child is not closed, and nobody waits for it.
fn forget_a_child(run: &Run, command: &Command, now: Timestamp) -> Decided {
    let last = run.live_children().map(|(id, _)| id.clone()).last();
    let mut decision = on(run, command, now, |run| {
        if let (Command::Settle, Some(last)) = (command, &last) {
            run.children.remove(last);
        }
    })?;
    if matches!(command, Command::Close(_)) {
        decision.effects.retain(
            |effect| !matches!(effect, Effect::CloseChild { child_run_id } if Some(child_run_id) == last.as_ref()),
        );
    }
    Ok(decision)
}

fn forget_the_children(run: &Run, command: &Command, now: Timestamp) -> Decided {
    let mut decision = sound(run, command, now)?;
    let ends = |event: &Event| matches!(event, Event::TurnEnded { state, .. } if state.is_final());
    if decision.events.iter().any(ends) {
        decision.effects.retain(|effect| !matches!(effect, Effect::CloseChild { .. }));
    }
    Ok(decision)
}

fn open_while_closing(run: &Run, command: &Command, now: Timestamp) -> Decided {
    on(run, command, now, |run| {
        if matches!(command, Command::OpenChild(_) | Command::Accept(_) | Command::StepFinished(_)) {
            run.closing = None;
        }
    })
}

fn drop_the_queue(run: &Run, command: &Command, now: Timestamp) -> Decided {
    on(run, command, now, |run| {
        if !matches!(command, Command::Accept(_)) {
            run.queue.clear();
        }
    })
}

fn queue_without_a_bound(run: &Run, command: &Command, now: Timestamp) -> Decided {
    on(run, command, now, |run| {
        if matches!(command, Command::Accept(_)) {
            run.queue.clear();
        }
    })
}

fn open_past_the_cap(run: &Run, command: &Command, now: Timestamp) -> Decided {
    on(run, command, now, |run| Arc::make_mut(&mut run.spec).max_residents += 1)
}

fn cancel_an_ended_turn(run: &Run, command: &Command, now: Timestamp) -> Decided {
    let decision = sound(run, command, now)?;
    let (Command::Cancel(cancel), Reply::Cancelled { stopped: false, replayed: false, .. }) =
        (command, &decision.reply)
    else {
        return Ok(decision);
    };
    let Some(turn) = run.last_ended().filter(|_| !run.state.is_final()) else { return Ok(decision) };
    let turn_id = turn.turn_id.clone();
    let ended = Event::TurnEnded {
        turn_id: turn_id.clone(),
        outcome: TurnOutcome::Cancelled,
        output: turn.output.clone(),
        truncated: false,
        error: None,
        blocker: None,
        state: RunState::AwaitingInput,
    };
    let reason = cancel.reason.clone();
    Ok(Decision {
        events: vec![Event::TurnCancelled { turn_id: turn_id.clone(), reason }, ended],
        effects: Vec::new(),
        reply: Reply::Cancelled { turn_id: Some(turn_id), stopped: true, replayed: false },
    })
}

fn take_a_stale_report(run: &Run, command: &Command, now: Timestamp) -> Decided {
    let mut command = command.clone();
    if let (Command::StepFinished(report), Some(turn)) = (&mut command, &run.current) {
        report.turn_id = turn.turn_id.clone();
    }
    sound(run, &command, now)
}

fn take_a_result_twice(run: &Run, command: &Command, now: Timestamp) -> Decided {
    on(run, command, now, |run| {
        let step = run.current.as_mut().and_then(|turn| turn.steps.last_mut());
        for call in step.into_iter().flat_map(|step| &mut step.calls) {
            if let Command::ToolFinished(report) = command
                && call.call.id == report.call_id
            {
                call.result = None;
            }
        }
    })
}

fn end_too_early(run: &Run, command: &Command, now: Timestamp) -> Decided {
    on(run, command, now, |run| {
        if matches!(command, Command::Tick { .. }) {
            let spec = Arc::make_mut(&mut run.spec);
            spec.idle_ttl_ms /= 16;
            spec.turn_timeout_ms = spec.turn_timeout_ms.map(|limit| limit / 16);
        }
    })
}

fn without(run: &Run, left_out: impl Fn(&Effect) -> bool) -> Vec<Effect> {
    let mut effects = under_way(run);
    effects.retain(|effect| !left_out(effect));
    effects
}
