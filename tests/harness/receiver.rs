//! A receiver of traces that nobody here wrote.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::eventually;
use crate::server::free_port;

/// A running `oteltap`. It ends with the value.
#[derive(Debug)]
pub struct Receiver {
    child: Child,
    folder: TempDir,
    port: u16,
}

impl Receiver {
    /// `None` where there is no `oteltap`.
    pub async fn start() -> Option<Self> {
        let (folder, port) = (tempfile::tempdir().expect("a temporary folder"), free_port());
        let output = File::create(folder.path().join("spans")).expect("a file");
        let mut command = Command::new("oteltap");
        command.args(["--port", &port.to_string()]).env("PYTHONUNBUFFERED", "1").stdin(Stdio::null());
        let Ok(child) = command.stdout(output).stderr(Stdio::null()).spawn() else {
            println!("skipped: there is no oteltap");
            return None;
        };
        eventually("the receiver listens", async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop)
        })
        .await;
        Some(Self { child, folder, port })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The spans of one trace so far.
    pub fn spans(&self, trace: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.path().join("spans")).expect("its output");
        let spans = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        spans.filter(|span| span["traceId"] == trace).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
