//! A Docker daemon for the time of the tests.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::process;

/// How often a new daemon is asked, and how long between two questions.
const QUESTIONS: u32 = 150;
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(200);

/// A daemon that this process started. Dropping it ends it.
#[derive(Debug)]
pub struct Daemon(Child);

impl Daemon {
    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // TERM, because a killed daemon would leave its containerd behind.
        let asked = process::run(Command::new("kill").args(["-TERM", &self.0.id().to_string()]));
        if asked.is_err() {
            self.0.kill().ok();
        }
        self.0.wait().ok();
    }
}

/// The daemon that had to be started; none where one answers already. It ends with this process unless
/// it is to stay.
pub fn ensure(root: &Path, stays: bool) -> Result<Option<Daemon>, String> {
    if let Ok(version) = version() {
        println!("a Docker daemon {version} answers");
        return Ok(None);
    }
    if !process::is_root() || !process::is_there("dockerd") {
        return Err("no Docker daemon answers, and this process cannot start one".to_owned());
    }
    let log = root.join("target/dockerd.log");
    let mut daemon = Daemon(spawn(&log, stays).map_err(|error| format!("dockerd does not start: {error}"))?);
    println!("started dockerd as process {} (its log: {})", daemon.id(), log.display());
    for _ in 0..QUESTIONS {
        if let Ok(version) = version() {
            println!("a Docker daemon {version} answers");
            return Ok(Some(daemon));
        }
        if let Ok(Some(status)) = daemon.0.try_wait() {
            return Err(format!("dockerd ended with {status}: {}", last_line(&log)));
        }
        thread::sleep(BETWEEN_QUESTIONS);
    }
    Err(format!("dockerd does not answer: {}", last_line(&log)))
}

fn version() -> Result<String, Failure> {
    process::output(Command::new("docker").args(["version", "--format", "{{.Server.Version}}"]))
        .map(|version| version.trim().to_owned())
}

fn spawn(log: &Path, stays: bool) -> std::io::Result<Child> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = File::create(log)?;
    // With setpriv the daemon ends with this process, even when that is killed.
    let mut command = if !stays && process::is_there("setpriv") {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "dockerd"]);
        command
    } else {
        Command::new("dockerd")
    };
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or("it wrote nothing").chars().take(300).collect()
}
