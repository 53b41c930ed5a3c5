//! One `hearth dev` process with its own folder.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::program::without_own_settings;
use crate::{Api, binary, eventually, leftovers};

/// The token of the admin that every server has.
pub const ADMIN: &str = "harness-admin-0123456789abcdef0123456789abcdef";

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    agents: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    tokens: Vec<TokenEntry>,
    journal: Option<PathBuf>,
}

/// Token, tenant, subject, role.
pub(crate) type TokenEntry = [String; 4];

impl Options {
    /// A file of the agents folder.
    pub fn agent(mut self, path: &str, text: &str) -> Self {
        self.agents.push((path.to_owned(), text.to_owned()));
        self
    }

    /// A setting.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A caller besides the admin.
    pub fn token(mut self, token: &str, tenant: &str, subject: &str, role: &str) -> Self {
        self.tokens.push([token, tenant, subject, role].map(str::to_owned));
        self
    }

    /// A journal to begin with: a file of the tests' folder.
    pub fn journal(mut self, path: &str) -> Self {
        self.journal = Some(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
        self
    }

    /// Starts the server and waits until it can serve.
    pub async fn start(self) -> Server {
        let mut server = self.prepare();
        server.launch();
        server.ready().await;
        server
    }

    /// Starts the server, which is expected to refuse: its exit status and what it wrote.
    pub async fn start_in_vain(self) -> (ExitStatus, String) {
        let mut server = self.prepare();
        server.launch();
        let status = server.exit().await;
        (status, server.log())
    }

    fn prepare(self) -> Server {
        let folder = tempfile::Builder::new().prefix("hearth-test-").tempdir().expect("a temporary folder");
        for (path, text) in &self.agents {
            let path = folder.path().join("agents").join(path);
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder for agents");
            fs::write(path, text).expect("an agent file");
        }
        fs::write(folder.path().join("tokens.toml"), tokens_file(&self.tokens)).expect("a file of tokens");
        if let Some(journal) = &self.journal {
            let data = folder.path().join("data");
            fs::create_dir_all(&data).expect("a folder for data");
            fs::copy(journal, data.join("journal.db")).expect("a journal");
        }
        let port = free_port();
        let api = Api::new(format!("http://127.0.0.1:{port}"), Some(ADMIN.to_owned()));
        Server { options: self, folder, port, api, child: None }
    }
}

/// What the tokens file of these callers holds.
pub(crate) fn tokens_file(tokens: &[TokenEntry]) -> String {
    let entry = |[token, tenant, subject, role]: &TokenEntry| {
        let digest = hex::encode(Sha256::digest(token));
        format!("[[token]]\nsha256 = \"{digest}\"\ntenant = \"{tenant}\"\nsubject = \"{subject}\"\nrole = \"{role}\"\n")
    };
    tokens.iter().map(entry).collect()
}

pub(crate) fn random_below(limit: u16) -> u16 {
    let random = RandomState::new().build_hasher().finish() % u64::from(limit);
    u16::try_from(random).expect("below a small number")
}

/// A port that was free a moment ago, from below the range from which the system takes ports for outgoing
/// connections: none of those takes it while the server is down between a kill and its restart.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = 20_000 + random_below(12_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A running server. Dropping it kills it and all that it started.
#[derive(Debug)]
pub struct Server {
    options: Options,
    folder: TempDir,
    port: u16,
    api: Api,
    child: Option<Child>,
}

impl Server {
    pub async fn start() -> Self {
        Options::default().start().await
    }

    /// The admin of the tenant `default`.
    pub fn api(&self) -> Api {
        self.api.clone()
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Everything that it wrote to its output so far.
    pub fn log(&self) -> String {
        let text = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("output.log")
    }

    fn launch(&mut self) {
        let log = File::options().create(true).append(true).open(self.log_path()).expect("a log file");
        let mut command = Command::new(binary());
        without_own_settings(&mut command);
        command
            .args(["dev", "--listen", &format!("127.0.0.1:{}", self.port), "--token", ADMIN, "--data"])
            .arg(self.data())
            .envs(self.options.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        if !self.options.agents.is_empty() {
            command.arg("--agents").arg(self.folder.path().join("agents"));
        }
        if !self.options.tokens.is_empty() {
            command.env("HEARTH_TOKENS_FILE", self.folder.path().join("tokens.toml"));
        }
        self.child = Some(command.spawn().expect("the server starts"));
    }

    async fn ready(&mut self) {
        let api = self.api.without_token();
        let mut child = self.child.take().expect("a child");
        let early = eventually("the server is ready or has ended", async || {
            if let Some(status) = child.try_wait().expect("a status") {
                return Some(Some(status));
            }
            let answer = api.try_finish(api.request("GET", "/readyz")).await;
            answer.is_ok_and(|reply| reply.status == 200).then_some(None)
        })
        .await;
        self.child = Some(child);
        assert!(early.is_none(), "the server ended at its start with {early:?}:\n{}", self.log());
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("a running server");
        let pid = Pid::from_child(child);
        kill_process(pid, signal).expect("the server is there");
    }

    async fn exit(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a running server");
        eventually("the server has ended", async || child.try_wait().expect("a status")).await
    }

    /// SIGKILL; returns once the process is gone.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.exit().await;
    }

    /// SIGTERM; the status that the server ends with.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.exit().await
    }

    /// Starts it again on the same data and port.
    pub async fn restart(&mut self) {
        assert!(self.child.is_none(), "the server still runs");
        self.launch();
        self.ready().await;
    }

    /// Changes a setting for the next start.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        self.options.variables.retain(|(known, _)| known != name);
        self.options.variables.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }

    /// Starts it again where it is expected to end by itself at once.
    pub async fn restart_in_vain(&mut self) -> ExitStatus {
        assert!(self.child.is_none(), "the server still runs");
        self.launch();
        self.exit().await
    }

    /// Whether it has ended by itself; then it can be started again.
    pub fn has_ended(&mut self) -> bool {
        let Some(child) = &mut self.child else { return true };
        let ended = child.try_wait().expect("a status").is_some();
        if ended {
            self.child = None;
        }
        ended
    }

    /// `kill -9`, and a new start on the same data.
    pub async fn crash(&mut self) {
        self.kill().await;
        self.restart().await;
    }

    /// Closes every run, ends the server, and checks that it ends well and leaves no process.
    pub async fn stop(mut self) {
        let page = self.api.get("/v1/runs?limit=500").await.ok();
        for run in page["runs"].as_array().expect("a list of runs") {
            if matches!(run["state"].as_str(), Some("running" | "awaiting_input")) && run["parent_run_id"].is_null() {
                let id = run["run_id"].as_str().expect("an id");
                self.api.post(&format!("/v1/runs/{id}/close"), json!({})).await.ok();
            }
        }
        let status = self.terminate().await;
        assert_eq!(status.code(), Some(0), "the server ended with {status}:\n{}", self.log());
        let folder = self.folder.path().to_owned();
        eventually("no process of the server is left", async || leftovers::of(&folder).is_empty().then_some(())).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
        let left = leftovers::of(self.folder.path());
        leftovers::end(&left);
        if std::thread::panicking() {
            left.iter().for_each(|process| eprintln!("was left behind: {process}"));
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n");
            eprintln!("the end of the server's output:\n{tail}");
        }
    }
}
