//! Whether one definition is allowed no more than another.
//!
//! Compared are the fields that grant something (tools, skills, counts, the sandbox) and those that
//! hold an agent back (guardrails, acceptance). What it says, and which model speaks, grants nothing.

use hearth_types::{AgentDefinition, SandboxLimits, SandboxScope, SandboxSpec, limits};

use crate::{Refusal, check_ceiling};

/// Refuses the first field of `narrow` that allows more than the same field of `wide`.
pub(crate) fn check_narrower(wide: &AgentDefinition, narrow: &AgentDefinition) -> Result<(), Refusal> {
    check_ceiling(&wide.tools, &narrow.tools)?;
    if let Some(skill) = narrow.skills.iter().find(|skill| !wide.skills.contains(skill)) {
        return Err(widens("skills", format!("{skill:?} is not among the source's")));
    }
    at_most(
        "max_iterations",
        wide.max_iterations.unwrap_or(limits::MAX_ITERATIONS),
        narrow.max_iterations.unwrap_or(limits::MAX_ITERATIONS),
    )?;
    at_most(
        "max_concurrent_children",
        wide.max_concurrent_children.unwrap_or(limits::MAX_RESIDENT_CHILDREN),
        narrow.max_concurrent_children.unwrap_or(limits::MAX_RESIDENT_CHILDREN),
    )?;
    for (field, before, after) in
        [("guardrails", &wide.guardrails, &narrow.guardrails), ("acceptance", &wide.acceptance, &narrow.acceptance)]
    {
        // What an arbitrary change to them loosens cannot be told, so only a first one is taken.
        if before.is_some() && before != after {
            return Err(widens(field, "the source's must stay as they are".to_owned()));
        }
    }
    let nothing = SandboxSpec::default();
    check_sandbox(wide.sandbox.as_ref().unwrap_or(&nothing), narrow.sandbox.as_ref().unwrap_or(&nothing))
}

fn widens(field: &'static str, reason: String) -> Refusal {
    Refusal::Widens { field, reason }
}

fn at_most(field: &'static str, wide: u32, narrow: u32) -> Result<(), Refusal> {
    if narrow <= wide { Ok(()) } else { Err(widens(field, format!("{narrow} is more than the source's {wide}"))) }
}

fn check_sandbox(wide: &SandboxSpec, narrow: &SandboxSpec) -> Result<(), Refusal> {
    let loosened = if wide.scope == Some(SandboxScope::Own) && narrow.scope != wide.scope {
        Some("scope")
    } else if narrow.isolation < wide.isolation {
        Some("isolation")
    } else if wide.image.is_some() && narrow.image != wide.image {
        Some("image")
    } else if wide.workspace.is_some() && narrow.workspace != wide.workspace {
        Some("workspace")
    } else if asks_for_egress(narrow) && !asks_for_egress(wide) {
        Some("network")
    } else if wide.read_only == Some(true) && narrow.read_only != wide.read_only {
        Some("read_only")
    } else {
        loosened_limit(&wide.limits.unwrap_or_default(), &narrow.limits.unwrap_or_default())
    };
    match loosened {
        Some(part) => Err(widens("sandbox", format!("`{part}` is looser than the source's"))),
        None => Ok(()),
    }
}

/// No network is what a sandbox has unless one is asked for.
fn asks_for_egress(sandbox: &SandboxSpec) -> bool {
    sandbox.network.as_deref().is_some_and(|network| network != "none")
}

/// A limit that the source sets must stay set and not grow.
fn loosened_limit(wide: &SandboxLimits, narrow: &SandboxLimits) -> Option<&'static str> {
    let grew = |wide: Option<u64>, narrow: Option<u64>| wide.is_some_and(|limit| narrow.is_none_or(|new| new > limit));
    if wide.cpu.is_some_and(|limit| narrow.cpu.is_none_or(|new| new > limit)) {
        Some("limits.cpu")
    } else if grew(wide.mem_mb, narrow.mem_mb) {
        Some("limits.mem_mb")
    } else if grew(wide.pids, narrow.pids) {
        Some("limits.pids")
    } else if grew(wide.tmpfs_mb, narrow.tmpfs_mb) {
        Some("limits.tmpfs_mb")
    } else {
        None
    }
}
