//! The `local` driver, L1: a session is a folder, and a detached init with what confinement the host
//! offers. With bubblewrap it has namespaces of its own; without, it is a process tree in its folder.
//!
//! It is for one trusted tenant. What does not hold on a host is said in [`Driver::notice`].

mod clear;
mod confine;
mod host;
mod notice;
mod record;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use hearth_types::{Isolation, SandboxId, SandboxLimits, Timestamp};
use rustix::process::geteuid;
use tokio::fs;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use self::confine::{Confinement, Ground, Launch, session_user};
use self::host::Host;
use self::record::{Folder, Record};
use crate::driver::{Driver, Network, SessionSpec, SessionState, Started, Work};
use crate::init::{self, InitClient};
use crate::node::measure_folder;
use crate::{Error, ErrorKind, SessionUsage, ownership};

/// How long a session may take to start.
const START: Duration = Duration::from_secs(15);
/// Between two looks at whether its init listens already.
const START_AGAIN: Duration = Duration::from_millis(2);
/// Bytes of a failed start's log that are told.
const LOG_BYTES: usize = 2_000;

/// Whether bubblewrap is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Bwrap {
    /// When it is installed and a session in it works.
    #[default]
    Auto,
    Off,
}

#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The driver's own folder. One process uses it at a time.
    pub state_dir: PathBuf,
    pub bwrap: Bwrap,
    /// The environment of this host, of which `PATH`, the language, the time zone and the places of
    /// toolchains are passed on.
    pub host_env: BTreeMap<String, String>,
}

#[derive(Debug)]
pub struct LocalDriver {
    ground: Ground,
    sessions: PathBuf,
    notice: String,
}

impl LocalDriver {
    /// Installs the init and finds out, by trying, what this host offers.
    pub async fn open(options: LocalOptions) -> Result<Self, Error> {
        let sessions = options.state_dir.join("sessions");
        for folder in [&options.state_dir, &sessions] {
            make_folder(folder, 0o711).await?;
        }
        let init = init::install(&options.state_dir)
            .await
            .map_err(|error| Error::caused(ErrorKind::Internal, "the sandbox init cannot be installed", error))?;
        let host = Host::of(&options.host_env);
        let root = geteuid().is_root();
        if options.bwrap == Bwrap::Auto
            && let Some(program) = find_program("bwrap", options.host_env.get("PATH"))
        {
            let sized = knows_option(&program, "--size").await;
            let confinement = Confinement::Bwrap { program, sized };
            let ground = Ground { confinement, host: host.clone(), init: init.clone(), root, user: session_user(root) };
            let driver = Self::on(ground, sessions.clone());
            match driver.try_out().await {
                Ok(()) => return Ok(driver),
                Err(error) => tracing::info!(
                    %error,
                    cause = std::error::Error::source(&error),
                    "bubblewrap does not work on this host; sessions do without"
                ),
            }
        }
        let cut_network = probe(&init).await;
        let open_to_all =
            host.folders.iter().chain([&sessions, &init]).all(|path| ownership::reachable_by_others(path));
        let user = session_user(root).filter(|_| open_to_all);
        Ok(Self::on(Ground { confinement: Confinement::Process { cut_network }, host, init, root, user }, sessions))
    }

    fn on(ground: Ground, sessions: PathBuf) -> Self {
        let notice = notice::notice(&ground);
        Self { ground, sessions, notice }
    }

    /// `bwrap` or `process`.
    pub const fn runtime(&self) -> &'static str {
        self.ground.confinement.runtime()
    }

    /// Starts a session, talks to it, ends it.
    async fn try_out(&self) -> Result<(), Error> {
        let spec = SessionSpec {
            // Always the same, so that one that was left half-way is cleared away by the next try.
            session: SandboxId::derive(&["local", "try-out"]),
            root_run: None,
            node: String::new(),
            image: None,
            work: Work::Tmpfs { mb: 1 },
            network: Network::None,
            limits: SandboxLimits::default(),
            runtime: None,
            // The client's first word ends it well before.
            deadline: Timestamp::from_millis(i64::MAX),
            env: BTreeMap::new(),
        };
        let started = self.start(&spec).await;
        self.stop(&spec.session).await?;
        started.map(drop)
    }

    /// Refuses what this driver cannot give, rather than leaving it out.
    fn check(&self, spec: &SessionSpec) -> Result<(), Error> {
        if let Some(image) = &spec.image {
            let message = format!("local sandbox sessions have no images; leave `image` ({image}) out");
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let runtime = self.runtime();
        if let Some(asked) = spec.runtime.as_deref().filter(|asked| *asked != runtime) {
            let message = format!("the runtime {asked} is not here; local sandbox sessions run with {runtime}");
            return Err(Error::new(ErrorKind::IsolationUnavailable, message));
        }
        let read_only = matches!(spec.work, Work::Durable { read_only: true, .. });
        if read_only && matches!(self.ground.confinement, Confinement::Process { .. }) {
            let message = "a read-only workspace needs bubblewrap or a container, and this host offers neither";
            return Err(Error::new(ErrorKind::IsolationUnavailable, message));
        }
        Ok(())
    }

    async fn make_session(&self, spec: &SessionSpec, folder: &Folder) -> Result<Launch, Error> {
        let launch = self.ground.launch(spec, folder);
        make_folder(folder.path(), 0o711).await?;
        let record = Record { runtime: self.runtime().to_owned(), workspace_path: launch.workspace_path.clone() };
        folder.write(&record).await.map_err(no_folder)?;
        make_folder(&folder.shared(), 0o711).await?;
        let mut own = Vec::new();
        if matches!(self.ground.confinement, Confinement::Process { .. }) {
            make_folder(&folder.tmp(), 0o700).await?;
            own.push(folder.tmp());
            if matches!(spec.work, Work::Tmpfs { .. }) {
                make_folder(&folder.work(), 0o700).await?;
                own.push(folder.work());
            }
        }
        if let Work::Durable { host_dir, read_only: false } = &spec.work {
            own.push(host_dir.clone());
        }
        if self.ground.root {
            let (uid, gid) = self.ground.user.unwrap_or((0, 0));
            ownership::hand_all_over(own, uid, gid).await?;
        }
        Ok(launch)
    }

    /// Starts the init so that it depends on nothing here, and waits until it answers.
    async fn launch(&self, spec: &SessionSpec, folder: &Folder, launch: &Launch) -> Result<(), Error> {
        let mut command = Command::new(&self.ground.init);
        command.arg("detach").arg("--log").arg(folder.log()).arg("--").args(&launch.words);
        command.env_clear().envs(&launch.env);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let output = command
            .output()
            .await
            .map_err(|error| Error::caused(ErrorKind::Internal, "the sandbox init cannot be run", error))?;
        if !output.status.success() {
            return Err(failed_start(&output.stderr));
        }
        let give_up = Instant::now() + START;
        loop {
            match InitClient::connect(&folder.socket()).await {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() >= give_up => return Err(error),
                Err(_) => {}
            }
            // It writes there only what ends it.
            let log = fs::read(folder.log()).await.unwrap_or_default();
            if !log.is_empty() && !clear::any_marked(&spec.session).await? {
                return Err(failed_start(&log));
            }
            sleep(START_AGAIN).await;
        }
    }

    async fn running(&self, folder: &Folder) -> Result<Option<Started>, Error> {
        let Some(record) = folder.read().await.map_err(no_folder)? else { return Ok(None) };
        match InitClient::connect(&folder.socket()).await {
            Ok(_) => Ok(Some(Started {
                socket: folder.socket(),
                workspace_path: record.workspace_path,
                runtime: record.runtime,
            })),
            Err(error) if error.kind() == ErrorKind::SessionLost => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl Driver for LocalDriver {
    fn kind(&self) -> &'static str {
        "local"
    }

    fn isolation(&self) -> Isolation {
        Isolation::L1
    }

    fn notice(&self) -> Option<String> {
        Some(self.notice.clone())
    }

    async fn start(&self, spec: &SessionSpec) -> Result<Started, Error> {
        self.check(spec)?;
        let folder = Folder::of(&self.sessions, &spec.session);
        if let Some(started) = self.running(&folder).await? {
            return Ok(started);
        }
        // What an earlier start that broke off may have left.
        if fs::try_exists(folder.path()).await.map_err(no_folder)? {
            self.stop(&spec.session).await?;
        }
        let launch = self.make_session(spec, &folder).await?;
        if let Err(error) = self.launch(spec, &folder, &launch).await {
            self.stop(&spec.session).await?;
            return Err(error);
        }
        Ok(Started {
            socket: folder.socket(),
            workspace_path: launch.workspace_path,
            runtime: self.runtime().to_owned(),
        })
    }

    async fn stop(&self, session: &SandboxId) -> Result<(), Error> {
        let folder = Folder::of(&self.sessions, session);
        let shut_down = match InitClient::connect(&folder.socket()).await {
            Ok(client) => client.shutdown().await.is_ok(),
            Err(_) => false,
        };
        // Looked for all the same: hostile code may have taken the init's place at the socket.
        clear::kill_marked(session, if shut_down { 1 } else { clear::LOOKS }).await?;
        clear::remove(folder.path()).await
    }

    async fn usage(&self, session: &SandboxId) -> Result<Option<SessionUsage>, Error> {
        let usage = clear::usage(session).await?;
        let work = Folder::of(&self.sessions, session).work();
        // A session with a durable workspace has none of its own.
        let disk_bytes = tokio::task::spawn_blocking(move || held_bytes(&work)).await.ok().flatten();
        Ok(Some(SessionUsage { disk_bytes, ..usage }))
    }

    async fn inspect(&self, session: &SandboxId) -> Result<SessionState, Error> {
        let running = self.running(&Folder::of(&self.sessions, session)).await?;
        Ok(if running.is_some() { SessionState::Running } else { SessionState::Gone })
    }

    async fn reattach(&self, spec: &SessionSpec) -> Result<Started, Error> {
        let running = self.running(&Folder::of(&self.sessions, &spec.session)).await?;
        running.ok_or_else(|| Error::new(ErrorKind::SessionLost, "the sandbox session is gone; open another"))
    }
}

fn held_bytes(work: &Path) -> Option<u64> {
    let folder = std::fs::File::open(work).ok()?;
    measure_folder(&folder.into()).ok().map(|size| size.bytes)
}

async fn make_folder(path: &Path, mode: u32) -> Result<(), Error> {
    fs::create_dir_all(path).await.map_err(no_folder)?;
    fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).await.map_err(no_folder)
}

fn no_folder(error: std::io::Error) -> Error {
    Error::caused(ErrorKind::Internal, "the state folder of local sandbox sessions cannot be used", error)
}

fn failed_start(log: &[u8]) -> Error {
    let end = log.len().min(LOG_BYTES);
    let log = std::io::Error::other(String::from_utf8_lossy(&log[..end]).trim().to_owned());
    Error::caused(ErrorKind::Unavailable, "the sandbox session did not start", log)
}

fn find_program(name: &str, path: Option<&String>) -> Option<PathBuf> {
    let path = path?;
    std::env::split_paths(path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

async fn knows_option(program: &Path, option: &str) -> bool {
    let help = Command::new(program).arg("--help").env_clear().stdin(Stdio::null()).output().await;
    help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains(&format!("{option} ")))
}

/// Whether an init can leave the host's network here.
async fn probe(init: &Path) -> bool {
    let mut command = Command::new(init);
    command.arg("probe-network").env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}
