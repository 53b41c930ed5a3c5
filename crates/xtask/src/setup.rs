//! What tests need besides a Rust toolchain: installed and started where this process may.
//!
//! Whatever cannot be had is said, and the tests that need it leave themselves out.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::failure::Failure;
use crate::{image, process};

/// A program, the Debian package that has it, and what goes untested without it.
const NEEDED: [(&str, &str, &str); 4] = [
    ("bwrap", "bubblewrap", "local sandbox sessions run without confinement"),
    ("docker", "docker.io", "sandbox sessions in containers"),
    ("dockerd", "docker.io", "sandbox sessions in containers"),
    ("mmdebstrap", "mmdebstrap", "the session image"),
];

/// How often a new daemon is asked, and how long between two questions.
const DAEMON_QUESTIONS: u32 = 150;
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(200);

/// What stands for the tests. Dropping it ends the daemon that it started.
#[derive(Debug)]
pub struct Services {
    daemon: Option<Child>,
    has_docker: bool,
    skipped: Vec<String>,
}

impl Services {
    /// What will not be tested here, and why.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Tells the tests what they can count on: with `HEARTH_TEST_DOCKER=1` a test that needs a
    /// container must run, with `0` it must not.
    pub fn announce<'a>(&self, tests: &'a mut Command) -> &'a mut Command {
        tests.env("HEARTH_TEST_DOCKER", if self.has_docker { "1" } else { "0" })
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            stop(&mut daemon);
        }
    }
}

/// Installs, starts and builds.
pub fn start(root: &Path) -> Result<Services, Failure> {
    let mut skipped = install();
    let daemon = match docker_daemon(root) {
        Ok(daemon) => daemon,
        Err(reason) => {
            skipped.push(format!("tests that need containers: {reason}"));
            return Ok(Services { daemon: None, has_docker: false, skipped });
        }
    };
    let mut services = Services { daemon, has_docker: true, skipped };
    if let Err(error) = image::run(root, &[]) {
        services.has_docker = false;
        services.skipped.push(format!("tests that need containers: the session image cannot be built: {error}"));
    }
    Ok(services)
}

/// The same, for a developer: a daemon that was started stays.
pub fn keep(root: &Path) -> Result<(), Failure> {
    let mut services = start(root)?;
    for skipped in services.skipped() {
        println!("not to be had: {skipped}");
    }
    if let Some(daemon) = services.daemon.take() {
        println!("dockerd runs on as process {}; end it with `kill {}`", daemon.id(), daemon.id());
    }
    Ok(())
}

fn install() -> Vec<String> {
    let missing: Vec<_> = NEEDED.iter().filter(|(program, ..)| !process::is_there(program)).collect();
    let mut packages: Vec<_> = missing.iter().map(|(_, package, _)| *package).collect();
    packages.dedup();
    if packages.is_empty() {
        println!("everything that has to be installed is there");
        return Vec::new();
    }
    let advice = format!("apt-get install {}", packages.join(" "));
    let installed = if process::is_root() && process::is_there("apt-get") {
        println!("installing {} …", packages.join(", "));
        apt(&["update", "-q"])
            .and_then(|()| apt(&[&["install", "-y", "-q", "--no-install-recommends"], packages.as_slice()].concat()))
    } else {
        Err(Failure::Program { line: advice, reason: "this process may not install; do it by hand".to_owned() })
    };
    if let Err(failure) = installed {
        println!("{failure}");
    }
    let gone = missing.iter().filter(|(program, ..)| !process::is_there(program));
    gone.map(|(program, package, what)| format!("{what}: `{program}` is missing (package {package})")).collect()
}

fn apt(args: &[&str]) -> Result<(), Failure> {
    process::run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(args))
}

fn daemon_answers() -> Result<String, Failure> {
    process::output(Command::new("docker").args(["version", "--format", "{{.Server.Version}}"]))
        .map(|version| version.trim().to_owned())
}

/// The daemon that had to be started; none where one answers already.
fn docker_daemon(root: &Path) -> Result<Option<Child>, String> {
    if let Ok(version) = daemon_answers() {
        println!("a Docker daemon {version} answers");
        return Ok(None);
    }
    if !process::is_root() || !process::is_there("dockerd") {
        return Err("no Docker daemon answers, and this process cannot start one".to_owned());
    }
    let log = root.join("target/dockerd.log");
    let mut daemon = spawn_daemon(&log).map_err(|error| format!("dockerd does not start: {error}"))?;
    println!("started dockerd as process {} (its log: {})", daemon.id(), log.display());
    for _ in 0..DAEMON_QUESTIONS {
        if let Ok(version) = daemon_answers() {
            println!("a Docker daemon {version} answers");
            return Ok(Some(daemon));
        }
        if let Ok(Some(status)) = daemon.try_wait() {
            return Err(format!("dockerd ended with {status}: {}", last_line(&log)));
        }
        thread::sleep(BETWEEN_QUESTIONS);
    }
    stop(&mut daemon);
    Err(format!("dockerd does not answer: {}", last_line(&log)))
}

fn spawn_daemon(log: &Path) -> std::io::Result<Child> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = File::create(log)?;
    // With setpriv the daemon ends with this process, even when that is killed.
    let mut command = if process::is_there("setpriv") {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "dockerd"]);
        command
    } else {
        Command::new("dockerd")
    };
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).spawn()
}

fn stop(daemon: &mut Child) {
    // TERM, because a killed daemon would leave its containerd behind.
    let asked = process::run(Command::new("kill").args(["-TERM", &daemon.id().to_string()]));
    if asked.is_err() {
        daemon.kill().ok();
    }
    daemon.wait().ok();
}

fn last_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().last().unwrap_or("it wrote nothing").chars().take(300).collect()
}
