//! The replica that the demo starts, kills and starts again: `hearth dev` as a child process.

use std::fs::OpenOptions;
use std::io;
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::folder::Folder;
use super::trouble::Trouble;

/// How long a replica may take to end when asked to.
const GRACE: Duration = Duration::from_secs(15);

/// What stays the same when it is started again.
#[derive(Debug, Clone)]
pub struct Address {
    pub port: u16,
    pub token: String,
}

impl Address {
    /// A port that was free a moment ago, and a token that nobody else knows.
    pub fn fresh() -> io::Result<Self> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let token = format!("demo-{}{}", uuid::Uuid::now_v7().simple(), uuid::Uuid::now_v7().simple());
        Ok(Self { port, token })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

/// Settings of a server, but for its logging; and where durable workspaces lie.
fn is_servers(name: &str) -> bool {
    name == "SANDBOX_WORKSPACE_ROOT" || (name.starts_with("HEARTH_") && !name.starts_with("HEARTH_LOG"))
}

#[derive(Debug)]
pub struct Replica {
    child: Child,
    pid: Pid,
}

impl Replica {
    /// Starts the process; it serves once `/readyz` says so. `keep`: it may outlive the demo.
    pub fn start(folder: &Folder, address: &Address, keep: bool) -> Result<Self, Trouble> {
        let failed = |error: io::Error| Trouble::Here(format!("the replica does not start: {error}"));
        let log = OpenOptions::new().create(true).append(true).open(folder.log()).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("dev").arg("--listen").arg(format!("127.0.0.1:{}", address.port));
        command.arg("--data").arg(folder.path()).arg("--token").arg(&address.token);
        if !keep {
            command.arg("--end-with").arg(std::process::id().to_string());
        }
        // The demo plays the same whatever the caller has set for servers of their own.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_servers(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        // Ctrl-C is for the demo, which then ends the replica in good order.
        command.process_group(0);
        command.stdin(Stdio::from(folder.lock().map_err(failed)?));
        command.stdout(Stdio::from(log.try_clone().map_err(failed)?)).stderr(Stdio::from(log));
        let child = command.spawn().map_err(failed)?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Trouble::Here("the replica ended at once".to_owned()))?;
        Ok(Self { child, pid })
    }

    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGKILL: no chance to say goodbye. Returns how it ended.
    pub async fn kill(&mut self) -> Result<ExitStatus, Trouble> {
        self.child.start_kill().map_err(|error| Trouble::Here(format!("the replica cannot be killed: {error}")))?;
        self.child.wait().await.map_err(|error| Trouble::Here(format!("the replica cannot be waited for: {error}")))
    }

    /// SIGTERM, and SIGKILL when that is not enough. Whether it ended in good order.
    pub async fn stop(&mut self) -> bool {
        if self.ended().is_none() {
            kill_process(self.pid, Signal::TERM).ok();
        }
        match tokio::time::timeout(GRACE, self.child.wait()).await {
            Ok(Ok(status)) => status.success() || status.signal() == Some(Signal::TERM.as_raw()),
            Ok(Err(_)) => false,
            Err(_) => {
                self.child.kill().await.ok();
                false
            }
        }
    }
}
