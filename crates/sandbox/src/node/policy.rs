//! What an `open` may have: pure, from its arguments, the operator's options and the drivers at hand.
//!
//! Arguments only tighten. What is looser than the operator allows is refused, and so is what cannot
//! be had; nothing is rounded, replaced or left out in silence.

use hearth_types::{Fault, FaultCode, Isolation, SandboxLimits};

use crate::node::options::{DEFAULT_TMPFS_MB, NodeOptions};
use crate::{Driver, Network, OpenArgs, SharedDriver};

pub(crate) const MIN_MEM_MB: u64 = 16;
pub(crate) const MIN_PIDS: u64 = 8;
pub(crate) const MIN_CPU: f64 = 0.01;
const MAX_IMAGE_CHARS: usize = 255;

/// An `open` as it will be carried out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    /// The index of the driver.
    pub driver: usize,
    pub image: Option<String>,
    pub workspace: Option<String>,
    pub read_only: bool,
    pub network: Network,
    pub limits: SandboxLimits,
    pub runtime: Option<String>,
    pub own: bool,
    pub asked: Asked,
}

/// What the caller named itself, to be compared with a shared session that is there already.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Asked {
    pub network: Option<Network>,
    pub limits: SandboxLimits,
    pub isolation: Option<Isolation>,
    pub runtime: Option<String>,
}

/// What a shared session has, for the comparison.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Existing<'a> {
    pub network: Network,
    pub limits: SandboxLimits,
    pub isolation: Isolation,
    pub runtime: &'a str,
}

pub(crate) fn plan(args: &OpenArgs, options: &NodeOptions, drivers: &[SharedDriver]) -> Result<Plan, Fault> {
    let workspace = args.workspace.clone();
    if let Some(name) = &workspace {
        check_workspace(name, options)?;
    }
    let read_only = args.read_only.unwrap_or(false);
    if read_only && workspace.is_none() {
        return Err(Fault::invalid("read_only", "true", "true together with a workspace: nothing else could be read"));
    }
    let network = network(args.network.as_deref(), options)?;
    let limits = limits(args, options)?;
    let (driver, runtime) = driver(args, options, drivers)?;
    let image = image(args, options, drivers[driver].as_ref())?;
    let asked = Asked {
        network: args.network.is_some().then_some(network),
        limits: SandboxLimits { cpu: args.cpu, mem_mb: args.mem_mb, pids: args.pids, tmpfs_mb: args.tmpfs_mb },
        isolation: args.isolation,
        runtime: args.runtime.clone(),
    };
    Ok(Plan { driver, image, workspace, read_only, network, limits, runtime, own: args.own.unwrap_or(false), asked })
}

impl Asked {
    /// Refuses a shared session that differs from what was asked for.
    pub(crate) fn check(&self, there: Existing<'_>) -> Result<(), Fault> {
        let limits = there.limits;
        let differs = [
            ("network", self.network.is_some_and(|asked| asked != there.network)),
            ("isolation", self.isolation.is_some_and(|asked| asked > there.isolation)),
            ("runtime", self.runtime.as_ref().is_some_and(|asked| asked != there.runtime)),
            ("cpu", self.limits.cpu.is_some() && self.limits.cpu != limits.cpu),
            ("mem_mb", self.limits.mem_mb.is_some() && self.limits.mem_mb != limits.mem_mb),
            ("pids", self.limits.pids.is_some() && self.limits.pids != limits.pids),
            ("tmpfs_mb", self.limits.tmpfs_mb.is_some() && self.limits.tmpfs_mb != limits.tmpfs_mb),
        ];
        let Some((field, _)) = differs.iter().find(|(_, differs)| *differs) else { return Ok(()) };
        Err(Fault::new(
            FaultCode::Conflict,
            format!("the tree's shared session of this image and workspace has another `{field}`; leave `{field}` out to use it, or open with `own: true`"),
        )
        .with_details(serde_json::json!({ "field": field })))
    }
}

/// Whether an engine could have an image of this name.
pub fn is_image_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/' | b':' | b'@');
    (1..=MAX_IMAGE_CHARS).contains(&name.len())
        && name.bytes().all(plain)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// `[a-z0-9][a-z0-9_-]{0,63}`
pub fn is_workspace_name(name: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=64).contains(&name.len())
        && name.bytes().next().is_some_and(word)
        && name.bytes().all(|b| word(b) || b == b'_' || b == b'-')
}

fn check_workspace(name: &str, options: &NodeOptions) -> Result<(), Fault> {
    if !is_workspace_name(name) {
        return Err(Fault::invalid("workspace", name, "[a-z0-9][a-z0-9_-]{0,63}"));
    }
    if options.workspace_root.is_none() {
        return Err(refused(
            "workspace",
            "durable workspaces are off here: the operator sets SANDBOX_WORKSPACE_ROOT to allow them; open without one",
        ));
    }
    Ok(())
}

fn network(asked: Option<&str>, options: &NodeOptions) -> Result<Network, Fault> {
    match asked {
        None | Some("none") => Ok(Network::None),
        Some("egress") if options.allow_egress => Ok(Network::Egress),
        Some("egress") => {
            Err(refused("network", "egress is off here: the operator allows it with SANDBOX_ALLOW_EGRESS"))
        }
        Some(other) => Err(Fault::invalid("network", other, "none or egress")),
    }
}

fn limits(args: &OpenArgs, options: &NodeOptions) -> Result<SandboxLimits, Fault> {
    let ceiling = options.ceiling;
    let cpu = match args.cpu {
        None => ceiling.cpu,
        Some(cpu) if !cpu.is_finite() || cpu < MIN_CPU => {
            return Err(Fault::invalid("cpu", cpu, &format!("{MIN_CPU} to {}", ceiling.cpu)));
        }
        Some(cpu) if cpu > ceiling.cpu => return Err(above("cpu", cpu, ceiling.cpu)),
        Some(cpu) => cpu,
    };
    let mem_mb = whole("mem_mb", args.mem_mb, MIN_MEM_MB, ceiling.mem_mb)?.unwrap_or(ceiling.mem_mb);
    let pids = whole("pids", args.pids, MIN_PIDS, ceiling.pids)?.unwrap_or(ceiling.pids);
    // A tmpfs as large as the memory would end in an OOM kill where "no space left" is meant.
    let unasked = DEFAULT_TMPFS_MB.min(ceiling.tmpfs_mb).min((mem_mb / 2).max(1));
    let tmpfs_mb = whole("tmpfs_mb", args.tmpfs_mb, 1, ceiling.tmpfs_mb)?.unwrap_or(unasked);
    Ok(SandboxLimits { cpu: Some(cpu), mem_mb: Some(mem_mb), pids: Some(pids), tmpfs_mb: Some(tmpfs_mb) })
}

fn whole(field: &str, asked: Option<u64>, low: u64, ceiling: u64) -> Result<Option<u64>, Fault> {
    match asked {
        Some(value) if value < low => Err(Fault::invalid(field, value, &format!("{low} to {ceiling}"))),
        Some(value) if value > ceiling => Err(above(field, value, ceiling)),
        other => Ok(other),
    }
}

fn above(field: &str, value: impl std::fmt::Display, ceiling: impl std::fmt::Display) -> Fault {
    refused(field, &format!("{value} is above what the operator allows, {ceiling}; ask for less"))
}

fn refused(field: &str, reason: &str) -> Fault {
    Fault::new(FaultCode::ToolRefused, format!("`{field}`: {reason}"))
        .with_details(serde_json::json!({ "field": field }))
}

/// The first driver, in the operator's order, that is as strong as asked for and has the runtime. Its
/// default is the floor: an argument does not go below it.
fn driver(args: &OpenArgs, options: &NodeOptions, drivers: &[SharedDriver]) -> Result<(usize, Option<String>), Fault> {
    let has = |driver: &SharedDriver, runtime: Option<&str>| runtime.is_none_or(|name| driver.has_runtime(name));
    let preset = options.runtime.as_deref();
    let default = drivers.iter().find(|driver| has(driver, preset)).ok_or_else(|| {
        unavailable(match preset {
            Some(name) => format!("the operator's runtime {name} is not on this host"),
            None => "no sandbox driver works on this host".to_owned(),
        })
    })?;
    let floor = default.isolation();
    if let Some(asked) = args.isolation
        && asked < floor
    {
        let reason = format!("{} is weaker than what the operator set, {}", asked.as_str(), floor.as_str());
        return Err(refused("isolation", &reason));
    }
    let wanted = args.isolation.unwrap_or(floor);
    // A preset runtime that is too weak for the level asked for gives way to a stronger one.
    let runtime = args.runtime.as_deref().or(preset.filter(|_| wanted <= floor));
    let fitting = drivers.iter().position(|driver| driver.isolation() >= wanted && has(driver, runtime));
    if let Some(index) = fitting {
        return Ok((index, runtime.map(str::to_owned)));
    }
    let strongest = drivers.iter().map(|driver| driver.isolation()).max().unwrap_or(floor);
    match args.runtime.as_deref() {
        Some(name) if args.isolation.is_none() && drivers.iter().any(|driver| driver.has_runtime(name)) => {
            Err(refused("runtime", &format!("{name} is weaker than what the operator set, {}", floor.as_str())))
        }
        Some(name) => Err(unavailable(format!("the runtime {name} at {} is not to be had here", wanted.as_str()))),
        None => Err(unavailable(format!(
            "{} is not to be had here; the strongest is {}",
            wanted.as_str(),
            strongest.as_str()
        ))),
    }
}

fn unavailable(reason: String) -> Fault {
    Fault::new(FaultCode::IsolationUnavailable, format!("{reason}; nothing weaker was tried"))
}

fn image(args: &OpenArgs, options: &NodeOptions, driver: &dyn Driver) -> Result<Option<String>, Fault> {
    let Some(asked) = &args.image else {
        return Ok((driver.isolation() > Isolation::L1).then(|| options.image.clone()));
    };
    if !is_image_name(asked) {
        return Err(Fault::invalid("image", asked, "an image's name, such as hearth-session:latest"));
    }
    let allowed =
        *asked == options.image || options.allowed_images.as_ref().is_none_or(|images| images.contains(asked));
    if !allowed {
        return Err(refused("image", "the operator does not list it in SANDBOX_ALLOWED_IMAGES"));
    }
    Ok(Some(asked.clone()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hearth_types::SandboxId;

    use super::*;
    use crate::{Error, SessionSpec, SessionState, Started};

    struct Offer(Isolation, &'static [&'static str]);

    #[async_trait::async_trait]
    impl Driver for Offer {
        fn kind(&self) -> &'static str {
            "offer"
        }
        fn isolation(&self) -> Isolation {
            self.0
        }
        fn notice(&self) -> Option<String> {
            None
        }
        fn has_runtime(&self, name: &str) -> bool {
            self.1.contains(&name)
        }
        async fn start(&self, _: &SessionSpec) -> Result<Started, Error> {
            unreachable!("planning starts nothing")
        }
        async fn stop(&self, _: &SandboxId) -> Result<(), Error> {
            unreachable!("planning stops nothing")
        }
        async fn inspect(&self, _: &SandboxId) -> Result<SessionState, Error> {
            unreachable!("planning looks at nothing")
        }
        async fn reattach(&self, _: &SessionSpec) -> Result<Started, Error> {
            unreachable!("planning finds nothing")
        }
    }

    fn drivers() -> Vec<SharedDriver> {
        vec![Arc::new(Offer(Isolation::L2, &["runc"])), Arc::new(Offer(Isolation::L3, &["runsc"]))]
    }

    fn options() -> NodeOptions {
        NodeOptions { workspace_root: Some("/srv".into()), ..NodeOptions::new("node-0", "/state") }
    }

    fn code(args: OpenArgs) -> FaultCode {
        plan(&args, &options(), &drivers()).unwrap_err().code
    }

    #[test]
    fn nothing_asked_for_gives_the_defaults() {
        let plan = plan(&OpenArgs::default(), &options(), &drivers()).unwrap();
        let limits = SandboxLimits { cpu: Some(2.0), mem_mb: Some(2_048), pids: Some(512), tmpfs_mb: Some(512) };
        assert_eq!((plan.limits, plan.network, plan.driver), (limits, Network::None, 0));
        assert_eq!(plan.image.as_deref(), Some("hearth-session:latest"));
        assert!(!plan.own && !plan.read_only && plan.workspace.is_none());
    }

    #[test]
    fn looser_than_the_operator_allows_is_refused() {
        let refused = [
            OpenArgs { cpu: Some(2.5), ..OpenArgs::default() },
            OpenArgs { mem_mb: Some(4_096), ..OpenArgs::default() },
            OpenArgs { pids: Some(513), ..OpenArgs::default() },
            OpenArgs { tmpfs_mb: Some(2_049), ..OpenArgs::default() },
            OpenArgs { network: Some("egress".into()), ..OpenArgs::default() },
            OpenArgs { isolation: Some(Isolation::L1), ..OpenArgs::default() },
        ];
        for args in refused {
            assert_eq!(code(args.clone()), FaultCode::ToolRefused, "{args:?}");
        }
    }

    #[test]
    fn values_that_mean_nothing_are_invalid() {
        let invalid = [
            OpenArgs { cpu: Some(0.0), ..OpenArgs::default() },
            OpenArgs { cpu: Some(f64::NAN), ..OpenArgs::default() },
            OpenArgs { mem_mb: Some(0), ..OpenArgs::default() },
            OpenArgs { pids: Some(1), ..OpenArgs::default() },
            OpenArgs { network: Some("bridge".into()), ..OpenArgs::default() },
            OpenArgs { workspace: Some("../up".into()), ..OpenArgs::default() },
            OpenArgs { workspace: Some("Big".into()), ..OpenArgs::default() },
            OpenArgs { workspace: Some("x".repeat(65)), ..OpenArgs::default() },
            OpenArgs { image: Some("--privileged".into()), ..OpenArgs::default() },
            OpenArgs { read_only: Some(true), ..OpenArgs::default() },
        ];
        for args in invalid {
            assert_eq!(code(args.clone()), FaultCode::InvalidArgument, "{args:?}");
        }
    }

    #[test]
    fn a_level_or_runtime_is_had_or_refused_never_replaced() {
        let ask = |isolation, runtime: Option<&str>| {
            let args = OpenArgs { isolation, runtime: runtime.map(str::to_owned), ..OpenArgs::default() };
            plan(&args, &options(), &drivers()).map(|plan| (plan.driver, plan.runtime)).map_err(|fault| fault.code)
        };
        assert_eq!(ask(Some(Isolation::L3), None), Ok((1, None)));
        assert_eq!(ask(None, Some("runsc")), Ok((1, Some("runsc".into()))));
        assert_eq!(ask(None, Some("runc")), Ok((0, Some("runc".into()))));
        assert_eq!(ask(None, Some("kata")), Err(FaultCode::IsolationUnavailable));
        assert_eq!(ask(Some(Isolation::L3), Some("runc")), Err(FaultCode::IsolationUnavailable));

        let only_local: Vec<SharedDriver> = vec![Arc::new(Offer(Isolation::L1, &[]))];
        let args = OpenArgs { isolation: Some(Isolation::L2), ..OpenArgs::default() };
        assert_eq!(plan(&args, &options(), &only_local).unwrap_err().code, FaultCode::IsolationUnavailable);
    }

    #[test]
    fn the_operators_runtime_is_the_floor() {
        let strict = NodeOptions { runtime: Some("runsc".into()), ..options() };
        let ask = |runtime: Option<&str>| {
            let args = OpenArgs { runtime: runtime.map(str::to_owned), ..OpenArgs::default() };
            plan(&args, &strict, &drivers()).map(|plan| plan.driver).map_err(|fault| fault.code)
        };
        assert_eq!(ask(None), Ok(1));
        assert_eq!(ask(Some("runc")), Err(FaultCode::ToolRefused));
        let missing = NodeOptions { runtime: Some("kata".into()), ..options() };
        let refused = plan(&OpenArgs::default(), &missing, &drivers()).unwrap_err();
        assert_eq!(refused.code, FaultCode::IsolationUnavailable);
    }

    #[test]
    fn without_a_root_only_durable_workspaces_are_refused() {
        let bare = NodeOptions::new("node-0", "/state");
        let durable = OpenArgs { workspace: Some("build".into()), ..OpenArgs::default() };
        assert_eq!(plan(&durable, &bare, &drivers()).unwrap_err().code, FaultCode::ToolRefused);
        assert!(plan(&OpenArgs::default(), &bare, &drivers()).is_ok());
    }

    #[test]
    fn only_listed_images_are_allowed_where_there_is_a_list() {
        let listed = NodeOptions { allowed_images: Some(vec!["a:1".into()]), ..options() };
        let ask = |image: &str| {
            let args = OpenArgs { image: Some(image.into()), ..OpenArgs::default() };
            plan(&args, &listed, &drivers()).map(|_| ()).map_err(|fault| fault.code)
        };
        assert_eq!(ask("a:1"), Ok(()));
        assert_eq!(ask("hearth-session:latest"), Ok(()));
        assert_eq!(ask("b:1"), Err(FaultCode::ToolRefused));
    }

    #[test]
    fn a_shared_session_with_other_traits_is_no_silent_answer() {
        let there = Existing {
            network: Network::None,
            limits: SandboxLimits { mem_mb: Some(512), ..SandboxLimits::default() },
            isolation: Isolation::L2,
            runtime: "runc",
        };
        let mem = |mb| Asked { limits: SandboxLimits { mem_mb: mb, ..SandboxLimits::default() }, ..Asked::default() };
        assert!(mem(None).check(there).is_ok());
        assert!(mem(Some(512)).check(there).is_ok());
        assert_eq!(mem(Some(256)).check(there).unwrap_err().code, FaultCode::Conflict);
        assert!(Asked { isolation: Some(Isolation::L3), ..Asked::default() }.check(there).is_err());
    }
}
