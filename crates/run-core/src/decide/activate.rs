//! Taking a run over, and giving it up in good order.

use hearth_types::{FaultCode, ReplicaId, TurnError, limits};

use super::turn_end::{TurnEnd, end_turn};
use super::{Decision, Reply};
use crate::{Event, Run};

pub(super) fn decide(run: &Run, replica: &ReplicaId) -> Decision {
    let mut events = vec![Event::Activated { epoch: run.epoch.next(), replica: replica.clone() }];
    let mut effects = Vec::new();
    if let Some(turn) = run.current.as_deref()
        && run.closing.is_none()
        && run.fruitless_activations >= limits::MAX_FRUITLESS_ACTIVATIONS
    {
        let error = TurnError {
            code: FaultCode::Internal,
            message: format!(
                "{} activations in a row ended without progress on this turn; it may be what ends them",
                run.fruitless_activations
            ),
        };
        end_turn(run, turn, TurnEnd::failed(Some(turn.text_so_far().to_owned()), error), &mut events, &mut effects);
    }
    Decision::of(events, effects, Reply::Done)
}

pub(super) fn release(run: &Run) -> Decision {
    // A parked run needs no owner: only a turn in flight is handed over, and only then does the
    // count of fruitless activations matter.
    if run.current.is_some() && !run.state.is_final() {
        return Decision::of(vec![Event::Released], Vec::new(), Reply::Done);
    }
    Decision::nothing(Reply::Done)
}
