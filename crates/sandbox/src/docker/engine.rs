//! Calls to the engine: each with a deadline, each failure with a kind.

use std::future::Future;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error as EngineError;
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerStateStatusEnum, NetworkCreateRequest, SystemInfo,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ListContainersOptionsBuilder, ListImagesOptions, RemoveContainerOptionsBuilder,
    StatsOptionsBuilder,
};
use futures::StreamExt as _;
use hearth_types::SandboxId;
use std::collections::HashMap;

use crate::spec::{ImageFacts, LABEL_OWNER, LABEL_SESSION};
use crate::{Error, ErrorKind, SessionUsage};

/// Questions.
const ASK_DEADLINE: Duration = Duration::from_secs(20);
/// Create, start and remove, on a machine under load.
const ACT_DEADLINE: Duration = Duration::from_secs(60);
/// Of the client library, longer than ours, so that ours speaks.
const CLIENT_TIMEOUT_S: u64 = 120;

#[derive(Clone)]
pub(crate) struct Engine {
    docker: Docker,
}

/// What is there under a container's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub owner: Option<String>,
    pub running: bool,
    pub runtime: String,
    /// How it ended, for messages.
    pub ended: String,
}

impl Engine {
    /// Connects and agrees on a version of the protocol.
    pub(crate) async fn connect(socket: &str) -> Result<Self, Error> {
        let docker =
            Docker::connect_with_unix(socket, CLIENT_TIMEOUT_S, bollard::API_DEFAULT_VERSION).map_err(out_of_reach)?;
        let docker = within(ASK_DEADLINE, docker.negotiate_version()).await?;
        Ok(Self { docker })
    }

    pub(crate) async fn facts(&self) -> Result<SystemInfo, Error> {
        within(ASK_DEADLINE, self.docker.info()).await
    }

    /// What the container uses, read once.
    pub(crate) async fn usage(&self, name: &str) -> Result<Option<SessionUsage>, Error> {
        let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
        let mut stats = Box::pin(self.docker.stats(name, Some(options)));
        let first = within(ASK_DEADLINE, async { stats.next().await.transpose() }).await?;
        Ok(first.map(|stats| {
            let nanoseconds = stats.cpu_stats.and_then(|cpu| cpu.cpu_usage?.total_usage).unwrap_or(0);
            let memory = stats.memory_stats.unwrap_or_default();
            // Pages of files that nobody used lately are taken back before anybody is killed.
            let of = |name: &str| memory.stats.as_ref().and_then(|stats| stats.get(name)).copied().unwrap_or(0);
            let cached = of("inactive_file").max(of("total_inactive_file"));
            SessionUsage {
                cpu_seconds: Duration::from_nanos(nanoseconds).as_secs_f64(),
                memory_bytes: memory.usage.unwrap_or(0).saturating_sub(cached),
                processes: stats.pids_stats.and_then(|pids| pids.current).unwrap_or(0),
                disk_bytes: None,
            }
        }))
    }

    /// The names of all images.
    pub(crate) async fn images(&self) -> Result<Vec<String>, Error> {
        let images = within(ASK_DEADLINE, self.docker.list_images(None::<ListImagesOptions>)).await?;
        let names = images.into_iter().flat_map(|image| image.repo_tags);
        Ok(names.filter(|name| !name.contains("<none>")).collect())
    }

    /// Nothing when the image is not there; it is never fetched.
    pub(crate) async fn image(&self, name: &str) -> Result<Option<ImageFacts>, Error> {
        let Some(image) = absent(within(ASK_DEADLINE, self.docker.inspect_image(name)).await)? else { return Ok(None) };
        let config = image.config.unwrap_or_default();
        let env = config.env.unwrap_or_default();
        let path = env.iter().find_map(|line| line.strip_prefix("PATH=")).map(str::to_owned);
        Ok(Some(ImageFacts { path, volumes: config.volumes.unwrap_or_default() }))
    }

    /// False when a container of this name is there already.
    pub(crate) async fn create(&self, name: &str, body: ContainerCreateBody) -> Result<bool, Error> {
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        match within(ACT_DEADLINE, self.docker.create_container(Some(options), body)).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn start(&self, name: &str) -> Result<(), Error> {
        let started = within(ACT_DEADLINE, self.docker.start_container(name, None)).await;
        // The engine calls whatever its runtime misses a bad request, a mount that went away among it; the
        // request itself is a name.
        started.map_err(|error| match error.kind() {
            ErrorKind::Internal => {
                Error::caused(ErrorKind::Unavailable, "the container did not start; the node's log says why", error)
            }
            _ => error,
        })
    }

    pub(crate) async fn find(&self, name: &str) -> Result<Option<Found>, Error> {
        Ok(absent(within(ASK_DEADLINE, self.docker.inspect_container(name, None)).await)?.map(found))
    }

    /// Kills and removes it, with its anonymous volumes. Succeeds when it is not there.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Error> {
        let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
        match within(ACT_DEADLINE, self.docker.remove_container(name, Some(options))).await {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            // Somebody else's removal of it is under way.
            Err(error) if error.kind() == ErrorKind::Conflict => self.until_gone(name).await,
            Err(error) => Err(error),
        }
    }

    /// A network of one session, on a bridge of this name. One that is there already will do.
    pub(crate) async fn create_network(
        &self,
        name: &str,
        bridge: &str,
        session: &SandboxId,
        owner: &str,
    ) -> Result<(), Error> {
        if absent(within(ASK_DEADLINE, self.docker.inspect_network(name, None)).await)?.is_some() {
            return Ok(());
        }
        let text = |pairs: [(&str, &str); 2]| {
            Some(pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
        };
        let request = NetworkCreateRequest {
            name: name.to_owned(),
            driver: Some("bridge".to_owned()),
            enable_ipv6: Some(false),
            options: text([
                ("com.docker.network.bridge.name", bridge),
                ("com.docker.network.bridge.enable_icc", "false"),
            ]),
            labels: text([(LABEL_SESSION, session.as_str()), (LABEL_OWNER, owner)]),
            ..NetworkCreateRequest::default()
        };
        match tokio::time::timeout(ACT_DEADLINE, self.docker.create_network(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(EngineError::DockerResponseServerError { message, .. })) if message.contains("address pool") => {
                let message = "the container engine has no range of addresses left for another session with egress; \
                               close one, or give the engine more in default-address-pools";
                Err(Error::new(ErrorKind::NoSpace, message))
            }
            Ok(Err(error)) => Err(refine(error)),
            Err(_) => Err(Error::new(ErrorKind::Unavailable, "the container engine did not answer in time; try again")),
        }
    }

    /// Succeeds when it is not there.
    pub(crate) async fn remove_network(&self, name: &str) -> Result<(), Error> {
        absent(within(ACT_DEADLINE, self.docker.remove_network(name)).await).map(drop)
    }

    async fn until_gone(&self, name: &str) -> Result<(), Error> {
        let wait = async {
            while self.find(name).await?.is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(())
        };
        match tokio::time::timeout(ACT_DEADLINE, wait).await {
            Ok(result) => result,
            Err(_) => Err(Error::new(ErrorKind::Unavailable, "a container is being removed and does not go")),
        }
    }

    /// The sessions of all containers, running or not, that carry this owner's label.
    pub(crate) async fn owned(&self, owner: &str) -> Result<Vec<String>, Error> {
        let label = format!("{LABEL_OWNER}={owner}");
        let filters = HashMap::from([("label".to_owned(), vec![label])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let containers = within(ASK_DEADLINE, self.docker.list_containers(Some(options))).await?;
        Ok(containers.into_iter().filter_map(|container| container.labels?.remove(LABEL_SESSION)).collect())
    }
}

fn found(container: ContainerInspectResponse) -> Found {
    let state = container.state.unwrap_or_default();
    let config = container.config.unwrap_or_default();
    let alive = [ContainerStateStatusEnum::RUNNING, ContainerStateStatusEnum::PAUSED];
    let error = state.error.filter(|error| !error.is_empty()).map(|error| format!(": {error}")).unwrap_or_default();
    Found {
        owner: config.labels.and_then(|mut labels| labels.remove(LABEL_OWNER)),
        running: state.status.is_some_and(|status| alive.contains(&status)),
        runtime: container.host_config.and_then(|host| host.runtime).unwrap_or_default(),
        ended: format!("exit code {}{error}", state.exit_code.unwrap_or_default()),
    }
}

async fn within<T>(deadline: Duration, call: impl Future<Output = Result<T, EngineError>>) -> Result<T, Error> {
    match tokio::time::timeout(deadline, call).await {
        Ok(result) => result.map_err(refine),
        Err(_) => Err(Error::new(
            ErrorKind::Unavailable,
            format!("the container engine did not answer within {} s; try again", deadline.as_secs()),
        )),
    }
}

fn out_of_reach(error: EngineError) -> Error {
    Error::caused(ErrorKind::Unavailable, "the container engine is out of reach; try again", error)
}

/// What the engine says goes to the log: it names paths of the host.
fn refine(error: EngineError) -> Error {
    let EngineError::DockerResponseServerError { status_code, message } = &error else { return out_of_reach(error) };
    let (kind, shown) = match status_code {
        404 => (ErrorKind::NotFound, "the container engine has no such thing"),
        409 => (ErrorKind::Conflict, "the container engine has another thing of this name"),
        _ if message.to_ascii_lowercase().contains("unknown runtime") => {
            (ErrorKind::IsolationUnavailable, "the container engine has no such runtime; nothing weaker was tried")
        }
        _ if message.contains("invalid mount config") => {
            (ErrorKind::Unavailable, "a folder of the session went away while it was opened; try again")
        }
        // It lives and could not do it: no space left, a cgroup or a mount that failed.
        500.. => (ErrorKind::Unavailable, "the container engine could not do it; the node's log says why"),
        _ => (ErrorKind::Internal, "the container engine refused the request; the node's log says why"),
    };
    Error::caused(kind, shown, error)
}

fn absent<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status_code: u16, message: &str) -> ErrorKind {
        refine(EngineError::DockerResponseServerError { status_code, message: message.to_owned() }).kind()
    }

    #[test]
    fn a_refusal_has_the_kind_of_its_status() {
        assert_eq!(kind(404, "No such container"), ErrorKind::NotFound);
        assert_eq!(kind(409, "already in use"), ErrorKind::Conflict);
        assert_eq!(kind(500, "no space left on device"), ErrorKind::Unavailable);
        assert_eq!(kind(400, "Unknown runtime specified kata"), ErrorKind::IsolationUnavailable);
        let swapped = "invalid mount config for type \"bind\": bind source path does not exist: /srv/acme/build";
        assert_eq!(kind(400, swapped), ErrorKind::Unavailable);
        assert_eq!(kind(400, "invalid reference format"), ErrorKind::Internal);
        assert_eq!(refine(EngineError::RequestTimeoutError).kind(), ErrorKind::Unavailable);
    }

    #[tokio::test]
    async fn a_daemon_that_is_not_there_is_unavailable() {
        let Err(error) = Engine::connect("/nonexistent/docker.sock").await else { panic!("connected to nothing") };
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}
