//! One member: the command that starts it, and its process.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::layout::Layout;
use super::ready::{self, Probe};
use crate::failure::Failure;

/// How long a member may take to be ready, and to end.
const READY_WITHIN: Duration = Duration::from_secs(60);
const END_WITHIN: Duration = Duration::from_secs(20);
/// How often a member is started until it serves: on a machine that is busy it may give up on a store that is only
/// slow, or meet the port of its predecessor.
const STARTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// What `hearth` ends with when it refuses its settings: it would again.
const REFUSES: i32 = 2;
/// And the sessions of a node, together.
const CLOSE_WITHIN: Duration = Duration::from_secs(60);

/// What a member is started with. The same at every start.
#[derive(Debug, Clone)]
pub struct Plan {
    pub id: String,
    /// As users reach it.
    pub url: String,
    pub program: PathBuf,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub log: PathBuf,
    pub probe: Probe,
}

pub struct Member {
    pub plan: Plan,
    child: Child,
}

/// Why a start failed.
struct NotReady {
    reason: String,
    /// Another start would end the same way.
    for_good: bool,
}

impl Member {
    pub fn start(plan: Plan) -> Result<Self, Failure> {
        let child = spawn(&plan)?;
        Ok(Self { plan, child })
    }

    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Returns once it can serve. One whose start fails is started again, which is told; an error once that was
    /// often enough.
    pub async fn ready(&mut self) -> Result<(), Failure> {
        let mut starts = 1;
        loop {
            let failed = match self.serves().await {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            let reason = format!("{} {}; see {}", self.plan.id, failed.reason, self.plan.log.display());
            if failed.for_good {
                return Err(Failure::failed(reason));
            }
            if starts == STARTS {
                return Err(Failure::failed(format!("{reason}; it was started {STARTS} times")));
            }
            starts += 1;
            eprintln!("{reason}; it is started again, {starts} of {STARTS} times");
            self.end().await;
            tokio::time::sleep(PAUSE).await;
            self.child = spawn(&self.plan)?;
        }
    }

    async fn serves(&mut self) -> Result<(), NotReady> {
        tokio::select! {
            ended = self.child.wait() => {
                let for_good = ended.as_ref().is_ok_and(|status| status.code() == Some(REFUSES));
                let how = ended.map(|status| status.to_string()).unwrap_or_else(|error| error.to_string());
                Err(NotReady { reason: format!("ended before it could serve ({how})"), for_good })
            }
            ready = ready::wait(&self.plan.probe, READY_WITHIN) => {
                if ready { return Ok(()); }
                Err(NotReady { reason: "does not become ready".to_owned(), for_good: false })
            }
        }
    }

    pub fn shown(&self) -> Value {
        json!({ "id": self.plan.id, "url": self.plan.url, "pid": self.pid() })
    }

    /// Whether its process has ended.
    pub fn gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it: politely, then at once.
    pub async fn end(&mut self) {
        if self.gone() {
            return;
        }
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // One that has ended meanwhile needs no signal.
            kill_process(pid, Signal::TERM).ok();
        }
        if tokio::time::timeout(END_WITHIN, self.child.wait()).await.is_err() {
            self.child.kill().await.ok();
        }
    }
}

fn spawn(plan: &Plan) -> Result<Child, Failure> {
    let cannot = |what: String| move |error: std::io::Error| Failure::failed(format!("{what}: {error}"));
    let logged = || -> std::io::Result<(File, File)> {
        let log = OpenOptions::new().create(true).append(true).open(&plan.log)?;
        Ok((log.try_clone()?, log))
    };
    let (output, errors) = logged().map_err(cannot(format!("{} cannot be written", plan.log.display())))?;
    let mut command = Command::new(&plan.program);
    command.args(&plan.args).envs(&plan.env).stdin(Stdio::null()).stdout(output).stderr(errors);
    // A group of its own: Ctrl-C reaches this process, which then ends the members in order.
    command.process_group(0).kill_on_drop(true);
    command.spawn().map_err(cannot(format!("{} cannot be started as {}", plan.program.display(), plan.id)))
}

/// Ends what the sessions of a node, which has ended, still run.
pub async fn close_sessions(plan: &Plan) -> std::io::Result<()> {
    let log = OpenOptions::new().create(true).append(true).open(&plan.log)?;
    let mut command = Command::new(&plan.program);
    command.args(&plan.args).arg("--close-sessions").envs(&plan.env);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0).kill_on_drop(true);
    match tokio::time::timeout(CLOSE_WITHIN, command.status()).await {
        Ok(ended) if ended.as_ref().is_ok_and(std::process::ExitStatus::success) => Ok(()),
        Ok(ended) => Err(std::io::Error::other(format!("{}; see {}", ended?, plan.log.display()))),
        Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
    }
}

/// The plans of all members, in the order in which they are started.
pub struct Plans {
    pub redis: Plan,
    pub nats: Vec<Plan>,
    pub nodes: Vec<Plan>,
    pub replicas: Vec<Plan>,
}

/// What the members share.
pub struct Common {
    pub token: String,
    pub node_token: String,
    pub hearth: PathBuf,
    pub redis_server: PathBuf,
    pub nats_server: PathBuf,
}

impl Plans {
    pub fn of(layout: &Layout, common: &Common, replicas: u16, nodes: u16) -> Self {
        Self {
            redis: redis(layout, common),
            nats: (0..layout.nats_servers).map(|index| nats(layout, common, index)).collect(),
            nodes: (0..nodes).map(|index| node(layout, common, index)).collect(),
            replicas: (0..replicas).map(|index| replica(layout, common, index)).collect(),
        }
    }

    pub fn find(&self, id: &str) -> Option<&Plan> {
        self.all().find(|plan| plan.id == id)
    }

    pub fn all(&self) -> impl Iterator<Item = &Plan> {
        std::iter::once(&self.redis).chain(&self.nats).chain(&self.nodes).chain(&self.replicas)
    }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn redis(layout: &Layout, common: &Common) -> Plan {
    let folder = layout.folder("redis").display().to_string();
    let port = layout.redis_port().to_string();
    Plan {
        id: "redis".to_owned(),
        url: layout.redis_url(),
        program: common.redis_server.clone(),
        args: strings(&["--bind", "127.0.0.1", "--port", &port, "--dir", &folder, "--appendonly", "no", "--save", ""]),
        env: BTreeMap::new(),
        log: layout.log("redis"),
        probe: Probe::Redis { port: layout.redis_port() },
    }
}

fn nats(layout: &Layout, common: &Common, index: u16) -> Plan {
    let id = format!("nats-{index}");
    let store = layout.folder(&id).display().to_string();
    let port = layout.nats_port(index).to_string();
    let mut args = strings(&["-js", "-sd", &store, "-a", "127.0.0.1", "-p", &port, "-n", &id]);
    if layout.nats_servers > 1 {
        let own = format!("nats://127.0.0.1:{}", layout.nats_route_port(index));
        let routes: Vec<String> = (0..layout.nats_servers)
            .map(|other| format!("nats://127.0.0.1:{}", layout.nats_route_port(other)))
            .collect();
        args.extend(strings(&["-cluster_name", "hearth", "-cluster", &own, "-routes", &routes.join(",")]));
    }
    Plan {
        url: layout.nats_url(index),
        program: common.nats_server.clone(),
        args,
        env: BTreeMap::new(),
        log: layout.log(&id),
        probe: Probe::Nats { port: layout.nats_port(index) },
        id,
    }
}

fn member_env(layout: &Layout, common: &Common) -> BTreeMap<String, String> {
    let entries = [
        ("HEARTH_NATS_URL", layout.nats_urls()),
        ("HEARTH_REDIS_URL", layout.redis_url()),
        ("HEARTH_JOURNAL_REPLICAS", layout.nats_servers.to_string()),
        ("SANDBOX_AUTH_TOKEN", common.node_token.clone()),
    ];
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn node(layout: &Layout, common: &Common, index: u16) -> Plan {
    let id = format!("node-{index}");
    let port = layout.node_port(index);
    let mut env = member_env(layout, common);
    env.insert("SANDBOX_NODE_ID".to_owned(), id.clone());
    env.insert("SANDBOX_LISTEN_ADDR".to_owned(), format!("127.0.0.1:{port}"));
    env.insert("SANDBOX_STATE_DIR".to_owned(), layout.folder(&id).display().to_string());
    let workspaces = layout.data.join("workspaces").display().to_string();
    env.insert("SANDBOX_WORKSPACE_ROOT".to_owned(), workspaces);
    Plan {
        url: format!("http://127.0.0.1:{port}"),
        program: common.hearth.clone(),
        args: strings(&["node"]),
        env,
        log: layout.log(&id),
        probe: Probe::Http { port },
        id,
    }
}

fn replica(layout: &Layout, common: &Common, index: u16) -> Plan {
    let id = format!("replica-{index}");
    let port = layout.replica_port(index);
    let mut env = member_env(layout, common);
    env.insert("HEARTH_REPLICA_ID".to_owned(), id.clone());
    env.insert("HEARTH_LISTEN".to_owned(), format!("127.0.0.1:{port}"));
    env.insert("HEARTH_DATA_DIR".to_owned(), layout.folder(&id).display().to_string());
    env.insert("HEARTH_TOKEN".to_owned(), common.token.clone());
    // For development and tests, so the agent that needs no model and runs commands is there.
    if std::env::var_os("HEARTH_DEV_EXEC").is_none() {
        env.insert("HEARTH_DEV_EXEC".to_owned(), "1".to_owned());
    }
    Plan {
        url: format!("http://127.0.0.1:{port}"),
        program: common.hearth.clone(),
        args: strings(&["replica"]),
        env,
        log: layout.log(&id),
        probe: Probe::Http { port },
        id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that is a line of shell, and writes down each start.
    fn failing(folder: &std::path::Path, line: &str) -> Member {
        let starts = folder.join("starts");
        let plan = Plan {
            id: "replica-0".to_owned(),
            url: String::new(),
            program: PathBuf::from("/bin/sh"),
            args: strings(&["-c", &format!("echo start >> {}; {line}", starts.display())]),
            env: BTreeMap::new(),
            log: folder.join("log"),
            // Nobody is there.
            probe: Probe::Http { port: 1 },
        };
        Member::start(plan).unwrap()
    }

    fn starts(folder: &std::path::Path) -> usize {
        std::fs::read_to_string(folder.join("starts")).unwrap().lines().count()
    }

    #[tokio::test]
    async fn a_member_that_fails_at_each_start_is_given_up_after_a_few() {
        let folder = tempfile::tempdir().unwrap();
        let mut member = failing(folder.path(), "exit 1");
        let Err(Failure::Failed(reason)) = member.ready().await else { panic!("it never serves") };
        assert!(reason.contains("replica-0 ended before it could serve (exit status: 1)"), "{reason}");
        assert!(reason.ends_with("it was started 3 times"), "{reason}");
        assert_eq!(starts(folder.path()), 3);
        assert!(member.gone());
    }

    #[tokio::test]
    async fn a_member_that_refuses_its_settings_is_started_once() {
        let folder = tempfile::tempdir().unwrap();
        let Err(Failure::Failed(reason)) = failing(folder.path(), "exit 2").ready().await else {
            panic!("it never serves")
        };
        assert!(reason.contains("replica-0 ended before it could serve (exit status: 2); see "), "{reason}");
        assert_eq!(starts(folder.path()), 1);
    }
}
