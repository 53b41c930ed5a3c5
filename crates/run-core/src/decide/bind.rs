//! Which node the tree's shared sandbox session is on: decided once, by the root run. And what a run and its
//! descendants have to open, where somebody outside has said so.

use hearth_types::SandboxSpec;

use super::{Decision, Reply, refuse_if_over};
use crate::{Event, Refusal, Run};

/// Kinds of shared sessions that one tree may have: each is an (image, workspace) pair.
const MAX_SLOTS: usize = 64;

pub(super) fn decide(run: &Run, slot: &str, node: &str, replaces: Option<&str>) -> Result<Decision, Refusal> {
    if let Some(bound) = run.sandbox_nodes.get(slot)
        && replaces != Some(bound.as_str())
    {
        return Ok(Decision::nothing(Reply::SandboxBound { node: bound.clone() }));
    }
    refuse_if_over(run)?;
    if !run.sandbox_nodes.contains_key(slot) && run.sandbox_nodes.len() >= MAX_SLOTS {
        return Err(Refusal::TooManySandboxes { limit: MAX_SLOTS });
    }
    let event = Event::SandboxBound { slot: slot.to_owned(), node: node.to_owned() };
    Ok(Decision::of(vec![event], Vec::new(), Reply::SandboxBound { node: node.to_owned() }))
}

/// Absent: the override is taken back.
pub(super) fn overridden(run: &Run, sandbox: Option<&SandboxSpec>) -> Result<Decision, Refusal> {
    refuse_if_over(run)?;
    if run.sandbox_override.as_ref() == sandbox {
        return Ok(Decision::nothing(Reply::Done));
    }
    Ok(Decision::of(vec![Event::SandboxOverridden { sandbox: sandbox.cloned() }], Vec::new(), Reply::Done))
}

/// An ancestor's override has changed.
pub(super) fn forgotten(run: &Run) -> Decision {
    if run.sandbox_session.is_none() || run.state.is_final() {
        return Decision::nothing(Reply::Done);
    }
    Decision::of(vec![Event::SandboxForgotten], Vec::new(), Reply::Done)
}
