//! From what a session is to be to the container that the engine is asked for. Pure: no engine, no disk.
//!
//! Everything that hardens a container is here and nowhere else. What a caller may choose was decided
//! before; nothing in a [`SessionSpec`] can switch one of these off.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountBindOptions,
    MountBindOptionsPropagationEnum, MountType, ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};

use crate::{Network, SessionSpec, Work, session_env, session_home, session_path};

pub const LABEL_NODE: &str = "hearth.node";
pub const LABEL_SESSION: &str = "hearth.session";
pub const LABEL_ROOT_RUN: &str = "hearth.root_run";
/// The identity in the state folder of the node that made it. Names can be given twice, this cannot.
pub const LABEL_OWNER: &str = "hearth.owner";

/// Where commands see the workspace.
pub const WORK: &str = "/work";
const INIT: &str = "/.hearth/init";
const SOCKET_FOLDER: &str = "/.hearth/run";
/// The name of the init's socket in its folder.
pub const SOCKET: &str = "init.sock";
/// For images that set none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The kernel's length of a scheduling period; a quota is a part of it.
const CPU_PERIOD_US: i64 = 100_000;
const MIN_CPU_QUOTA_US: i64 = 1_000;
const MIB: u64 = 1024 * 1024;
/// Of `/dev/shm`; its pages count as memory.
const SHM_BYTES: i64 = 64 * 1024 * 1024;

/// What the container needs to know of its host.
#[derive(Debug, Clone, Copy)]
pub struct HostSide<'a> {
    /// A static program.
    pub init: &'a Path,
    /// Of this session alone.
    pub socket_folder: &'a Path,
    pub owner: &'a str,
    pub uid: u32,
    pub gid: u32,
    pub image: &'a str,
    pub facts: &'a ImageFacts,
    pub runtime: &'a str,
    /// Of this session alone, for one with egress.
    pub network: Option<&'a str>,
}

/// What an image says of itself that a container has to go along with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageFacts {
    pub path: Option<String>,
    /// Folders that the engine would give disk space without a bound.
    pub volumes: Vec<String>,
}

/// The option by which an init keeps no process ready for the next command.
pub const NO_SPARE: &str = "--no-spare";

/// The name that is promised to users.
pub fn container_name(session: &hearth_types::SandboxId) -> String {
    format!("hearth-{session}")
}

pub fn container(spec: &SessionSpec, host: &HostSide<'_>) -> ContainerCreateBody {
    let deadline_ms = spec.deadline.as_millis().max(0).to_string();
    let socket = format!("{SOCKET_FOLDER}/{SOCKET}");
    let mut serve = vec!["serve", "--socket", &socket, "--root", WORK, "--deadline-ms", &deadline_ms, "--watch-oom"];
    if !spec.has_room_for_a_spare() {
        serve.push(NO_SPARE);
    }
    ContainerCreateBody {
        image: Some(host.image.to_owned()),
        hostname: Some("sandbox".to_owned()),
        user: Some(format!("{}:{}", host.uid, host.gid)),
        working_dir: Some(WORK.to_owned()),
        // The image's own entry point and health check would be programs that nobody asked to run.
        entrypoint: Some(vec![INIT.to_owned()]),
        cmd: Some(serve.into_iter().map(str::to_owned).collect()),
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        env: Some(env(spec, host.facts)),
        labels: Some(labels(spec, host.owner)),
        attach_stdin: Some(false),
        attach_stdout: Some(false),
        attach_stderr: Some(false),
        open_stdin: Some(false),
        tty: Some(false),
        host_config: Some(host_config(spec, host)),
        ..ContainerCreateBody::default()
    }
}

fn env(spec: &SessionSpec, facts: &ImageFacts) -> Vec<String> {
    let read_only = matches!(spec.work, Work::Durable { read_only: true, .. });
    let home = session_home(WORK, read_only);
    let mut env = session_env(&home);
    env.insert("PATH".to_owned(), session_path(&home, facts.path.as_deref().unwrap_or(DEFAULT_PATH)));
    env.extend(spec.env.clone());
    if matches!(spec.work, Work::Durable { read_only: false, .. }) {
        // The init makes the home that it is told of, at once. Whether the right folder is mounted is
        // only found out after that, so the node makes the home and tells each command of it.
        env.remove("HOME");
    }
    env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn labels(spec: &SessionSpec, owner: &str) -> HashMap<String, String> {
    let mut labels = HashMap::from([
        (LABEL_NODE.to_owned(), spec.node.clone()),
        (LABEL_SESSION.to_owned(), spec.session.to_string()),
        (LABEL_OWNER.to_owned(), owner.to_owned()),
    ]);
    if let Some(root_run) = &spec.root_run {
        labels.insert(LABEL_ROOT_RUN.to_owned(), root_run.to_string());
    }
    labels
}

fn host_config(spec: &SessionSpec, host: &HostSide<'_>) -> HostConfig {
    let memory = spec.limits.mem_mb.map(bytes);
    HostConfig {
        runtime: Some(host.runtime.to_owned()),
        readonly_rootfs: Some(true),
        privileged: Some(false),
        cap_drop: Some(vec!["ALL".to_owned()]),
        // The default seccomp filter is on unless one is named.
        security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
        memory,
        // Equal to the memory: no swap.
        memory_swap: memory,
        pids_limit: spec.limits.pids.map(|pids| i64::try_from(pids).unwrap_or(i64::MAX)),
        // Not `NanoCpus`: the engine refuses more of those than the host has.
        cpu_period: spec.limits.cpu.map(|_| CPU_PERIOD_US),
        cpu_quota: spec.limits.cpu.map(cpu_quota),
        ulimits: Some(vec![ResourcesUlimits { name: Some("core".to_owned()), soft: Some(0), hard: Some(0) }]),
        shm_size: Some(SHM_BYTES),
        tmpfs: Some(tmpfs(spec, host)),
        mounts: Some(mounts(spec, host)),
        network_mode: Some(
            match spec.network {
                Network::None => "none",
                // Never one that it would share.
                Network::Egress => host.network.unwrap_or("none"),
            }
            .to_owned(),
        ),
        ipc_mode: Some("private".to_owned()),
        // The engine's own init would be process 1 in place of ours.
        init: Some(false),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        // It is removed by its node, which then knows that it is gone.
        auto_remove: Some(false),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        ..HostConfig::default()
    }
}

fn bytes(mb: u64) -> i64 {
    i64::try_from(mb.saturating_mul(MIB)).unwrap_or(i64::MAX)
}

#[allow(clippy::cast_possible_truncation, reason = "a few CPUs times a tenth of a second in microseconds")]
fn cpu_quota(cpu: f64) -> i64 {
    ((cpu * CPU_PERIOD_US as f64) as i64).max(MIN_CPU_QUOTA_US)
}

/// `mode=` is not heard where the image has the folder, so that the owner is what makes it writable.
fn tmpfs(spec: &SessionSpec, host: &HostSide<'_>) -> HashMap<String, String> {
    let (uid, gid) = (host.uid, host.gid);
    let scratch_mb = spec.limits.tmpfs_mb.unwrap_or(64);
    // What an image declares as a volume would otherwise be disk space of the host without a bound.
    let declared = host.facts.volumes.iter().filter(|path| !matches!(path.as_str(), WORK | "/tmp"));
    let mut tmpfs: HashMap<String, String> = declared
        .map(|path| (path.clone(), format!("rw,noexec,nosuid,nodev,uid={uid},gid={gid},mode=0755,size=16m")))
        .collect();
    tmpfs.insert("/tmp".to_owned(), format!("rw,exec,nosuid,nodev,uid={uid},gid={gid},mode=1777,size={scratch_mb}m"));
    if let Work::Tmpfs { mb } = &spec.work {
        tmpfs.insert(WORK.to_owned(), format!("rw,exec,nosuid,nodev,uid={uid},gid={gid},mode=0700,size={mb}m"));
    }
    tmpfs
}

fn mounts(spec: &SessionSpec, host: &HostSide<'_>) -> Vec<Mount> {
    let mut mounts = vec![bind(host.init, INIT, true), bind(host.socket_folder, SOCKET_FOLDER, false)];
    if let Work::Durable { host_dir, read_only } = &spec.work {
        mounts.push(bind(host_dir, WORK, *read_only));
    }
    mounts
}

/// A mount, and not a `Binds` entry: the engine would make a source that is missing, as root.
fn bind(source: &Path, target: &str, read_only: bool) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.display().to_string()),
        target: Some(target.to_owned()),
        read_only: Some(read_only),
        bind_options: Some(MountBindOptions {
            propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
            ..MountBindOptions::default()
        }),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hearth_types::{RunId, SandboxId, SandboxLimits, Timestamp};

    use super::*;

    fn spec() -> SessionSpec {
        SessionSpec {
            session: SandboxId::parse("sbx_1").unwrap(),
            root_run: Some(RunId::parse("run_1").unwrap()),
            node: "node-0".into(),
            image: None,
            work: Work::Tmpfs { mb: 64 },
            network: Network::None,
            limits: SandboxLimits { cpu: Some(0.5), mem_mb: Some(256), pids: Some(64), tmpfs_mb: Some(64) },
            runtime: None,
            deadline: Timestamp::from_millis(1_000),
            env: BTreeMap::from([("EXTRA".to_owned(), "1".to_owned())]),
        }
    }

    fn made(spec: &SessionSpec, facts: &ImageFacts) -> ContainerCreateBody {
        let host = HostSide {
            init: Path::new("/opt/init"),
            socket_folder: Path::new("/run/s"),
            owner: "node_x",
            uid: 1000,
            gid: 1000,
            image: "img",
            facts,
            runtime: "runc",
            network: Some("hearth-sbx_1"),
        };
        container(spec, &host)
    }

    fn host(spec: &SessionSpec) -> HostConfig {
        made(spec, &ImageFacts::default()).host_config.unwrap()
    }

    #[test]
    fn every_container_is_hardened() {
        let container = made(&spec(), &ImageFacts::default());
        assert_eq!(container.user.as_deref(), Some("1000:1000"));
        let host = container.host_config.unwrap();
        assert_eq!(host.readonly_rootfs, Some(true));
        assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
        assert_eq!((host.cap_add, host.devices, host.pid_mode, host.userns_mode), (None, None, None, None));
        assert_eq!(host.security_opt, Some(vec!["no-new-privileges:true".to_owned()]));
        assert_eq!((host.privileged, host.auto_remove, host.init), (Some(false), Some(false), Some(false)));
        assert_eq!(host.network_mode.as_deref(), Some("none"));
        assert_eq!(host.log_config.unwrap().typ.as_deref(), Some("none"));
        assert_eq!(host.binds, None);
    }

    #[test]
    fn limits_are_the_specs_and_swap_is_none() {
        let host = host(&spec());
        assert_eq!((host.memory, host.memory_swap), (Some(268_435_456), Some(268_435_456)));
        assert_eq!(host.pids_limit, Some(64));
        let words = |pids| {
            let limits = SandboxLimits { pids: Some(pids), ..spec().limits };
            made(&SessionSpec { limits, ..spec() }, &ImageFacts::default()).cmd.unwrap()
        };
        assert!(words(63).contains(&NO_SPARE.to_owned()) && !words(64).contains(&NO_SPARE.to_owned()));
        assert_eq!((host.cpu_period, host.cpu_quota, host.nano_cpus), (Some(100_000), Some(50_000), None));
    }

    #[test]
    fn work_and_tmp_are_writable_executable_and_sized() {
        let tmpfs = host(&spec()).tmpfs.unwrap();
        assert_eq!(tmpfs["/work"], "rw,exec,nosuid,nodev,uid=1000,gid=1000,mode=0700,size=64m");
        assert!(tmpfs["/tmp"].starts_with("rw,exec,") && tmpfs["/tmp"].ends_with("size=64m"));
    }

    #[test]
    fn a_durable_workspace_is_mounted_and_no_tmpfs_hides_it() {
        let work = Work::Durable { host_dir: "/srv/acme/build".into(), read_only: true };
        let host = host(&SessionSpec { work, ..spec() });
        assert!(!host.tmpfs.unwrap().contains_key("/work"));
        let mounts = host.mounts.unwrap();
        let work = mounts.iter().find(|mount| mount.target.as_deref() == Some("/work")).unwrap();
        assert_eq!((work.source.as_deref(), work.read_only), (Some("/srv/acme/build"), Some(true)));
        assert!(
            mounts
                .iter()
                .any(|mount| mount.target.as_deref() == Some("/.hearth/init") && mount.read_only == Some(true))
        );
    }

    #[test]
    fn t6_the_images_path_stays() {
        let facts = ImageFacts { path: Some("/opt/tool/bin:/bin".into()), volumes: vec![] };
        let env = made(&spec(), &facts).env.unwrap();
        let path = env.iter().find(|line| line.starts_with("PATH=")).unwrap();
        assert!(path.ends_with(":/opt/tool/bin:/bin"), "{path}");
        assert!(env.contains(&"EXTRA=1".to_owned()) && env.contains(&"HOME=/work/.home".to_owned()));
    }

    #[test]
    fn t9_nothing_is_made_in_a_workspace_that_is_not_verified() {
        let durable = |read_only| Work::Durable { host_dir: "/srv/acme/build".into(), read_only };
        let env = |work| made(&SessionSpec { work, ..spec() }, &ImageFacts::default()).env.unwrap();
        assert!(!env(durable(false)).iter().any(|line| line.starts_with("HOME=")));
        assert!(env(durable(true)).contains(&"HOME=/tmp/home".to_owned()));
    }

    #[test]
    fn volumes_of_the_image_get_no_disk() {
        let facts = ImageFacts { path: None, volumes: vec!["/data".into(), "/work".into()] };
        let tmpfs = made(&spec(), &facts).host_config.unwrap().tmpfs.unwrap();
        assert!(tmpfs["/data"].contains("size=16m"));
        assert!(tmpfs["/work"].contains("size=64m"));
    }

    #[test]
    fn labels_say_whose_it_is() {
        let labels = made(&spec(), &ImageFacts::default()).labels.unwrap();
        let expected = [
            ("hearth.node", "node-0"),
            ("hearth.session", "sbx_1"),
            ("hearth.root_run", "run_1"),
            ("hearth.owner", "node_x"),
        ];
        assert_eq!(labels.len(), expected.len());
        for (name, value) in expected {
            assert_eq!(labels[name], value);
        }
        assert_eq!(container_name(&spec().session), "hearth-sbx_1");
    }

    #[test]
    fn egress_is_had_only_when_it_is_asked_for() {
        let open = host(&SessionSpec { network: Network::Egress, ..spec() });
        assert_eq!(open.network_mode.as_deref(), Some("hearth-sbx_1"), "a network of its own");
    }
}
