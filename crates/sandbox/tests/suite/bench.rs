//! A node on a temporary folder, and callers for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use hearth_sandbox::node::{Node, NodeOptions};
use hearth_sandbox::{
    Caller, ExecArgs, ExecResult, Liveness, OpenArgs, OpenResult, PollArgs, ReadArgs, ReadResult, RunLiveness,
    Sandboxes, SessionArgs, SharedDriver, WriteArgs, WriteResult,
};
use hearth_types::{ExecId, Fault, RunId, SandboxId, SystemClock};

type Drivers = Box<dyn Fn(PathBuf) -> BoxFuture<'static, Vec<SharedDriver>> + Send + Sync>;

/// Where sessions can be had, and what they hold there.
pub struct Place {
    /// The drivers over a state folder.
    pub drivers: Drivers,
    /// Whether code sees only its own session: its own processes, `/work`, no network.
    pub contained: bool,
}

/// What the journal would say of run trees.
#[derive(Default)]
pub struct Trees(Mutex<BTreeMap<RunId, Liveness>>, Mutex<BTreeSet<String>>);

impl Trees {
    pub fn set(&self, root: &str, liveness: Liveness) {
        self.0.lock().unwrap().insert(RunId::parse(root).unwrap(), liveness);
    }

    /// Another node that lives; all others are gone.
    pub fn lives(&self, node: &str) {
        self.1.lock().unwrap().insert(node.to_owned());
    }

    pub fn dies(&self, node: &str) {
        self.1.lock().unwrap().remove(node);
    }
}

#[async_trait]
impl RunLiveness for Trees {
    async fn liveness(&self, root_run: &RunId) -> Liveness {
        self.0.lock().unwrap().get(root_run).copied().unwrap_or(Liveness::Unheld)
    }

    async fn node_is_gone(&self, node: &str) -> bool {
        !self.1.lock().unwrap().contains(node)
    }
}

pub struct Bench {
    pub place: Place,
    pub trees: Arc<Trees>,
    pub options: NodeOptions,
    node: Option<Node>,
    finished: bool,
    dir: tempfile::TempDir,
}

impl Drop for Bench {
    /// What a test that failed has left is removed: by its node, and where that is gone or cannot, from outside.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        if let (Some(node), Ok(runtime)) = (self.node.take(), tokio::runtime::Handle::try_current()) {
            let close = async move { tokio::time::timeout(Duration::from_secs(30), node.close_all()).await.ok() };
            // A panic in here would end the whole process.
            std::thread::scope(|scope| drop(scope.spawn(|| runtime.block_on(close).is_some()).join()));
        }
        let Ok(identity) = std::fs::read_to_string(self.options.state_dir.join("identity")) else { return };
        remove_all_of(identity.trim());
    }
}

/// The containers and networks that carry this owner's label.
fn remove_all_of(owner: &str) {
    let docker = |args: &[&str]| std::process::Command::new("docker").args(args).output().ok();
    let label = format!("label=hearth.owner={owner}");
    for (list, remove) in [(["ps", "-a"], ["rm", "-fv"]), (["network", "ls"], ["network", "rm"])] {
        let Some(found) = docker(&[&list[..], &["-q", "--filter", &label]].concat()) else { return };
        let found = String::from_utf8_lossy(&found.stdout).into_owned();
        let ids: Vec<&str> = found.split_whitespace().collect();
        if !ids.is_empty() {
            docker(&[&remove[..], &ids].concat());
        }
    }
}

impl Bench {
    pub async fn new(place: Place) -> Self {
        Self::with(place, |_| ()).await
    }

    pub async fn with(place: Place, change: impl FnOnce(&mut NodeOptions)) -> Self {
        let dir = tempfile::Builder::new().prefix("hearth-bench-").tempdir().unwrap();
        // Local sessions may run as another user, who has to come through.
        std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let mut options = NodeOptions::new("node-bench", dir.path().join("state"));
        options.workspace_root = Some(dir.path().join("workspaces"));
        options.sweep_interval = Duration::from_secs(1);
        options.allow_env_injection = true;
        change(&mut options);
        let mut bench = Self { place, trees: Arc::default(), options, node: None, finished: false, dir };
        bench.start().await;
        bench
    }

    pub async fn start(&mut self) {
        let drivers = (self.place.drivers)(self.options.state_dir.clone()).await;
        let node = Node::start(self.options.clone(), drivers, SystemClock::shared(), self.trees.clone()).await;
        self.node = Some(node.unwrap());
    }

    /// As if the process had been killed: nothing is closed, nothing is said.
    pub fn kill(&mut self) {
        self.node = None;
    }

    pub async fn restart(&mut self) {
        self.kill();
        let dir = self.options.state_dir.clone();
        // Tasks of the killed node may still hold its folder for a moment; a process would not.
        let free = || {
            let lock = std::fs::File::open(dir.join("lock")).unwrap();
            lock.try_lock().is_ok()
        };
        until("the killed node lets go of its folder", || async { free() }).await;
        self.start().await;
    }

    pub fn node(&self) -> &Node {
        self.node.as_ref().expect("the node is up")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Closes all, which has to succeed.
    pub async fn finish(mut self) {
        self.node().close_all().await.unwrap();
        self.finished = true;
    }
}

/// Waits for a condition; a test that waits for half a minute has failed.
pub async fn until<F, R>(what: &str, mut holds: F)
where
    F: FnMut() -> R,
    R: Future<Output = bool>,
{
    let end = tokio::time::Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(tokio::time::Instant::now() < end, "in vain waited until {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub fn caller(principal: &str) -> Caller {
    Caller { principal: principal.to_owned(), ..Caller::default() }
}

/// A run of a tree.
pub fn run(root: &str, run: &str) -> Caller {
    Caller { root_run: Some(RunId::parse(root).unwrap()), run: Some(RunId::parse(run).unwrap()), ..caller("acme") }
}

pub fn code<T: std::fmt::Debug>(result: Result<T, Fault>) -> &'static str {
    result.unwrap_err().code.as_str()
}

pub fn command(session: &SandboxId, command: &str) -> ExecArgs {
    ExecArgs::new(session, command)
}

/// Calls as one caller.
pub struct Hand<'a> {
    pub node: &'a Node,
    pub caller: Caller,
}

impl Bench {
    pub fn hand(&self, caller: Caller) -> Hand<'_> {
        Hand { node: self.node(), caller }
    }
}

impl Hand<'_> {
    pub async fn open(&self) -> OpenResult {
        self.node.open(&self.caller, OpenArgs::default()).await.unwrap()
    }

    pub async fn try_open(&self, args: OpenArgs) -> Result<OpenResult, Fault> {
        self.node.open(&self.caller, args).await
    }

    pub async fn workspace(&self, name: &str) -> OpenResult {
        self.try_open(OpenArgs { workspace: Some(name.to_owned()), ..OpenArgs::default() }).await.unwrap()
    }

    pub async fn sh(&self, session: &SandboxId, line: &str) -> ExecResult {
        self.try_exec(command(session, line)).await.unwrap()
    }

    pub async fn try_exec(&self, args: ExecArgs) -> Result<ExecResult, Fault> {
        self.node.exec(&self.caller, args).await
    }

    pub async fn poll(&self, session: &SandboxId, exec_id: &ExecId, timeout_ms: u64) -> Result<ExecResult, Fault> {
        let args = PollArgs { session_id: session.clone(), exec_id: exec_id.clone(), timeout_ms: Some(timeout_ms) };
        self.node.poll(&self.caller, args).await
    }

    pub async fn write(&self, session: &SandboxId, path: &str, content: &str) -> Result<WriteResult, Fault> {
        let args = WriteArgs {
            session_id: session.clone(),
            path: path.to_owned(),
            content: content.to_owned(),
            encoding: None,
            mode: None,
        };
        self.node.write(&self.caller, args).await
    }

    pub async fn read(&self, session: &SandboxId, path: &str) -> Result<ReadResult, Fault> {
        let args = ReadArgs {
            session_id: session.clone(),
            path: path.to_owned(),
            encoding: None,
            offset: None,
            max_bytes: None,
        };
        self.node.read(&self.caller, args).await
    }

    pub async fn close(&self, session: &SandboxId) -> Result<(), Fault> {
        self.node.close(&self.caller, SessionArgs { session_id: session.clone() }).await
    }

    pub async fn listed(&self) -> Vec<SandboxId> {
        self.node.list(&self.caller).await.unwrap().into_iter().map(|row| row.session_id).collect()
    }
}

/// Bytes of memory that this process holds.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}
