//! A cluster of real processes: what `hearth cluster up` starts, and members that join it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{TokenEntry, random_below, tokens_file};
use crate::{ADMIN, Api, binary, eventually, leftovers, program, wait};

/// Ports of one cluster, and where those of all clusters begin: below those of single servers.
const PORTS: u16 = 24;
const FIRST_PORT: u16 = 10_240;
const SLOTS: u16 = 300;

/// How a cluster is started.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    replicas: u16,
    nodes: u16,
    nats: u16,
    variables: Vec<(String, String)>,
    tokens: Vec<TokenEntry>,
    agents: Vec<(String, String)>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self { replicas: 3, nodes: 0, nats: 1, variables: Vec::new(), tokens: Vec::new(), agents: Vec::new() }
    }
}

impl ClusterOptions {
    pub fn replicas(mut self, replicas: u16) -> Self {
        self.replicas = replicas;
        self
    }

    pub fn nodes(mut self, nodes: u16) -> Self {
        self.nodes = nodes;
        self
    }

    /// 1 or 3.
    pub fn nats(mut self, servers: u16) -> Self {
        self.nats = servers;
        self
    }

    /// A setting of every replica.
    pub fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    /// A caller besides the admin.
    pub fn token(mut self, token: &str, tenant: &str, subject: &str, role: &str) -> Self {
        self.tokens.push([token, tenant, subject, role].map(str::to_owned));
        self
    }

    /// A file of every replica's agents folder.
    pub fn agent(mut self, path: &str, text: &str) -> Self {
        self.agents.push((path.to_owned(), text.to_owned()));
        self
    }

    /// Starts the cluster and waits until all of it can serve. `None` where a store's program is missing,
    /// unless the environment requires them.
    pub async fn start(self) -> Option<Cluster> {
        let missing: Vec<&str> = ["redis-server", "nats-server"].into_iter().filter(|name| !is_there(name)).collect();
        if !missing.is_empty() {
            let required = std::env::var_os("HEARTH_REQUIRE_SERVICES").is_some_and(|value| value == "1");
            assert!(!required, "{} required, and not there", missing.join(" and "));
            println!("skipped: there is no {}", missing.join(" and no "));
            return None;
        }
        let folder = tempfile::Builder::new().prefix("hearth-test-").tempdir().expect("a temporary folder");
        fs::write(folder.path().join("tokens.toml"), tokens_file(&self.tokens)).expect("a file of tokens");
        for (path, text) in &self.agents {
            let path = folder.path().join("agents").join(path);
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder for agents");
            fs::write(path, text).expect("an agent file");
        }
        // Another test's cluster may take the ports between the look and the start.
        let mut told = String::new();
        for _ in 0..5 {
            match launch(&self, &folder, free_ports()).await {
                Ok((child, shown)) => return Some(Cluster::of(self, folder, child, &shown)),
                Err(text) => told = text,
            }
        }
        panic!("the cluster does not start:\n{told}");
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let tools = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache/hearth/tools"));
    std::env::split_paths(&path).chain(tools).any(|folder| folder.join(program).is_file())
}

fn free_ports() -> u16 {
    loop {
        let base = FIRST_PORT + 32 * random_below(SLOTS);
        if (base..base + PORTS).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return base;
        }
    }
}

/// The process, and the line that it prints when all of it is ready; what it says else.
async fn launch(options: &ClusterOptions, folder: &TempDir, base: u16) -> Result<(Child, Value), String> {
    let log_path = folder.path().join("cluster.log");
    let log = File::create(&log_path).expect("a log file");
    let mut command = program();
    command.args(["cluster", "up", "--token", ADMIN]);
    for (name, value) in
        [("--replicas", options.replicas), ("--nodes", options.nodes), ("--nats", options.nats), ("--base-port", base)]
    {
        command.args([name, &value.to_string()]);
    }
    command.arg("--data").arg(folder.path().join("data")).envs(settings(options, folder.path()));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("the cluster starts");
    let output = child.stdout.take().expect("its output");
    let first = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map(|_| line)
    });
    let line = tokio::time::timeout(Duration::from_secs(90), first).await;
    if let Ok(Ok(Ok(line))) = &line
        && let Ok(shown) = serde_json::from_str(line)
    {
        return Ok((child, shown));
    }
    child.kill().ok();
    child.wait().ok();
    leftovers::end(&leftovers::of(folder.path()));
    Err(fs::read_to_string(&log_path).unwrap_or_default())
}

fn settings(options: &ClusterOptions, folder: &Path) -> Vec<(String, String)> {
    let mut settings = options.variables.clone();
    let path = |name: &str| folder.join(name).display().to_string();
    if !options.tokens.is_empty() {
        settings.push(("HEARTH_TOKENS_FILE".to_owned(), path("tokens.toml")));
    }
    if !options.agents.is_empty() {
        settings.push(("HEARTH_AGENTS_DIR".to_owned(), path("agents")));
    }
    settings
}

#[derive(Debug)]
struct Member {
    url: String,
    pid: i32,
    /// Of one that joined.
    child: Option<Child>,
}

/// A running cluster. Dropping it kills all of it.
#[derive(Debug)]
pub struct Cluster {
    options: ClusterOptions,
    folder: TempDir,
    child: Child,
    replicas: usize,
    stores: [String; 2],
    members: Mutex<BTreeMap<String, Member>>,
}

impl Cluster {
    /// Three replicas and no nodes.
    pub async fn start() -> Option<Self> {
        ClusterOptions::default().start().await
    }

    fn of(options: ClusterOptions, folder: TempDir, child: Child, shown: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = ["replicas", "nodes", "nats"].into_iter().flat_map(|kind| shown[kind].as_array().expect("a list"));
        let members = rows.chain([&shown["redis"]]).map(|row| (text(&row["id"]), member(row))).collect();
        let nats: Vec<String> = shown["nats"].as_array().expect("a list").iter().map(|row| text(&row["url"])).collect();
        let stores = [nats.join(","), text(&shown["redis"]["url"])];
        let replicas = usize::from(options.replicas);
        Self { options, folder, child, replicas, stores, members: Mutex::new(members) }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<String, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, id: &str, look: impl FnOnce(&mut Member) -> T) -> T {
        look(self.members().get_mut(id).unwrap_or_else(|| panic!("a member {id}")))
    }

    /// The admin, at one of the replicas that the cluster began with.
    pub fn api(&self, replica: usize) -> Api {
        self.api_of(&format!("replica-{replica}"))
    }

    pub fn api_of(&self, id: &str) -> Api {
        Api::new(self.with(id, |member| member.url.clone()), Some(ADMIN.to_owned()))
    }

    /// The admin, at each of the replicas that the cluster began with.
    pub fn apis(&self) -> Vec<Api> {
        (0..self.replicas).map(|replica| self.api(replica)).collect()
    }

    pub fn address(&self, id: &str) -> SocketAddr {
        let url = self.with(id, |member| member.url.clone());
        url.trim_start_matches("http://").parse().expect("an address")
    }

    pub fn nats_url(&self) -> &str {
        &self.stores[0]
    }

    pub fn redis_url(&self) -> &str {
        &self.stores[1]
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Everything that a member wrote.
    pub fn log(&self, id: &str) -> String {
        let text = fs::read(self.folder.path().join("data/logs").join(format!("{id}.log"))).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    pub fn signal(&self, id: &str, signal: Signal) {
        let pid = Pid::from_raw(self.with(id, |member| member.pid)).expect("a process id");
        kill_process(pid, signal).expect("the member is there");
    }

    /// SIGSTOP.
    pub fn pause(&self, id: &str) {
        self.signal(id, Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume(&self, id: &str) {
        self.signal(id, Signal::CONT);
    }

    /// SIGKILL; returns once the process is gone.
    pub async fn kill(&self, id: &str) {
        self.signal(id, Signal::KILL);
        self.ended(id).await;
    }

    /// SIGTERM; the code that the member ends with.
    pub async fn terminate(&self, id: &str) -> i32 {
        self.signal(id, Signal::TERM);
        self.ended(id).await
    }

    /// Waits until a member's process has ended; its code, or 128 and the signal that ended it.
    pub async fn ended(&self, id: &str) -> i32 {
        let pid = self.with(id, |member| member.pid);
        eventually(&format!("{id} has ended"), async || exit_code(pid)).await
    }

    /// Whether a member's process has ended, by itself or not.
    pub fn has_ended(&self, id: &str) -> bool {
        exit_code(self.with(id, |member| member.pid)).is_some()
    }

    /// Starts a member again and waits until it is ready.
    pub async fn restart(&self, id: &str) {
        let mut command = tokio::process::Command::new(binary());
        command.args(["cluster", "restart", id, "--data"]).arg(self.folder.path().join("data"));
        let output = command.stdin(Stdio::null()).output().await.expect("the command runs");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let row: Value = serde_json::from_str(&told).unwrap_or_else(|_| {
            panic!("{id} does not start again: {told}{}\n{}", String::from_utf8_lossy(&output.stderr), self.log(id))
        });
        self.members().insert(id.to_owned(), member(&row));
    }

    /// Starts a replica besides those that the cluster began with, with settings of its own, and waits
    /// until it can serve.
    pub async fn join(&self, id: &str, variables: &[(&str, &str)]) -> Api {
        let port = crate::server::free_port();
        let data = self.folder.path().join("data");
        let log = File::options().create(true).append(true).open(data.join("logs").join(format!("{id}.log")));
        let log = log.expect("a log file");
        let mut command = program();
        command
            .arg("replica")
            .env("HEARTH_NATS_URL", self.nats_url())
            .env("HEARTH_REDIS_URL", self.redis_url())
            .env("HEARTH_JOURNAL_REPLICAS", self.options.nats.to_string())
            .env("HEARTH_REPLICA_ID", id)
            .env("HEARTH_LISTEN", format!("127.0.0.1:{port}"))
            .env("HEARTH_DATA_DIR", data.join(id))
            .env("HEARTH_TOKEN", ADMIN)
            .envs(settings(&self.options, self.folder.path()))
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        let child = command.spawn().expect("the replica starts");
        let pid = i32::try_from(child.id()).expect("a process id");
        let joined = Member { url: format!("http://127.0.0.1:{port}"), pid, child: Some(child) };
        self.members().insert(id.to_owned(), joined);
        let api = self.api_of(id);
        eventually(&format!("{id} can serve"), async || {
            assert!(exit_code(pid).is_none(), "{id} ended at its start:\n{}", self.log(id));
            let answer = api.try_finish(api.request("GET", "/readyz")).await;
            answer.is_ok_and(|reply| reply.status == 200).then_some(())
        })
        .await;
        api
    }

    /// Closes every run, ends the cluster, and checks that it ends well and leaves no process.
    pub async fn stop(mut self) {
        let api = self.api(0);
        let page = api.get("/v1/runs?limit=500").await.ok();
        for run in page["runs"].as_array().expect("a list of runs") {
            if matches!(run["state"].as_str(), Some("running" | "awaiting_input")) && run["parent_run_id"].is_null() {
                let id = run["run_id"].as_str().expect("an id");
                api.post(&format!("/v1/runs/{id}/close"), json!({})).await.ok();
            }
        }
        for member in self.members().values_mut() {
            if let Some(child) = &mut member.child {
                child.kill().ok();
                child.wait().ok();
            }
        }
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("the cluster is there");
        let child = &mut self.child;
        let status = wait::within(Duration::from_secs(60), "the cluster has ended", async || {
            child.try_wait().expect("a status")
        })
        .await;
        assert_eq!(status.code(), Some(0), "the cluster ended with {status}");
        let folder = self.folder.path().to_owned();
        eventually("no process of the cluster is left", async || leftovers::of(&folder).is_empty().then_some(())).await;
    }
}

fn member(row: &Value) -> Member {
    let pid = row["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a process id");
    Member { url: row["url"].as_str().expect("an address").to_owned(), pid, child: None }
}

/// Of a process that has ended. One that its parent has not asked for yet shows how it ended; of one that
/// is gone altogether nothing is known, which counts as 0.
fn exit_code(pid: i32) -> Option<i32> {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Some(0) };
    let after_name = stat.rsplit(") ").next()?;
    if !after_name.starts_with(['Z', 'X']) {
        return None;
    }
    let status: i32 = after_name.split_whitespace().last()?.parse().ok()?;
    Some(if status & 0x7f == 0 { status >> 8 } else { 128 + (status & 0x7f) })
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        for member in self.members().values_mut() {
            if let Some(child) = &mut member.child {
                child.kill().ok();
                child.wait().ok();
            }
        }
        if self.options.nodes > 0 && self.options.variables.iter().any(|(name, _)| name == "SANDBOX_DRIVER") {
            leftovers::remove_containers(self.folder.path());
        }
        let left = leftovers::of(self.folder.path());
        leftovers::end(&left);
        if std::thread::panicking() {
            let ids: Vec<String> = self.members().keys().filter(|id| id.starts_with("replica")).cloned().collect();
            for id in ids {
                let log = self.log(&id);
                let lines: Vec<&str> = log.lines().collect();
                let tail = lines.get(lines.len().saturating_sub(25)..).unwrap_or_default().join("\n");
                eprintln!("the end of the output of {id}:\n{tail}");
            }
        }
    }
}
