//! A real init on a real socket, and the plainest client that can talk to it.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hearth_sandbox_init::tree;
use hearth_sandbox_init::wire::{self, Answer, ExecRequest, RefusalKind, Report, Request};

pub struct Init {
    pub folder: tempfile::TempDir,
    pub child: Child,
}

impl Init {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_hearth-sandbox-init"))
            .args(["serve", "--alias", "/work", "--socket"])
            .arg(folder.path().join("s"))
            .arg("--root")
            .arg(folder.path().join("work"))
            .args(options)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", folder.path().join("work/.home"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let init = Self { folder, child };
        eventually("the init listens", || UnixStream::connect(init.socket()).is_ok());
        init
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).unwrap()
    }

    pub fn ask(&self, request: &Request, body: &[u8]) -> (Answer, Vec<u8>) {
        ask_on(&mut self.connect(), request, body)
    }

    /// Runs to the end.
    pub fn exec(&self, request: ExecRequest) -> (Report, Vec<u8>) {
        reported(self.ask(&Request::Exec(ExecRequest { wait_ms: 60_000, ..request }), b""))
    }

    pub fn sh(&self, id: &str, command: &str) -> (Report, String) {
        let (report, output) = self.exec(exec(id, command));
        (report, String::from_utf8(output).unwrap())
    }

    pub fn refused(&self, request: &Request, body: &[u8]) -> RefusalKind {
        match self.ask(request, body).0 {
            Answer::Refused(refusal) => refusal.kind,
            other => panic!("not refused: {other:?}"),
        }
    }

    /// Processes below the init whose command line holds the text.
    pub fn running(&self, text: &str) -> Vec<i32> {
        let below = tree::below(&tree::all().unwrap(), &[self.pid()], &Default::default());
        below
            .into_iter()
            .filter(|process| !process.zombie)
            .map(|process| process.pid)
            .filter(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                String::from_utf8_lossy(&line).replace('\0', " ").contains(text)
            })
            .collect()
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            rustix::process::kill_process(
                rustix::process::Pid::from_raw(self.pid()).unwrap(),
                rustix::process::Signal::TERM,
            )
            .unwrap();
            self.child.wait().unwrap();
        }
    }
}

pub fn exec(id: &str, command: &str) -> ExecRequest {
    ExecRequest {
        id: id.to_owned(),
        command: command.as_bytes().to_vec(),
        timeout_ms: 30_000,
        keep: 1024 * 1024,
        ..ExecRequest::default()
    }
}

pub fn ask_on(stream: &mut UnixStream, request: &Request, body: &[u8]) -> (Answer, Vec<u8>) {
    let head = request.encode();
    stream.write_all(&wire::frame(&head, body.len()).unwrap()).unwrap();
    stream.write_all(body).unwrap();
    receive(stream)
}

pub fn receive(stream: &mut UnixStream) -> (Answer, Vec<u8>) {
    let mut prefix = [0; wire::PREFIX];
    stream.read_exact(&mut prefix).unwrap();
    let (head, body) = wire::lengths(prefix).unwrap();
    let (mut head, mut body) = (vec![0; head], vec![0; body]);
    stream.read_exact(&mut head).unwrap();
    stream.read_exact(&mut body).unwrap();
    (Answer::decode(&head).unwrap(), body)
}

pub fn reported((answer, body): (Answer, Vec<u8>)) -> (Report, Vec<u8>) {
    match answer {
        Answer::Report(report) => (report, body),
        other => panic!("no report: {other:?}"),
    }
}

/// Waits for a condition that must come true.
#[allow(clippy::disallowed_methods, reason = "tests of another process wait in real time")]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
