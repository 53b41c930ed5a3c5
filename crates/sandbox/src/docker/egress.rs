//! Egress: a network of the session's own, with a fence around it in the host's packet filter.
//!
//! From such a network only public addresses can be reached: not the host, whatever address of it is used, and
//! no private or link-local range, so neither the neighbours of the host nor other sessions nor a cloud's
//! metadata. The rules stand before the container starts, are looked for again when a session is found again,
//! and go with it. Where the packet filter cannot be set, egress is refused.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hearth_types::{SandboxId, derive_hex};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::docker::engine::Engine;
use crate::node::mark_durably;
use crate::{Error, ErrorKind};

/// Where nothing of a session may go.
const FORBIDDEN: [&str; 11] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
];
/// The chain that the engine leaves to its operator, asked before its own.
const FORWARDED: &str = "DOCKER-USER";
/// For the filter's lock and its work.
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Egress {
    /// One file per session, there before anything else of its network is.
    folder: PathBuf,
    /// Why it cannot be had here.
    unfit: Option<String>,
}

/// The names of what one session has.
struct Names {
    network: String,
    bridge: String,
    chain: String,
}

impl Names {
    fn of(session: &SandboxId) -> Self {
        let short: String = derive_hex(&["egress", session.as_str()]).chars().take(10).collect();
        Self { network: format!("hearth-{session}"), bridge: format!("hth-{short}"), chain: format!("HEARTH-{short}") }
    }
}

impl Egress {
    pub(crate) async fn probe(top: &Path) -> Result<Self, Error> {
        let folder = top.join("egress");
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let unfit = filter(&["-n", "-L", FORWARDED], None).await.err().map(|error| error.to_string());
        Ok(Self { folder, unfit })
    }

    fn marker(&self, session: &SandboxId) -> PathBuf {
        self.folder.join(session.as_str())
    }

    /// The sessions that have, or may have, a network.
    pub(crate) fn sessions(&self) -> Result<Vec<SandboxId>, Error> {
        let mut sessions = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            sessions.extend(name.to_str().and_then(|name| SandboxId::parse(name).ok()));
        }
        Ok(sessions)
    }

    /// Makes the network and its fence: the network's name.
    pub(crate) async fn open(&self, engine: &Engine, session: &SandboxId, owner: &str) -> Result<String, Error> {
        if let Some(reason) = &self.unfit {
            let message =
                format!("egress cannot be fenced in on this host ({reason}), so it is not given; open without it");
            return Err(Error::new(ErrorKind::IsolationUnavailable, message));
        }
        let names = Names::of(session);
        mark_durably(&self.marker(session)).map_err(failed)?;
        engine.create_network(&names.network, &names.bridge, session, owner).await?;
        fence(&names).await?;
        Ok(names.network)
    }

    /// Makes sure that the fence of a session that runs is there.
    pub(crate) async fn check(&self, session: &SandboxId) -> Result<(), Error> {
        if self.marker(session).exists() { fence(&Names::of(session)).await } else { Ok(()) }
    }

    /// Removes what `open` made. The container has gone before.
    pub(crate) async fn close(&self, engine: &Engine, session: &SandboxId) -> Result<(), Error> {
        let marker = self.marker(session);
        if !marker.exists() {
            return Ok(());
        }
        let names = Names::of(session);
        engine.remove_network(&names.network).await?;
        for rule in [jump(&names), input(&names)] {
            if filter(&with("-C", &rule), None).await.is_ok() {
                filter(&with("-D", &rule), None).await.map_err(unavailable)?;
            }
        }
        if filter(&["-n", "-L", &names.chain], None).await.is_ok() {
            filter(&["-F", &names.chain], None).await.map_err(unavailable)?;
            filter(&["-X", &names.chain], None).await.map_err(unavailable)?;
        }
        // That a rule is not found may also mean that the filter could not be asked.
        let rules = filter(&["-S"], None).await.map_err(unavailable)?;
        if rules.contains(&names.chain) || rules.contains(&names.bridge) {
            return Err(Error::new(ErrorKind::Unavailable, "rules of an egress session are left; it is tried again"));
        }
        std::fs::remove_file(marker).map_err(failed)
    }
}

/// What is forwarded from the session's network goes through its chain first.
fn jump(names: &Names) -> [String; 5] {
    [FORWARDED, "-i", &names.bridge, "-j", &names.chain].map(str::to_owned)
}

/// Nothing of it reaches the host.
fn input(names: &Names) -> [String; 5] {
    ["INPUT", "-i", &names.bridge, "-j", "DROP"].map(str::to_owned)
}

fn with<'a>(verb: &'a str, rule: &'a [String]) -> Vec<&'a str> {
    std::iter::once(verb).chain(rule.iter().map(String::as_str)).collect()
}

/// All rules in one step, those that are there already left as they are.
async fn fence(names: &Names) -> Result<(), Error> {
    let mut rules = format!("*filter\n:{} - [0:0]\n", names.chain);
    for range in FORBIDDEN {
        rules.push_str(&format!("-A {} -d {range} -j DROP\n", names.chain));
    }
    for rule in [jump(names), input(names)] {
        if filter(&with("-C", &rule), None).await.is_err() {
            let (chain, rest) = (&rule[0], rule[1..].join(" "));
            rules.push_str(&format!("-I {chain} 1 {rest}\n"));
        }
    }
    rules.push_str("COMMIT\n");
    filter(&["--noflush"], Some(rules)).await.map_err(unavailable)?;
    Ok(())
}

/// The packet filter's own program; with `rules` the one that takes many at once.
async fn filter(arguments: &[&str], rules: Option<String>) -> Result<String, std::io::Error> {
    let program = if rules.is_some() { "iptables-restore" } else { "iptables" };
    let stdin = if rules.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut command = Command::new(program);
    command.args(["-w", "10"]).args(arguments).kill_on_drop(true);
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let work = async {
        let mut child = command.spawn()?;
        if let (Some(rules), Some(mut stdin)) = (rules, child.stdin.take()) {
            stdin.write_all(rules.as_bytes()).await?;
        }
        child.wait_with_output().await
    };
    let failed = |reason: String| std::io::Error::other(format!("{program}: {reason}"));
    let ended = tokio::time::timeout(DEADLINE, work).await.map_err(|_| failed("it did not end in time".to_owned()))?;
    let output = ended.map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(said.lines().next().unwrap_or("it failed").to_owned()))
}

fn unavailable(error: std::io::Error) -> Error {
    Error::caused(ErrorKind::Unavailable, "the host's packet filter could not be set; try again", error)
}

fn failed(error: std::io::Error) -> Error {
    Error::caused(ErrorKind::Unavailable, "the Docker driver's part of the state folder cannot be used", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_where_they_go() {
        let names = Names::of(&SandboxId::generate());
        assert!(names.bridge.len() < 16, "a network interface's name");
        assert!(names.chain.len() < 29, "a chain's name");
    }

    #[tokio::test]
    async fn where_the_filter_cannot_be_set_egress_is_refused() {
        let egress = Egress { folder: "/nonexistent".into(), unfit: Some("no iptables".into()) };
        let Ok(engine) = Engine::connect("/var/run/docker.sock").await else { return };
        let refused = egress.open(&engine, &SandboxId::generate(), "node_x").await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::IsolationUnavailable);
    }
}
