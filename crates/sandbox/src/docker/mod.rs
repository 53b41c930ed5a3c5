//! L2 and L3: a session is a container of the Docker Engine, with our init as its process 1.
//!
//! One driver is one isolation level of the engine; [`DockerDriver::probe`] finds out which there are.

mod egress;
mod engine;
mod folders;
mod runtimes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::SystemInfo;
use hearth_types::{Isolation, SandboxId};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::docker::egress::Egress;
use crate::docker::engine::{Engine, Found};
use crate::docker::folders::Folders;
use crate::init::InitClient;
use crate::spec::{HostSide, ImageFacts, SOCKET, WORK, container, container_name};
use crate::{Driver, Error, ErrorKind, Network, SessionSpec, SessionState, SessionUsage, Started, Work, ownership};

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// From the start of the container to the first answer of its init.
const INIT_DEADLINE: Duration = Duration::from_secs(30);
/// Containers that come up at once.
const STARTS: usize = 8;
const INIT_PAUSE: Duration = Duration::from_millis(5);

#[derive(Debug, Clone)]
pub struct DockerOptions {
    /// The engine's Unix socket.
    pub socket: PathBuf,
    /// The node's state folder; this driver keeps to `docker/` in it.
    pub state_dir: PathBuf,
    /// The image for sessions that name none.
    pub image: String,
}

impl DockerOptions {
    /// With the engine that `DOCKER_HOST` names, else the one at the usual place.
    pub fn new(
        vars: &BTreeMap<String, String>,
        state_dir: impl Into<PathBuf>,
        image: impl Into<String>,
    ) -> Result<Self, Unusable> {
        let socket = match vars.get("DOCKER_HOST").filter(|host| !host.is_empty()) {
            None => DEFAULT_SOCKET,
            Some(host) => host.strip_prefix("unix://").ok_or_else(|| Unusable::RemoteHost { host: host.clone() })?,
        };
        Ok(Self { socket: socket.into(), state_dir: state_dir.into(), image: image.into() })
    }
}

/// Why Docker cannot be used here, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("DOCKER_HOST is {host:?}; allowed: unix://PATH, an engine on this host, since its files are mounted")]
    RemoteHost { host: String },
    #[error("no Docker daemon answers at {}; start dockerd, or name another in DOCKER_HOST", socket.display())]
    NoDaemon { socket: PathBuf, source: Error },
    #[error(
        "the session image {image} is not there; build it with `cargo xtask image`, or name another in SANDBOX_IMAGE"
    )]
    NoImage { image: String },
    #[error("the Docker daemon has no runtime whose isolation is known, only {found}")]
    NoRuntime { found: String },
    #[error("the Docker driver cannot use its part of the state folder: {0}")]
    NoState(#[source] Error),
}

#[derive(Clone)]
pub struct DockerDriver {
    shared: Arc<Shared>,
    isolation: Isolation,
    /// The first is used where a spec names none.
    runtimes: Vec<String>,
    notice: Option<String>,
}

struct Shared {
    engine: Engine,
    /// Held while a container comes up: a crowd of them would only miss their deadlines together.
    starts: Semaphore,
    folders: Folders,
    egress: Egress,
    image: String,
}

impl DockerDriver {
    /// One driver per level that the engine offers, its default's level first.
    pub async fn probe(options: DockerOptions) -> Result<Vec<Self>, Unusable> {
        let silent = |source| Unusable::NoDaemon { socket: options.socket.clone(), source };
        let engine = Engine::connect(&options.socket.display().to_string()).await.map_err(silent)?;
        let facts = engine.facts().await.map_err(silent)?;
        if engine.image(&options.image).await.map_err(silent)?.is_none() {
            return Err(Unusable::NoImage { image: options.image });
        }
        let names: Vec<String> = facts.runtimes.clone().unwrap_or_default().into_keys().collect();
        let found = names.join(", ");
        let levels = runtimes::by_level(facts.default_runtime.as_deref().unwrap_or("runc"), names);
        if levels.is_empty() {
            return Err(Unusable::NoRuntime { found });
        }
        let folders = Folders::open(&options.state_dir).await.map_err(Unusable::NoState)?;
        let egress = Egress::probe(&options.state_dir.join("docker")).await.map_err(Unusable::NoState)?;
        let starts = Semaphore::new(STARTS);
        let shared = Arc::new(Shared { engine, starts, folders, egress, image: options.image });
        let notice = notice(&facts);
        let driver =
            |(isolation, runtimes)| Self { shared: shared.clone(), isolation, runtimes, notice: notice.clone() };
        Ok(levels.into_iter().map(driver).collect())
    }

    /// Those that a session may name, the default first.
    pub(crate) fn runtimes(&self) -> &[String] {
        &self.runtimes
    }

    fn runtime<'a>(&'a self, spec: &'a SessionSpec) -> Result<&'a str, Error> {
        let asked = spec.runtime.as_deref().or(self.runtimes.first().map(String::as_str)).unwrap_or_default();
        if self.has_runtime(asked) {
            return Ok(asked);
        }
        let level = self.isolation.as_str();
        let message = format!("the Docker daemon has no runtime {asked} of {level}; nothing weaker was tried");
        Err(Error::new(ErrorKind::IsolationUnavailable, message))
    }

    async fn image(&self, name: &str) -> Result<ImageFacts, Error> {
        if let Some(facts) = self.shared.engine.image(name).await? {
            return Ok(facts);
        }
        let ours = name == self.shared.image;
        let (kind, advice) = if ours {
            (ErrorKind::Unavailable, "the operator builds it with `cargo xtask image`")
        } else {
            (ErrorKind::NotFound, "images are not fetched: the operator has to put it there")
        };
        Err(Error::new(kind, format!("the image {name} is not on this host; {advice}")))
    }

    /// The container of the session, if it is there and is this node's.
    async fn ours(&self, session: &SandboxId) -> Result<Option<Found>, Error> {
        let found = self.shared.engine.find(&container_name(session)).await?;
        match &found {
            Some(there) if there.owner.as_deref() != Some(self.shared.folders.identity()) => {
                let message = "a container of this session's name belongs to somebody else; it is left alone";
                Err(Error::new(ErrorKind::Internal, message))
            }
            _ => Ok(found),
        }
    }

    /// Makes the container, in place of one of ours that does not run. False: one runs already.
    async fn create(&self, spec: &SessionSpec, runtime: &str) -> Result<bool, Error> {
        let shared = &self.shared;
        let image = spec.image.as_deref().unwrap_or(&shared.image);
        let facts = self.image(image).await?;
        let folder = shared.folders.make(&spec.session)?;
        let (uid, gid) = shared.folders.user();
        if let Work::Durable { host_dir, .. } = &spec.work {
            ownership::hand_all_over(vec![host_dir.clone()], uid, gid).await?;
        }
        let network = match spec.network {
            Network::None => None,
            Network::Egress => {
                Some(shared.egress.open(&shared.engine, &spec.session, shared.folders.identity()).await?)
            }
        };
        let host = HostSide {
            init: shared.folders.init(),
            socket_folder: &folder,
            owner: shared.folders.identity(),
            uid,
            gid,
            image,
            facts: &facts,
            runtime,
            network: network.as_deref(),
        };
        let (name, body) = (container_name(&spec.session), container(spec, &host));
        if shared.engine.create(&name, body.clone()).await? {
            return Ok(true);
        }
        if self.ours(&spec.session).await?.is_some_and(|there| there.running) {
            return Ok(false);
        }
        shared.engine.remove(&name).await?;
        if shared.engine.create(&name, body).await? {
            return Ok(true);
        }
        Err(Error::new(ErrorKind::Unavailable, "the container's name is being taken by something else; try again"))
    }

    /// Waits for the first answer of the init.
    async fn answered(&self, session: &SandboxId) -> Result<PathBuf, Error> {
        let socket = self.shared.folders.of(session).join(SOCKET);
        let until = Instant::now() + INIT_DEADLINE;
        loop {
            let error = match InitClient::connect(&socket).await {
                Ok(_) => return Ok(socket),
                Err(error) => error,
            };
            let there = if socket.exists() { None } else { Some(self.ours(session).await?) };
            match there {
                Some(None) => return Err(Error::new(ErrorKind::SessionLost, "the container is gone")),
                Some(Some(there)) if !there.running => {
                    let message = format!("the session's init did not start: {}", there.ended);
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                _ if Instant::now() >= until => {
                    let message = "the session's init did not answer in time; try again";
                    return Err(Error::caused(ErrorKind::Unavailable, message, error));
                }
                _ => tokio::time::sleep(INIT_PAUSE).await,
            }
        }
    }
}

#[async_trait]
impl Driver for DockerDriver {
    fn kind(&self) -> &'static str {
        "docker"
    }

    fn isolation(&self) -> Isolation {
        self.isolation
    }

    fn notice(&self) -> Option<String> {
        self.notice.clone()
    }

    fn has_runtime(&self, name: &str) -> bool {
        self.runtimes.iter().any(|runtime| runtime == name)
    }

    async fn images(&self) -> Result<Vec<String>, Error> {
        self.shared.engine.images().await
    }

    async fn owned(&self) -> Result<Vec<SandboxId>, Error> {
        let containers = self.shared.engine.owned(self.shared.folders.identity()).await?;
        let mut owned: Vec<SandboxId> = containers.iter().filter_map(|id| SandboxId::parse(id).ok()).collect();
        owned.extend(self.shared.folders.sessions()?);
        owned.extend(self.shared.egress.sessions()?);
        owned.sort();
        owned.dedup();
        Ok(owned)
    }

    async fn start(&self, spec: &SessionSpec) -> Result<Started, Error> {
        let runtime = self.runtime(spec)?;
        let closed = |_| Error::new(ErrorKind::Internal, "the driver is shut down");
        let _turn = self.shared.starts.acquire().await.map_err(closed)?;
        if self.create(spec, runtime).await? {
            self.shared.engine.start(&container_name(&spec.session)).await?;
        }
        let socket = self.answered(&spec.session).await?;
        self.shared.folders.seal(&spec.session)?;
        Ok(Started { socket, workspace_path: WORK.to_owned(), runtime: runtime.to_owned() })
    }

    async fn stop(&self, session: &SandboxId) -> Result<(), Error> {
        if self.ours(session).await?.is_some() {
            self.shared.engine.remove(&container_name(session)).await?;
        }
        self.shared.egress.close(&self.shared.engine, session).await?;
        self.shared.folders.remove(session)
    }

    async fn usage(&self, session: &SandboxId) -> Result<Option<SessionUsage>, Error> {
        self.shared.engine.usage(&container_name(session)).await
    }

    async fn inspect(&self, session: &SandboxId) -> Result<SessionState, Error> {
        let running = self.ours(session).await?.is_some_and(|there| there.running);
        Ok(if running { SessionState::Running } else { SessionState::Gone })
    }

    async fn reattach(&self, spec: &SessionSpec) -> Result<Started, Error> {
        let lost = || Error::new(ErrorKind::SessionLost, "the session's container is gone");
        let there = self.ours(&spec.session).await?.filter(|there| there.running).ok_or_else(lost)?;
        self.shared.egress.check(&spec.session).await?;
        let socket = self.answered(&spec.session).await?;
        // The process that started it may have died before it could.
        self.shared.folders.seal(&spec.session)?;
        Ok(Started { socket, workspace_path: WORK.to_owned(), runtime: there.runtime })
    }
}

/// What the daemon says that it cannot hold a container to.
fn notice(facts: &SystemInfo) -> Option<String> {
    let seccomp = facts.security_options.iter().flatten().any(|option| option.starts_with("name=seccomp"));
    let missing: Vec<&str> = [
        (facts.memory_limit == Some(false), "memory is not limited"),
        (facts.swap_limit == Some(false), "swap is not limited"),
        (facts.pids_limit == Some(false), "the number of processes is not limited"),
        (facts.cpu_cfs_quota == Some(false), "CPU time is not limited"),
        (!seccomp, "system calls are not filtered"),
    ]
    .into_iter()
    .filter_map(|(missing, words)| missing.then_some(words))
    .collect();
    (!missing.is_empty()).then(|| format!("on this host {}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_cannot_limit_is_said() {
        let whole =
            SystemInfo { security_options: Some(vec!["name=seccomp,profile=default".into()]), ..SystemInfo::default() };
        assert_eq!(notice(&whole), None);
        let partial = SystemInfo { swap_limit: Some(false), ..whole };
        assert_eq!(notice(&partial).as_deref(), Some("on this host swap is not limited"));
        assert!(notice(&SystemInfo::default()).unwrap().contains("system calls"));
    }

    #[test]
    fn only_an_engine_of_this_host_will_do() {
        let of = |host: &str| {
            let vars = BTreeMap::from([("DOCKER_HOST".to_owned(), host.to_owned())]);
            DockerOptions::new(&vars, "/state", "img").map(|options| options.socket)
        };
        assert_eq!(of("unix:///run/user/1/docker.sock").unwrap(), PathBuf::from("/run/user/1/docker.sock"));
        assert_eq!(of("").unwrap(), PathBuf::from(DEFAULT_SOCKET));
        assert!(of("tcp://10.0.0.1:2375").unwrap_err().to_string().contains("tcp://10.0.0.1:2375"));
    }

    #[tokio::test]
    async fn a_probe_says_what_is_missing() {
        let options = DockerOptions {
            socket: "/nonexistent/docker.sock".into(),
            state_dir: "/nonexistent".into(),
            image: "img".into(),
        };
        let Err(unusable) = DockerDriver::probe(options).await else { panic!("no daemon was needed") };
        assert!(matches!(unusable, Unusable::NoDaemon { .. }), "{unusable}");
    }
}
