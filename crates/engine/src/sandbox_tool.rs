//! What a run's definition and its opener say about the sandbox, applied to the arguments of a
//! sandbox call. Arguments may tighten that, never loosen it.

use hearth_run_core::RunSpec;
use hearth_sandbox::OpenArgs;
use hearth_types::{Fault, FaultCode, Isolation, SandboxScope, SandboxSpec};

fn refused(what: &str, asked: impl std::fmt::Display, allowed: impl std::fmt::Display) -> Fault {
    Fault::new(
        FaultCode::ToolRefused,
        format!("`{what}` {asked} is looser than this run allows ({allowed}); ask for that or less"),
    )
}

/// Whether an override only tightens what the run's definition, its opener and the overrides above it say.
pub fn check_override(run: &RunSpec, above: &[SandboxSpec], asked: &SandboxSpec) -> Result<(), Fault> {
    let args = OpenArgs {
        workspace: asked.workspace.clone(),
        image: asked.image.clone(),
        isolation: asked.isolation,
        read_only: asked.read_only,
        own: asked.scope.map(|scope| scope == SandboxScope::Own),
        ..OpenArgs::default()
    };
    constrain(run, above, args).map(drop)
}

/// Fills in what the arguments leave out and refuses what they would loosen. `overrides` are those of the run
/// and of its ancestors.
pub(crate) fn constrain(run: &RunSpec, overrides: &[SandboxSpec], mut args: OpenArgs) -> Result<OpenArgs, Fault> {
    if let Some(isolation) = run.isolation {
        args.isolation = at_least(args.isolation, isolation)?;
    }
    for spec in [run.agent.sandbox.as_ref(), run.sandbox.as_ref()].into_iter().flatten() {
        args = constrain_by(spec, args)?;
    }
    for spec in overrides {
        // A definition's workspace is a default; this one is meant.
        args.workspace = fixed("workspace", args.workspace, spec.workspace.as_ref())?;
        args = constrain_by(spec, args)?;
    }
    let may_reach_out = [run.agent.sandbox.as_ref(), run.sandbox.as_ref()]
        .into_iter()
        .flatten()
        .any(|spec| spec.network.as_deref() == Some("egress"));
    if args.network.as_deref() == Some("egress") && !may_reach_out {
        return Err(refused("network", "egress", "none: neither the definition nor the open grants egress"));
    }
    Ok(args)
}

fn constrain_by(spec: &SandboxSpec, mut args: OpenArgs) -> Result<OpenArgs, Fault> {
    if let Some(isolation) = spec.isolation {
        args.isolation = at_least(args.isolation, isolation)?;
    }
    args.image = fixed("image", args.image, spec.image.as_ref())?;
    if args.workspace.is_none() {
        args.workspace.clone_from(&spec.workspace);
    }
    match (args.network.as_deref(), spec.network.as_deref()) {
        (None, Some(network)) => args.network = Some(network.to_owned()),
        (Some("egress"), Some("none")) => return Err(refused("network", "egress", "none")),
        _ => {}
    }
    if spec.scope == Some(SandboxScope::Own) {
        if args.own == Some(false) {
            return Err(refused("own", "false", "this run has a session of its own"));
        }
        args.own = Some(true);
    }
    if spec.read_only == Some(true) {
        if args.read_only == Some(false) {
            return Err(refused("read_only", "false", "true"));
        }
        args.read_only = Some(true);
    }
    if let Some(limits) = spec.limits {
        args.cpu = at_most("cpu", args.cpu, limits.cpu)?;
        args.mem_mb = at_most("mem_mb", args.mem_mb, limits.mem_mb)?;
        args.pids = at_most("pids", args.pids, limits.pids)?;
        args.tmpfs_mb = at_most("tmpfs_mb", args.tmpfs_mb, limits.tmpfs_mb)?;
    }
    Ok(args)
}

fn at_least(asked: Option<Isolation>, floor: Isolation) -> Result<Option<Isolation>, Fault> {
    match asked {
        Some(level) if level < floor => Err(refused("isolation", level.as_str(), floor.as_str())),
        Some(level) => Ok(Some(level)),
        None => Ok(Some(floor)),
    }
}

fn at_most<T: PartialOrd + Copy + std::fmt::Display>(
    field: &str,
    asked: Option<T>,
    cap: Option<T>,
) -> Result<Option<T>, Fault> {
    match (asked, cap) {
        (Some(asked), Some(cap)) if asked > cap => Err(refused(field, asked, cap)),
        (asked, cap) => Ok(asked.or(cap)),
    }
}

fn fixed(field: &str, asked: Option<String>, set: Option<&String>) -> Result<Option<String>, Fault> {
    match (asked, set) {
        (Some(asked), Some(set)) if &asked != set => Err(refused(field, asked, set)),
        (asked, set) => Ok(asked.or_else(|| set.cloned())),
    }
}
