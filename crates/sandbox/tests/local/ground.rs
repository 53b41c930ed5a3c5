//! Sessions for tests, and looks at what they leave.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use hearth_sandbox::init::{ExecReport, ExecSpec, InitClient};
use hearth_sandbox::local::{Bwrap, LocalDriver, LocalOptions};
use hearth_sandbox::{Driver as _, Network, SessionSpec, Started, Work};
use hearth_sandbox_init::tree;
use hearth_types::{Clock as _, ExecId, SandboxId, SandboxLimits, SystemClock};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than any command of these tests may take.
pub const LONG: Duration = Duration::from_secs(120);

/// A driver over a state folder of its own. What a test starts it stops, also when it fails.
pub struct Ground {
    pub folder: tempfile::TempDir,
    pub driver: LocalDriver,
    pub bwrap: Bwrap,
    sessions: Mutex<Vec<SandboxId>>,
}

impl Ground {
    pub async fn new(bwrap: Bwrap) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // As the folder of a service is: passable, so that sessions may have a user of their own.
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        let driver = open(&folder.path().join("state"), bwrap).await;
        Self { folder, driver, bwrap, sessions: Mutex::default() }
    }

    /// With what this host offers, and with nothing.
    pub async fn both() -> [Self; 2] {
        [Self::new(Bwrap::Auto).await, Self::new(Bwrap::Off).await]
    }

    pub fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub fn confined(&self) -> bool {
        self.driver.runtime() == "bwrap"
    }

    pub fn spec(&self, work: Work) -> SessionSpec {
        let spec = spec(work);
        self.sessions.lock().unwrap().push(spec.session.clone());
        spec
    }

    pub async fn session(&self) -> Session {
        self.session_on(Work::Tmpfs { mb: 64 }).await
    }

    pub async fn session_on(&self, work: Work) -> Session {
        let spec = self.spec(work);
        let started = self.driver.start(&spec).await.unwrap();
        let client = InitClient::connect(&started.socket).await.unwrap();
        Session { spec, started, client }
    }

    pub fn workspace(&self) -> PathBuf {
        let folder = self.folder.path().join("ws");
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Stops what was started and checks that nothing is left of it.
    pub async fn clear(self) {
        let sessions = std::mem::take(&mut *self.sessions.lock().unwrap());
        for session in &sessions {
            self.driver.stop(session).await.unwrap();
            assert_eq!(marked(session), Vec::<i32>::new(), "processes of the session are left");
        }
        let left = std::fs::read_dir(self.state().join("sessions")).unwrap().count();
        assert_eq!(left, 0, "folders of sessions are left");
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.folder.path().to_str().unwrap()), "mounts are left");
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for session in self.sessions.lock().unwrap().iter() {
            for pid in marked(session) {
                kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
            }
        }
    }
}

pub struct Session {
    pub spec: SessionSpec,
    pub started: Started,
    pub client: InitClient,
}

impl Session {
    pub async fn sh(&self, command: &str) -> ExecReport {
        self.client.run(&exec(command), LONG).await.unwrap()
    }

    /// Of a command that succeeds.
    pub async fn text(&self, command: &str) -> String {
        let report = self.sh(command).await;
        let text = String::from_utf8(report.output).unwrap();
        assert_eq!(report.exit_code, Some(0), "{command}: {text}");
        text.trim_end().to_owned()
    }
}

pub async fn open(state_dir: &Path, bwrap: Bwrap) -> LocalDriver {
    let mut host_env: BTreeMap<_, _> = std::env::vars().collect();
    host_env.insert("HOST_SECRET".to_owned(), "s3cret".to_owned());
    LocalDriver::open(LocalOptions { state_dir: state_dir.to_owned(), bwrap, host_env }).await.unwrap()
}

pub fn spec(work: Work) -> SessionSpec {
    SessionSpec {
        session: SandboxId::generate(),
        root_run: None,
        node: "node-1".to_owned(),
        image: None,
        work,
        network: Network::None,
        limits: SandboxLimits { cpu: Some(2.0), mem_mb: Some(2048), pids: Some(512), tmpfs_mb: Some(64) },
        runtime: None,
        deadline: SystemClock::start().now().plus(Duration::from_secs(600)),
        env: BTreeMap::from([("SESSION_VAR".to_owned(), "of the session".to_owned())]),
    }
}

pub fn exec(command: &str) -> ExecSpec {
    ExecSpec {
        exec_id: ExecId::generate(),
        command: command.to_owned(),
        cwd: None,
        env: BTreeMap::new(),
        stdin: None,
        timeout: Duration::from_secs(60),
        max_output_bytes: 1024 * 1024,
    }
}

/// Living processes of this host that carry the session's mark: in their environment, or, where that
/// is hidden, in their arguments.
pub fn marked(session: &SandboxId) -> Vec<i32> {
    let mark = format!("HEARTH_SESSION={session}");
    let carries = |pid: i32| {
        let [environment, line] =
            ["environ", "cmdline"].map(|file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default());
        environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
            || line.split(|&byte| byte == 0).any(|word| word == session.as_str().as_bytes())
    };
    let all = tree::all().unwrap().into_iter().filter(|process| !process.zombie);
    all.map(|process| process.pid).filter(|pid| carries(*pid)).collect()
}

/// The marked ones and all below them.
pub fn whole_tree(session: &SandboxId) -> Vec<tree::Process> {
    let (all, roots) = (tree::all().unwrap(), marked(session));
    let mut found = tree::below(&all, &roots, &std::collections::BTreeSet::new());
    found.extend(all.iter().filter(|process| roots.contains(&process.pid)));
    found.retain(|process| !process.zombie);
    found
}

/// Whether the process is there and runs exactly this.
pub fn runs(pid: i32, words: &[&str]) -> bool {
    let line: String = words.iter().map(|word| format!("{word}\0")).collect();
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == line.as_bytes())
}

pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let started = tokio::time::Instant::now();
    while !holds().await {
        assert!(started.elapsed() < Duration::from_secs(20), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
