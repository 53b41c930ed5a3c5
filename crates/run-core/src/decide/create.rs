//! The first frame of a run.

use hearth_types::{Epoch, ReplicaId, TurnId};

use crate::{Event, RunSpec};

/// The events that begin a run with its first turn. Appended to an empty journal, so that of two
/// creations of one id only one stands.
pub fn create(spec: RunSpec, turn_id: TurnId, prompt: String, replica: ReplicaId) -> Vec<Event> {
    let trace = spec.trace.clone();
    vec![
        Event::Created { spec: Box::new(spec) },
        Event::Activated { epoch: Epoch(1), replica },
        Event::TurnAccepted { turn_id: turn_id.clone(), prompt, key: None, trace },
        Event::TurnStarted { turn_id },
    ]
}
