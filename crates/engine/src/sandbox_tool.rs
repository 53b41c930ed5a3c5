//! What a run's definition and its opener say about the sandbox, applied to the arguments of a
//! sandbox call. Arguments may tighten that, never loosen it.

use hearth_run_core::RunSpec;
use hearth_sandbox::{Needs, OpenArgs};
use hearth_types::{Fault, FaultCode, Isolation, SandboxLimits, SandboxScope, SandboxSpec};

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

/// What the definition, the opener and the overrides allow together: the narrowest of each.
#[derive(Default)]
struct Allowed {
    isolation: Option<Isolation>,
    own: bool,
    read_only: bool,
    no_network: bool,
    limits: SandboxLimits,
}

impl Allowed {
    fn of(run: &RunSpec, overrides: &[SandboxSpec]) -> Self {
        let mut allowed = Self { isolation: run.isolation, ..Self::default() };
        for spec in [run.agent.sandbox.as_ref(), run.sandbox.as_ref()].into_iter().flatten().chain(overrides) {
            allowed.narrow(spec);
        }
        allowed
    }

    fn narrow(&mut self, spec: &SandboxSpec) {
        self.isolation = self.isolation.max(spec.isolation);
        self.own |= spec.scope == Some(SandboxScope::Own);
        self.read_only |= spec.read_only == Some(true);
        self.no_network |= spec.network.as_deref() == Some("none");
        if let Some(limits) = spec.limits {
            let known = &mut self.limits;
            known.cpu = least(known.cpu, limits.cpu);
            known.mem_mb = least(known.mem_mb, limits.mem_mb);
            known.pids = least(known.pids, limits.pids);
            known.tmpfs_mb = least(known.tmpfs_mb, limits.tmpfs_mb);
        }
    }
}

fn least<T: PartialOrd>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other < one { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// What any session must hold that the run uses.
pub(crate) fn needs(run: &RunSpec, overrides: &[SandboxSpec]) -> Needs {
    let allowed = Allowed::of(run, overrides);
    Needs {
        isolation: allowed.isolation,
        own: allowed.own,
        read_only: allowed.read_only,
        no_network: allowed.no_network,
    }
}

/// Fills in what the arguments leave out and refuses what they would loosen. `overrides` are those of the run
/// and of its ancestors.
pub(crate) fn constrain(run: &RunSpec, overrides: &[SandboxSpec], mut args: OpenArgs) -> Result<OpenArgs, Fault> {
    let (definition, opener) = (run.agent.sandbox.as_ref(), run.sandbox.as_ref());
    let own = || [definition, opener].into_iter().flatten();
    let allowed = Allowed::of(run, overrides);
    for spec in overrides {
        // A definition's workspace is a default; this one is meant.
        args.workspace = fixed("workspace", args.workspace, spec.workspace.as_ref())?;
    }
    for spec in own().chain(overrides) {
        args.image = fixed("image", args.image, spec.image.as_ref())?;
        if args.workspace.is_none() {
            args.workspace.clone_from(&spec.workspace);
        }
    }
    if let Some(floor) = allowed.isolation {
        args.isolation = at_least(args.isolation, floor)?;
    }
    args.own = flag("own", args.own, allowed.own)?;
    args.read_only = flag("read_only", args.read_only, allowed.read_only)?;
    args.cpu = at_most("cpu", args.cpu, allowed.limits.cpu)?;
    args.mem_mb = at_most("mem_mb", args.mem_mb, allowed.limits.mem_mb)?;
    args.pids = at_most("pids", args.pids, allowed.limits.pids)?;
    args.tmpfs_mb = at_most("tmpfs_mb", args.tmpfs_mb, allowed.limits.tmpfs_mb)?;
    args.network = network(run, &allowed, args.network)?;
    Ok(args)
}

/// Egress is granted by the definition, or by who opened the root of the tree; a run grants its children nothing.
fn network(run: &RunSpec, allowed: &Allowed, asked: Option<String>) -> Result<Option<String>, Fault> {
    let grants = |spec: Option<&SandboxSpec>| spec.is_some_and(|spec| spec.network.as_deref() == Some("egress"));
    let granted = grants(run.agent.sandbox.as_ref()) || (run.parent.is_none() && grants(run.sandbox.as_ref()));
    match asked.as_deref() {
        Some("egress") if allowed.no_network => Err(refused("network", "egress", "none")),
        Some("egress") if !granted => {
            Err(refused("network", "egress", "none: neither the definition nor the open grants egress"))
        }
        None if allowed.no_network => Ok(Some("none".to_owned())),
        None if granted => Ok(Some("egress".to_owned())),
        _ => Ok(asked),
    }
}

fn flag(field: &str, asked: Option<bool>, set: bool) -> Result<Option<bool>, Fault> {
    match asked {
        Some(false) if set => Err(refused(field, "false", "true")),
        asked => Ok(if set { Some(true) } else { asked }),
    }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(definition: Value, opener: Value, parent: bool) -> RunSpec {
        let mut spec = json!({
            "run_id": "run_a", "session_id": "s", "root_run_id": "run_r", "tenant": "t", "subject": "s",
            "agent": { "name": "a", "sandbox": definition }, "sandbox": opener,
            "interactive": true, "idle_ttl_ms": 1, "max_residents": 1,
        });
        if parent {
            spec["parent"] = json!({ "run_id": "run_p" });
        }
        serde_json::from_value(spec).unwrap()
    }

    fn of(spec: Value) -> SandboxSpec {
        serde_json::from_value(spec).unwrap()
    }

    fn open(network: Option<&str>) -> OpenArgs {
        OpenArgs { network: network.map(str::to_owned), ..OpenArgs::default() }
    }

    #[test]
    fn what_narrows_further_in_is_taken_whatever_stands_before_it() {
        let run = run(
            json!({ "isolation": "L2", "network": "egress", "limits": { "mem_mb": 2048, "pids": 100 }, "workspace": "d" }),
            json!({ "limits": { "mem_mb": 512 }, "network": "none" }),
            true,
        );
        let overrides = [of(json!({ "isolation": "L3", "read_only": true, "workspace": "o" }))];
        let args = constrain(&run, &overrides, OpenArgs::default()).unwrap();
        assert_eq!((args.isolation, args.mem_mb, args.pids), (Some(Isolation::L3), Some(512), Some(100)));
        assert_eq!((args.network.as_deref(), args.read_only, args.own), (Some("none"), Some(true), None));
        assert_eq!(args.workspace.as_deref(), Some("o"), "a definition's is a default");
        for looser in [
            OpenArgs { isolation: Some(Isolation::L2), ..OpenArgs::default() },
            OpenArgs { mem_mb: Some(513), ..OpenArgs::default() },
            OpenArgs { read_only: Some(false), ..OpenArgs::default() },
            OpenArgs { workspace: Some("d".to_owned()), ..OpenArgs::default() },
            open(Some("egress")),
        ] {
            assert_eq!(
                constrain(&run, &overrides, looser.clone()).unwrap_err().code,
                FaultCode::ToolRefused,
                "{looser:?}"
            );
        }
        let tighter = OpenArgs { mem_mb: Some(256), own: Some(true), ..OpenArgs::default() };
        let args = constrain(&run, &overrides, tighter).unwrap();
        assert_eq!((args.mem_mb, args.own), (Some(256), Some(true)));
    }

    #[test]
    fn egress_is_the_definitions_or_the_callers_to_grant_and_no_runs() {
        let (egress, nothing) = (|| json!({ "network": "egress" }), || Value::Null);
        let granted = |run: &RunSpec| constrain(run, &[], open(Some("egress"))).is_ok();
        assert!(granted(&run(egress(), nothing(), true)) && granted(&run(nothing(), egress(), false)));
        let child = run(nothing(), egress(), true);
        assert!(!granted(&child), "a run opened it");
        assert_eq!(constrain(&child, &[], OpenArgs::default()).unwrap().network, None);
        assert_eq!(
            constrain(&run(egress(), nothing(), true), &[], open(Some("none"))).unwrap().network.as_deref(),
            Some("none")
        );
    }
}
