//! Time: the idle time of a parked run, the longest time of a turn.

use hearth_types::{FaultCode, Timestamp, TurnError};

use super::cancel::partial_output;
use super::turn_end::{TurnEnd, end_turn};
use super::{Decision, Reply, close};
use crate::Run;

pub(super) fn decide(run: &Run, partial: &str, now: Timestamp) -> Decision {
    if run.due_at().is_none_or(|due| now < due) {
        return Decision::nothing(Reply::Done);
    }
    let (mut events, mut effects) = (Vec::new(), Vec::new());
    match run.current.as_deref() {
        Some(turn) => {
            let error = TurnError {
                code: FaultCode::DeadlineExceeded,
                message: format!(
                    "the turn took longer than run_timeout_seconds allows ({} s); send again with a smaller task",
                    run.spec.turn_timeout_ms.unwrap_or_default() / 1000
                ),
            };
            let output = partial_output(partial, turn.text_so_far());
            end_turn(run, turn, TurnEnd::failed(Some(output), error), &mut events, &mut effects);
        }
        None => {
            let (closing, follow) = close::begin(run, Some("idle".to_owned()), "");
            events.push(closing);
            effects = follow;
        }
    }
    Decision::of(events, effects, Reply::Done)
}
