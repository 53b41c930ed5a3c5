//! Children: the parent decides and journals before a child exists, and hears of its end.

use hearth_types::{RunId, RunState, limits};

use super::{ChildEnd, Decision, OpenChild, Reply, refuse_if_over};
use crate::{ChildKind, Effect, Event, Refusal, Run};

pub(super) fn open(run: &Run, open: &OpenChild) -> Result<Decision, Refusal> {
    if let Some(child) = run.children.get(&open.spec.run_id) {
        // The id comes from the key: the same id with another body is another command under that key.
        if child.key != open.spec.key {
            return Err(Refusal::KeyConflict);
        }
        return Ok(Decision::nothing(Reply::ChildOpened { turn_id: child.turn_id.clone(), existed: true }));
    }
    refuse_if_over(run)?;
    if open.spec.depth > limits::MAX_DEPTH {
        return Err(Refusal::TooDeep);
    }
    if let Some(turn_id) = &open.for_turn
        && run.current_turn(turn_id).is_none()
    {
        return Err(Refusal::StaleTurn);
    }
    match open.kind {
        ChildKind::Resident => {
            let limit = run.spec.max_residents;
            if run.live_residents() >= limit as usize {
                return Err(Refusal::ResidentLimit { limit });
            }
        }
        ChildKind::Spawn => {
            let limit = limits::MAX_PARALLEL_SPAWNS;
            if run.live_children().filter(|(_, child)| child.kind == ChildKind::Spawn).count() >= limit {
                return Err(Refusal::TooManySpawns { limit });
            }
        }
    }
    let opened = Event::ChildOpened {
        spec: Box::new(open.spec.clone()),
        kind: open.kind,
        turn_id: open.turn_id.clone(),
        prompt: open.prompt.clone(),
    };
    // No effect: whoever carries this out creates the child before it answers, and a later activation
    // finds it unconfirmed.
    Ok(Decision::of(vec![opened], Vec::new(), Reply::ChildOpened { turn_id: open.turn_id.clone(), existed: false }))
}

pub(super) fn confirmed(run: &Run, child_run_id: &RunId) -> Decision {
    match run.children.get(child_run_id) {
        Some(child) if child.unconfirmed.is_some() => {
            let event = Event::ChildConfirmed { child_run_id: child_run_id.clone() };
            Decision::of(vec![event], Vec::new(), Reply::Done)
        }
        _ => Decision::nothing(Reply::Done),
    }
}

pub(super) fn refused(run: &Run, child_run_id: &RunId) -> Decision {
    match run.children.get(child_run_id) {
        Some(child) if child.unconfirmed.is_some() => {
            let event = Event::ChildRefused { child_run_id: child_run_id.clone() };
            Decision::of(vec![event], once_gone(run, child_run_id), Reply::Done)
        }
        _ => Decision::nothing(Reply::Done),
    }
}

pub(super) fn ended(run: &Run, end: &ChildEnd) -> Decision {
    let live = run.children.get(&end.child_run_id).is_some_and(|child| child.state.is_none());
    if !live || !end.state.is_final() {
        return Decision::nothing(Reply::Done);
    }
    let closed_here = run.closing.is_some() || run.state == RunState::Closed;
    let by_this_close = if closed_here { u64::from(end.state == RunState::Closed) + end.closed_descendants } else { 0 };
    let event = Event::ChildEnded {
        child_run_id: end.child_run_id.clone(),
        state: end.state,
        closed_descendants: by_this_close,
    };
    Decision::of(vec![event], once_gone(run, &end.child_run_id), Reply::Done)
}

/// What follows once this child lives no more: a run that has ended announces that with its last child.
fn once_gone(run: &Run, child_run_id: &RunId) -> Vec<Effect> {
    let last = run.live_children().all(|(id, _)| id == child_run_id);
    if last && run.state.is_final() { vec![Effect::AnnounceEnd] } else { Vec::new() }
}
