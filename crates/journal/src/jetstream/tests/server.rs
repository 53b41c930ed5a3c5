//! A `nats-server` of the tests' own.

use std::fmt::Write as _;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

/// It ends with the value; its folder stays, so that it can be started again.
pub(super) struct Server {
    pub(super) port: u16,
    config: PathBuf,
    child: Option<Child>,
}

impl Server {
    /// `None` where there is no `nats-server`, unless the environment requires one.
    pub(super) async fn start(folder: &std::path::Path, settings: &str) -> Option<Self> {
        let mut server = Self::configure(folder, "n0", free_port(), settings);
        if !server.run() {
            return None;
        }
        server.until_it_listens().await;
        Some(server)
    }

    /// Three servers that replicate for each other.
    pub(super) async fn start_three(folder: &std::path::Path) -> Option<Vec<Self>> {
        let routes: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let all = routes.iter().fold(String::new(), |mut text, port| {
            write!(text, "\"nats://127.0.0.1:{port}\", ").unwrap();
            text
        });
        let mut servers = Vec::new();
        for (n, route) in routes.iter().enumerate() {
            let cluster = format!("cluster {{ name: c, listen: \"127.0.0.1:{route}\", routes: [{all}] }}");
            let mut server = Self::configure(folder, &format!("n{n}"), free_port(), &cluster);
            if !server.run() {
                return None;
            }
            servers.push(server);
        }
        for server in &servers {
            server.until_it_listens().await;
        }
        Some(servers)
    }

    fn configure(folder: &std::path::Path, name: &str, port: u16, settings: &str) -> Self {
        let store = folder.join(name);
        std::fs::create_dir_all(&store).unwrap();
        let config = folder.join(format!("{name}.conf"));
        let text = format!(
            "server_name: {name}\nlisten: \"127.0.0.1:{port}\"\njetstream {{ store_dir: \"{}\" }}\n{settings}\n",
            store.display()
        );
        std::fs::write(&config, text).unwrap();
        Self { port, config, child: None }
    }

    fn run(&mut self) -> bool {
        let mut command = Command::new("nats-server");
        let spawned = command.arg("-c").arg(&self.config).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let Ok(child) = spawned else {
            let required = std::env::var_os("HEARTH_REQUIRE_SERVICES").is_some_and(|value| value == "1");
            assert!(!required, "nats-server is required, and not there");
            println!("skipped: there is no nats-server");
            return false;
        };
        self.child = Some(child);
        true
    }

    async fn until_it_listens(&self) {
        let began = Instant::now();
        while tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "nats-server does not listen");
            sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// SIGKILL.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(super) async fn start_again(&mut self) {
        assert!(self.run());
        self.until_it_listens().await;
    }

    /// SIGSTOP, and until every thread stands still.
    pub(super) async fn stop(&self) {
        let pid = self.signal(Signal::STOP);
        let stands = |thread: std::io::Result<std::fs::DirEntry>| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap_or_default();
            // The state follows the name, which is in parentheses.
            stat.rsplit(") ").next().is_none_or(|rest| rest.starts_with('T'))
        };
        while !std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(stands) {
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) -> u32 {
        let child = self.child.as_ref().expect("the server runs");
        kill_process(Pid::from_child(child), signal).unwrap();
        child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Below the range from which the system takes ports for outgoing connections, so that none of those
/// takes it before the server does.
fn free_port() -> u16 {
    loop {
        let random = RandomState::new().build_hasher().finish();
        let port = 20_000 + u16::try_from(random % 12_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
