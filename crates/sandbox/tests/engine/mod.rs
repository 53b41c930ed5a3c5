//! The real engine, from the outside: the operator's program, images for tests, a line that can be cut.

pub mod escapes;
pub mod leaks;
pub mod outside;
mod work;

use std::path::{Path, PathBuf};
use std::process::Command;

use hearth_sandbox::OpenArgs;
use hearth_sandbox::node::DEFAULT_IMAGE;
use hearth_types::SandboxId;
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};

/// The docker program, as an operator has it.
pub fn cli(args: &[&str]) -> String {
    let output = Command::new("docker").args(args).output().unwrap();
    assert!(output.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub fn container_is_there(session: &SandboxId) -> bool {
    let name = format!("hearth-{session}");
    !cli(&["ps", "-aq", "--filter", &format!("name=^/{name}$")]).is_empty()
}

/// An image made of the session image and these lines, under a name of its own.
pub struct TestImage(String);

impl TestImage {
    pub fn build(name: &str, lines: &str) -> Self {
        let tag = format!("hearth-test-{name}-{}:latest", std::process::id());
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("Dockerfile"), format!("FROM {DEFAULT_IMAGE}\n{lines}\n")).unwrap();
        cli(&["build", "-q", "-t", &tag, &dir.path().display().to_string()]);
        Self(tag)
    }

    pub fn open(&self) -> OpenArgs {
        OpenArgs { image: Some(self.0.clone()), ..OpenArgs::default() }
    }
}

impl Drop for TestImage {
    fn drop(&mut self) {
        Command::new("docker").args(["rmi", "-f", &self.0]).output().ok();
    }
}

/// Passes on what is said to the real daemon, until it is told to stop.
pub struct Relay {
    pub socket: PathBuf,
    hung: tokio::sync::watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub fn start(dir: &Path) -> Self {
        let socket = dir.join("docker.sock");
        std::fs::remove_file(&socket).ok();
        let listener = UnixListener::bind(&socket).unwrap();
        let hung = tokio::sync::watch::Sender::new(false);
        let told = hung.subscribe();
        #[allow(clippy::disallowed_methods, reason = "a test's own task")]
        let task = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut told = told.clone();
                open.spawn(async move {
                    told.wait_for(|hung| !hung).await.ok();
                    let mut far = UnixStream::connect("/var/run/docker.sock").await.unwrap();
                    let hangs = async {
                        told.wait_for(|hung| *hung).await.ok();
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => return,
                        () = hangs => {}
                    }
                    // Connections stay open, and nothing comes any more.
                    told.wait_for(|hung| !hung).await.ok();
                });
            }
        });
        Self { socket, hung, task }
    }

    /// A daemon that takes every call and answers none, or one that is itself again.
    pub fn hang(&self, hung: bool) {
        self.hung.send_replace(hung);
    }

    pub fn stop(self) {
        self.task.abort();
        std::fs::remove_file(&self.socket).unwrap();
    }
}
