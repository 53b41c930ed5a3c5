//! A Docker daemon of a test's own, which it may kill.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{eventually, leftovers, within};

/// The name that nodes know their image by.
const IMAGE: &str = "hearth-session:latest";
/// A shell and two programs of the session image with their libraries: it is too big to be copied for a test.
const PROGRAMS: &str = "tar -ch -C / bin/sh bin/cat bin/sleep \
    $(ldd /bin/sh /bin/cat /bin/sleep | grep -o '/[^ ]*\\.so[^ ]*' | sort -u | cut -c2-)";
/// How long a daemon may take to answer: it first ends what has gone on without it, and gives each ten seconds.
const STARTING: Duration = Duration::from_secs(120);
/// How often, and with which pause, a daemon that is to end is looked at.
const ENDING_LOOKS: usize = 600;
const ENDING_PAUSE: Duration = Duration::from_millis(50);

/// A daemon with its own folder, in a network of its own, and with a small session image. Dropping it ends it and all that it runs.
#[derive(Debug)]
pub struct DockerDaemon {
    folder: TempDir,
    child: Mutex<Option<Child>>,
}

impl DockerDaemon {
    /// `None` where this process cannot start one, or where there is no session image to take programs from.
    pub async fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() || !["dockerd", "unshare"].into_iter().all(is_there) {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("hearth-test-docker-").tempdir().expect("a temporary folder");
        let archive = folder.path().join("image.tar");
        let made = Command::new("docker")
            .args(["run", "--rm", "--network", "none", IMAGE, "sh", "-c", PROGRAMS])
            .stdout(File::create(&archive).expect("a file"))
            .stderr(Stdio::null())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            return None;
        }
        let daemon = Self { folder, child: Mutex::new(None) };
        daemon.launch().await;
        daemon.docker(&["import", &archive.display().to_string(), IMAGE]).expect("the image is imported");
        Some(daemon)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What `DOCKER_HOST` has to be for it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.path("docker.sock").display())
    }

    /// The operator's program; nothing where it fails.
    pub fn docker(&self, args: &[&str]) -> Option<String> {
        let output = Command::new("docker").arg("-H").arg(self.host()).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `kill -9`. Its containers run on until the next start, which ends them.
    pub async fn kill(&self) {
        let mut child = self.child().take().expect("a running daemon");
        child.kill().expect("it can be killed");
        eventually("the daemon has ended", async || child.try_wait().expect("a status")).await;
        // It goes with its parent, a moment later; the next daemon would take it for one that runs.
        let containerd = fs::read_to_string(self.path("exec/containerd/containerd.pid")).expect("its containerd");
        let process = Path::new("/proc").join(containerd.trim());
        eventually("its containerd has ended", async || (!process.exists()).then_some(())).await;
    }

    /// Starts it, also after a [`kill`](Self::kill), and waits until it answers.
    pub async fn launch(&self) {
        let log = File::options().create(true).append(true).open(self.path("log")).expect("a log file");
        // In a network of its own: a daemon without a bridge removes `docker0`, which is another daemon's here.
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "dockerd", "--bridge", "none", "--iptables=false"]);
        for (name, part) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
            command.arg(name).arg(self.path(part));
        }
        command.arg("-H").arg(self.host()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        *self.child() = Some(command.spawn().expect("dockerd starts"));
        within(STARTING, "the daemon answers", async || self.docker(&["version"])).await;
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DockerDaemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.get(lines.len().saturating_sub(40)..).unwrap_or_default().join("\n");
            eprintln!("the end of the daemon's output:\n{tail}");
        }
        if let Some(ids) = self.docker(&["ps", "-aq"]) {
            let ids: Vec<&str> = ids.split_whitespace().collect();
            if !ids.is_empty() {
                self.docker(&[&["rm", "-fv"], ids.as_slice()].concat());
            }
        }
        let child = self.child().take();
        if let Some(mut child) = child {
            kill_process(Pid::from_child(&child), Signal::TERM).ok();
            for _ in 0..ENDING_LOOKS {
                if !matches!(child.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(ENDING_PAUSE);
            }
            child.kill().ok();
            child.wait().ok();
        }
        leftovers::end(&leftovers::of(self.folder.path()));
        unmount_below(self.folder.path());
    }
}

fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// What a daemon that was killed has left mounted, the innermost first: the folder could not be removed.
fn unmount_below(folder: &Path) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places =
        mounts.lines().filter_map(|line| line.split(' ').nth(4)).filter(|place| Path::new(place).starts_with(folder));
    for place in places.collect::<Vec<_>>().into_iter().rev() {
        Command::new("umount").args(["-l", place]).status().ok();
    }
}
