//! The programs that are measured, as processes of this one: each ends with it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use hearth_client::{Client, Options, RetryPolicy};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::time::Instant;

use crate::Error;

/// How long a program may take until it serves, and until it has ended.
const READY_WITHIN: Duration = Duration::from_secs(90);
const END_WITHIN: Duration = Duration::from_secs(30);

/// A token that only this run's servers have.
pub(crate) const TOKEN: &str = "hearth-load-0123456789abcdef0123456789abcdef";

/// A running program. Dropping it ends it: politely, then at once.
#[derive(Debug)]
pub(crate) struct Program {
    child: Option<Child>,
    log: PathBuf,
}

impl Program {
    /// Starts it with its output in `log`, without the settings that this process was given.
    pub(crate) fn start(name: &str, mut command: Command, log: &Path) -> Result<Self, Error> {
        let file = File::options().create(true).append(true).open(log).map_err(Error::io(log.display().to_string()))?;
        command.stderr(file.try_clone().map_err(Error::io(name))?);
        let child = spawn(name, command.stdout(file))?;
        Ok(Self { child: Some(child), log: log.to_owned() })
    }

    /// The same, for a program that tells on standard output, in one line of JSON, that it serves.
    pub(crate) async fn start_telling<T>(name: &str, mut command: Command, log: &Path) -> Result<(Self, T), Error>
    where
        T: for<'de> Deserialize<'de>,
    {
        let file = File::options().create(true).append(true).open(log).map_err(Error::io(log.display().to_string()))?;
        let mut child = spawn(name, command.stdout(Stdio::piped()).stderr(file))?;
        let output = child.stdout.take();
        let program = Self { child: Some(child), log: log.to_owned() };
        let output = output.ok_or_else(|| Error::program(name, "it has no output"))?;
        let (said, heard) = mpsc::channel();
        // A thread, since the line may never come, and the rest of the output has to go somewhere.
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            if let Some(line) = lines.next() {
                said.send(line).ok();
            }
            lines.for_each(drop);
        });
        let line = tokio::task::spawn_blocking(move || heard.recv_timeout(READY_WITHIN)).await;
        let Ok(Ok(line)) = line else {
            return Err(Error::program(name, format!("it does not say that it serves; {}", program.last_words())));
        };
        let told = serde_json::from_str(&line).map_err(|_| Error::program(name, format!("it said {line:?}")))?;
        Ok((program, told))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// As a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn end(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        signal(child.id(), Signal::TERM);
        let until = Instant::now() + END_WITHIN;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        child.kill().ok();
        child.wait().ok();
    }

    fn has_ended(&mut self) -> bool {
        self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends a signal; a process that has ended needs none.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        kill_process(pid, signal).ok();
    }
}

fn spawn(name: &str, command: &mut Command) -> Result<Child, Error> {
    for (variable, _) in std::env::vars_os() {
        let text = variable.to_string_lossy();
        let given = command.get_envs().any(|(known, value)| known == variable && value.is_some());
        if !given && ["HEARTH_", "SANDBOX_", "OTEL_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&variable);
        }
    }
    // A group of its own: Ctrl-C reaches this process, which then ends the others in order.
    command.stdin(Stdio::null()).process_group(0);
    command.spawn().map_err(|error| Error::program(name, format!("it does not start: {error}")))
}

/// The command, tied to the life of this process where the host has a program for that: what is killed
/// cannot clean up.
pub(crate) fn tied(program: &Path) -> Command {
    const SETPRIV: &str = "/usr/bin/setpriv";
    if !Path::new(SETPRIV).exists() {
        return Command::new(program);
    }
    let mut command = Command::new(SETPRIV);
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

/// A port that was free a moment ago, with `count` more behind it, below those that the system gives to
/// outgoing connections.
pub(crate) fn free_ports(count: u16) -> Result<u16, Error> {
    let seed = u16::try_from(std::process::id() % 500).unwrap_or(0);
    let base = (0..500_u16).map(|step| 12_000 + (seed + step) % 500 * 40);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    base.into_iter()
        .find(|base| (0..=count).all(|offset| free(base + offset)))
        .ok_or_else(|| Error::program("ports", "no free ones between 12000 and 32000"))
}

/// A client that repeats nothing: a failure is a figure.
pub(crate) fn client(url: &str, token: &str) -> Result<Client, Error> {
    let retry = RetryPolicy { first_contact: Duration::ZERO, outage: Duration::ZERO, ..RetryPolicy::default() };
    Ok(Client::new(Options { retry, ..Options::new(url, Some(token.to_owned())) })?)
}

/// One `hearth dev` on a folder.
#[derive(Debug)]
pub(crate) struct DevServer {
    pub program: Program,
    pub url: String,
    pub started_in: Duration,
}

impl DevServer {
    /// Returns once it can serve.
    pub(crate) async fn start(hearth: &Path, data: &Path, settings: &[(&str, &str)]) -> Result<Self, Error> {
        let port = free_ports(0)?;
        let mut command = tied(hearth);
        command.args(["dev", "--listen", &format!("127.0.0.1:{port}"), "--token", TOKEN, "--data"]).arg(data);
        command.env("HEARTH_LOG_FILTER", "warn").envs(settings.iter().copied());
        let began = Instant::now();
        let mut program = Program::start("hearth dev", command, &data.with_extension("log"))?;
        let url = format!("http://127.0.0.1:{port}");
        let ready = reqwest::Client::builder().no_proxy().build()?;
        loop {
            let answer = ready.get(format!("{url}/readyz")).send().await;
            if answer.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(Self { program, url, started_in: began.elapsed() });
            }
            if program.has_ended() || began.elapsed() > READY_WITHIN {
                return Err(Error::program("hearth dev", format!("it does not serve; {}", program.last_words())));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn client(&self) -> Result<Client, Error> {
        client(&self.url, TOKEN)
    }
}

/// A member as `hearth cluster` tells of it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Member {
    #[serde(default)]
    pub id: String,
    pub url: String,
    pub pid: u32,
}

/// What `hearth cluster up` prints once it is ready.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ClusterMap {
    pub token: String,
    pub replicas: Vec<Member>,
    pub nats: Vec<Member>,
    pub redis: Member,
}

/// One `hearth cluster up`.
#[derive(Debug)]
pub(crate) struct Cluster {
    _program: Program,
    pub map: ClusterMap,
    hearth: PathBuf,
    data: PathBuf,
}

impl Cluster {
    pub(crate) async fn start(hearth: &Path, data: &Path, replicas: u16) -> Result<Self, Error> {
        let base = free_ports(23)?.to_string();
        let mut command = tied(hearth);
        command
            .args(["cluster", "up", "--replicas", &replicas.to_string(), "--nodes", "1", "--base-port", &base])
            .args(["--token", TOKEN, "--data"])
            .arg(data)
            // Its sandboxes are not what is measured, and local ones leave nothing behind.
            .env("SANDBOX_DRIVER", "local")
            .env("HEARTH_LOG_FILTER", "warn");
        let (program, map) = Program::start_telling("hearth cluster", command, &data.with_extension("log")).await?;
        Ok(Self { _program: program, map, hearth: hearth.to_owned(), data: data.to_owned() })
    }

    pub(crate) fn clients(&self) -> Result<Vec<Client>, Error> {
        self.map.replicas.iter().map(|replica| client(&replica.url, &self.map.token)).collect()
    }

    /// Starts a member again that was killed.
    pub(crate) async fn restart(&mut self, id: &str) -> Result<(), Error> {
        let member = restart_member(&self.hearth, &self.data, id).await?;
        for replica in &mut self.map.replicas {
            if replica.id == id {
                *replica = member.clone();
            }
        }
        Ok(())
    }
}

/// Asks the running cluster on a folder to start a member again.
pub(crate) async fn restart_member(hearth: &Path, data: &Path, id: &str) -> Result<Member, Error> {
    let mut command = Command::new(hearth);
    command.args(["cluster", "restart", id, "--data"]).arg(data).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.map_err(|error| Error::program("hearth cluster restart", error.to_string()))?;
    let output = output.map_err(Error::io("hearth cluster restart"))?;
    let failed = || Error::program("hearth cluster restart", String::from_utf8_lossy(&output.stderr).trim().to_owned());
    serde_json::from_slice(&output.stdout).map_err(|_| failed())
}
