//! The Docker Engine by its own API: a container made and started, a command run in it by its exec.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder, StatsOptionsBuilder,
};
use futures::StreamExt;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::Error;
use crate::stop::to_the_end;

/// Tells this run's containers from everybody else's.
const LABEL: &str = "hearth.load";

/// Calls of an engine about containers that others have made.
pub(crate) struct EngineCalls(Docker);

impl EngineCalls {
    /// The whole cycle of one exec: made, started, its output read to the end, its code asked for.
    pub(crate) async fn exec(&self, container: &str, line: &str) -> Result<Duration, Error> {
        let began = Instant::now();
        let options = CreateExecOptions {
            cmd: Some(vec!["sh", "-c", line]),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..CreateExecOptions::default()
        };
        let exec = self.0.create_exec(container, options).await?;
        if let StartExecResults::Attached { mut output, .. } = self.0.start_exec(&exec.id, None).await? {
            while let Some(piece) = output.next().await {
                piece?;
            }
        }
        let ended = self.0.inspect_exec(&exec.id).await?;
        match ended.exit_code {
            Some(0) => Ok(began.elapsed()),
            code => Err(Error::Answer(format!("the engine's exec ended with {code:?}"))),
        }
    }
}

/// What it has made goes with it.
pub(crate) struct BareEngine {
    docker: Docker,
    image: String,
    made: u64,
    /// Held by a container that is being made: nobody looks for what is left before that.
    making: Arc<Mutex<()>>,
}

impl BareEngine {
    /// `None` where no engine answers or the image is not there; the text says which.
    pub(crate) async fn connect(image: &str) -> Result<Self, String> {
        let said = |error: bollard::errors::Error| format!("no Docker daemon answers: {error}");
        let docker = Docker::connect_with_local_defaults().map_err(said)?;
        let docker = docker.negotiate_version().await.map_err(said)?;
        docker
            .inspect_image(image)
            .await
            .map_err(|_| format!("the image {image} is not there: `cargo xtask image`"))?;
        Ok(Self { docker, image: image.to_owned(), made: 0, making: Arc::default() })
    }

    fn label() -> String {
        std::process::id().to_string()
    }

    /// A container as hardened as a session's, doing nothing: its name, and how long create and start took.
    pub(crate) async fn start(&mut self) -> Result<(String, Duration), Error> {
        self.made += 1;
        let name = format!("hearth-load-{}-{}", std::process::id(), self.made);
        let work = "rw,exec,nosuid,nodev,uid=1000,gid=1000,mode=0700,size=512m";
        let host = HostConfig {
            network_mode: Some("none".to_owned()),
            readonly_rootfs: Some(true),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            memory: Some(2 << 30),
            memory_swap: Some(2 << 30),
            nano_cpus: Some(2_000_000_000),
            pids_limit: Some(512),
            tmpfs: Some(HashMap::from([
                ("/work".to_owned(), work.to_owned()),
                ("/tmp".to_owned(), "rw,exec,nosuid,nodev,size=512m".to_owned()),
            ])),
            ..HostConfig::default()
        };
        let body = ContainerCreateBody {
            image: Some(self.image.clone()),
            entrypoint: Some(vec!["sleep".to_owned(), "3600".to_owned()]),
            user: Some("1000:1000".to_owned()),
            working_dir: Some("/work".to_owned()),
            labels: Some(HashMap::from([(LABEL.to_owned(), Self::label())])),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        };
        let turn = self.making.clone().lock_owned().await;
        let (docker, made) = (self.docker.clone(), name.clone());
        let began = Instant::now();
        // The Engine makes it to the end, whether or not somebody still waits.
        #[allow(clippy::disallowed_methods, reason = "it is awaited here, or by the drop")]
        let making = tokio::spawn(async move {
            let _turn = turn;
            let options = CreateContainerOptionsBuilder::new().name(&made).build();
            docker.create_container(Some(options), body).await?;
            docker.start_container(&made, None).await
        });
        making.await.map_err(|error| Error::program("the Docker Engine", error.to_string()))??;
        Ok((name, began.elapsed()))
    }

    /// What many may call at once.
    pub(crate) fn calls(&self) -> EngineCalls {
        EngineCalls(self.docker.clone())
    }

    pub(crate) async fn exec(&self, container: &str, line: &str) -> Result<Duration, Error> {
        self.calls().exec(container, line).await
    }

    /// What a container has used: CPU seconds, and bytes of memory but for files that nobody reads.
    pub(crate) async fn used(&self, container: &str) -> Result<(f64, u64), Error> {
        let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
        let stats = Box::pin(self.docker.stats(container, Some(options))).next().await.transpose()?;
        let stats = stats.ok_or_else(|| Error::Answer(format!("the engine has no figures of {container}")))?;
        let cpu = stats.cpu_stats.and_then(|cpu| cpu.cpu_usage?.total_usage).unwrap_or(0);
        let memory = stats.memory_stats.unwrap_or_default();
        let cached = memory.stats.as_ref().and_then(|stats| stats.get("inactive_file")).copied().unwrap_or(0);
        let bytes = memory.usage.unwrap_or(0).saturating_sub(cached);
        Ok((Duration::from_nanos(cpu).as_secs_f64(), bytes))
    }

    pub(crate) async fn remove(&self, container: &str) -> Result<(), Error> {
        let options = RemoveContainerOptionsBuilder::new().force(true).build();
        Ok(self.docker.remove_container(container, Some(options)).await?)
    }

    /// Removes whatever this process has made, also after an interruption.
    async fn clear(&self) -> Result<(), Error> {
        let _nobody = self.making.lock().await;
        let filters = HashMap::from([("label", vec![format!("{LABEL}={}", Self::label())])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        for found in self.docker.list_containers(Some(options)).await? {
            if let Some(id) = found.id {
                self.remove(&id).await?;
            }
        }
        Ok(())
    }
}

impl Drop for BareEngine {
    fn drop(&mut self) {
        let cleared = if self.made > 0 { to_the_end(self.clear()) } else { Ok(()) };
        if let Err(error) = cleared {
            eprintln!("   containers of the floor may be left behind: {error}");
        }
    }
}
