//! Everything that a run can do to the world. Performed by the shell, after the events that led to
//! it stand in the journal; performed again after a crash, so each is idempotent.

use hearth_types::{RunId, ToolCall, TurnId};

use crate::{ChildKind, Run};

#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Start the turn's driver, or go on with it from the last journaled step.
    StartTurn { turn_id: TurnId },
    /// Stop the turn's driver; the abandoned calls' own work is to be ended too.
    StopTurn { turn_id: TurnId, abandoned: Vec<ToolCall> },
    /// Begin the child's journal, then confirm it.
    CreateChild { child_run_id: RunId },
    /// Close the child with its subtree, then report its end.
    CloseChild { child_run_id: RunId },
    /// All children are being closed: once they are, and the tree's sandboxes too where this run is
    /// its root, settle.
    Settle,
    /// The run is final and its subtree down: tell the parent, and end the tree's sandboxes where this
    /// run is its root.
    AnnounceEnd,
}

/// What is under way in a run that was just activated.
pub fn pending_effects(run: &Run) -> Vec<Effect> {
    #[cfg(feature = "breaks")]
    if let Some(broken) = crate::breaks::get() {
        return (broken.pending)(run);
    }
    under_way(run)
}

pub(crate) fn under_way(run: &Run) -> Vec<Effect> {
    let close = |id: &RunId| Effect::CloseChild { child_run_id: id.clone() };
    if run.state.is_final() {
        let effects: Vec<Effect> = run.live_children().map(|(id, _)| close(id)).collect();
        return if effects.is_empty() { vec![Effect::AnnounceEnd] } else { effects };
    }
    if run.closing.is_some() {
        let mut effects: Vec<Effect> = run.live_children().map(|(id, _)| close(id)).collect();
        effects.push(Effect::Settle);
        return effects;
    }
    let current = run.current.as_ref().map(|turn| &turn.turn_id);
    let mut effects = Vec::new();
    for (id, child) in run.live_children() {
        if child.kind == ChildKind::Spawn && child.for_turn.as_ref() != current {
            effects.push(close(id));
        } else if child.unconfirmed.is_some() {
            effects.push(Effect::CreateChild { child_run_id: id.clone() });
        }
    }
    effects.extend(current.map(|turn_id| Effect::StartTurn { turn_id: turn_id.clone() }));
    effects
}
