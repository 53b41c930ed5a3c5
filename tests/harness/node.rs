//! One `hearth node` process with its own folder.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::program::without_own_settings;
use crate::server::free_port;
use crate::{Mcp, binary, eventually, leftovers};

/// The node's own token.
pub const NODE_TOKEN: &str = "harness-node-0123456789abcdef0123456789abcdef";

/// A sandbox node. Dropping it kills it and all that it started.
#[derive(Debug)]
pub struct Node {
    variables: Vec<(String, String)>,
    args: Vec<String>,
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Node {
    /// A node of its own, with local sessions. Nothing is set but what is given.
    pub fn new(variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::Builder::new().prefix("hearth-test-node-").tempdir().expect("a temporary folder");
        let mut node = Self { variables: Vec::new(), args: Vec::new(), folder, port: free_port(), child: None };
        let (state, root) = (node.path("state"), node.path("workspaces"));
        fs::create_dir(&root).expect("a folder for workspaces");
        for (name, value) in [
            ("SANDBOX_LISTEN_ADDR", format!("127.0.0.1:{}", node.port)),
            ("SANDBOX_STATE_DIR", state.display().to_string()),
            ("SANDBOX_WORKSPACE_ROOT", root.display().to_string()),
            ("SANDBOX_DRIVER", "local".to_owned()),
        ] {
            node.variables.push((name.to_owned(), value));
        }
        node.variables.extend(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        node
    }

    /// The same, with its token, started and ready.
    pub async fn start(variables: &[(&str, &str)]) -> Self {
        let mut node = Self::new(&[&[("SANDBOX_AUTH_TOKEN", NODE_TOKEN)], variables].concat());
        node.launch();
        node.ready().await;
        node
    }

    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A client that holds the node's own token.
    pub fn mcp(&self) -> Mcp {
        Mcp::new(&self.base(), Some(NODE_TOKEN))
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.path("output.log")).unwrap_or_default()).into_owned()
    }

    pub fn launch(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("output.log")).expect("a log file");
        let mut command = Command::new(binary());
        without_own_settings(&mut command);
        command
            .arg("node")
            .args(&self.args)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log);
        self.child = Some(command.spawn().expect("the node starts"));
    }

    pub async fn ready(&mut self) {
        let mut child = self.child.take().expect("a child");
        let url = format!("{}/readyz", self.base());
        let early = eventually("the node is ready or has ended", async || {
            if let Some(status) = child.try_wait().expect("a status") {
                return Some(Some(status));
            }
            reqwest::get(&url).await.is_ok_and(|answer| answer.status() == 200).then_some(None)
        })
        .await;
        self.child = Some(child);
        assert!(early.is_none(), "the node ended at its start with {early:?}:\n{}", self.log());
    }

    /// Of its process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("a running node").id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().expect("a running node"));
        kill_process(pid, signal).expect("the node is there");
    }

    pub async fn exit(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("a running node");
        eventually("the node has ended", async || child.try_wait().expect("a status")).await
    }

    /// `kill -9`, and a new start on the same folder.
    pub async fn crash(&mut self) {
        self.signal(Signal::KILL);
        self.exit().await;
        self.launch();
        self.ready().await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
        if self.variables.iter().any(|(name, value)| name == "SANDBOX_DRIVER" && value == "docker") {
            leftovers::remove_containers(self.folder.path());
        }
        leftovers::end(&leftovers::of(self.folder.path()));
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n");
            eprintln!("the end of the node's output:\n{tail}");
        }
    }
}
