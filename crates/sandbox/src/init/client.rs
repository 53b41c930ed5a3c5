//! Calls to an init, each on a connection of its own while it lasts; one is kept for the next call.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hearth_sandbox_init::socket::SocketPath;
use hearth_sandbox_init::wire::{self, Answer, ExecRequest, Refusal, RefusalKind, Report, Request, Stamp};
use hearth_types::ExecId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::exec::signal_name;
use super::{ExecReport, ExecSpec, FileSlice, FileStamp, MAX_COMMAND_BYTES, MAX_FILE_BYTES};
use crate::{Error, ErrorKind};

/// How long an init may take to answer what it can answer at once.
const PROMPT: Duration = Duration::from_secs(15);
/// Less for a sign of life.
const PING: Duration = Duration::from_secs(5);
/// Connections of one handle that wait for a command, and others. Together they stay below what an
/// init serves at once, so that a `kill` always gets through.
const WAITS: usize = 64;
const CALLS: usize = 32;

/// A handle on a session's init. Cheap to clone; the clones hold one connection between calls.
#[derive(Debug, Clone)]
pub struct InitClient {
    socket: Arc<Path>,
    kept: Arc<Mutex<Option<UnixStream>>>,
    waits: Arc<Semaphore>,
    calls: Arc<Semaphore>,
}

impl InitClient {
    /// Checks that an init answers at the socket.
    pub async fn connect(socket: &Path) -> Result<Self, Error> {
        let client = Self {
            socket: socket.into(),
            kept: Arc::default(),
            waits: Arc::new(Semaphore::new(WAITS)),
            calls: Arc::new(Semaphore::new(CALLS)),
        };
        client.ping().await?;
        Ok(client)
    }

    /// Starts the command, or attaches to the one that has this id, and returns at once.
    pub async fn exec(&self, spec: &ExecSpec) -> Result<ExecReport, Error> {
        self.run(spec, Duration::ZERO).await
    }

    /// The same, and then waits for its end, `wait` at the longest. Dropping the call leaves the
    /// command running.
    pub async fn run(&self, spec: &ExecSpec, wait: Duration) -> Result<ExecReport, Error> {
        let (request, stdin) = exec_request(spec, wait)?;
        report(self.waiting(&Request::Exec(request), stdin, wait).await?)
    }

    /// The exec once it ended, or as it is after `wait`.
    pub async fn wait(&self, exec: &ExecId, wait: Duration) -> Result<ExecReport, Error> {
        let request = Request::Wait { id: exec.as_str().to_owned(), wait_ms: millis(wait) };
        report(self.waiting(&request, &[], wait).await?)
    }

    /// The exec as it is.
    pub async fn poll(&self, exec: &ExecId) -> Result<ExecReport, Error> {
        self.wait(exec, Duration::ZERO).await
    }

    /// Ends the exec's whole tree, what it left behind included, and returns when it is dead. A result
    /// that stood before stays as it is.
    pub async fn kill(&self, exec: &ExecId) -> Result<ExecReport, Error> {
        let request = Request::Kill { id: exec.as_str().to_owned() };
        report(self.call(&request, &[], PROMPT).await?)
    }

    /// Drops the kept result of an exec that ended. One that is unknown already is no error.
    pub async fn forget(&self, exec: &ExecId) -> Result<(), Error> {
        let request = Request::Forget { id: exec.as_str().to_owned() };
        match self.call(&request, &[], PROMPT).await.and_then(done) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Evicted) => Ok(()),
            other => other,
        }
    }

    /// Replaces the content of a file below the workspace; missing folders are made. `mode` is its
    /// permission bits; absent: 0644 for a new file, unchanged for another.
    pub async fn write(&self, path: &str, content: &[u8], mode: Option<u32>) -> Result<FileStamp, Error> {
        check_path(path)?;
        check_size("the content of a write", content.len())?;
        let request = Request::Write { path: path.as_bytes().to_vec(), mode };
        match self.call(&request, content, PROMPT).await? {
            (Answer::Written(stamp), _) => Ok(stamp.into()),
            other => Err(misplaced(&other.0)),
        }
    }

    /// Reads up to `max_bytes` of a file below the workspace, from `offset`.
    pub async fn read(&self, path: &str, offset: u64, max_bytes: u64) -> Result<FileSlice, Error> {
        check_path(path)?;
        let max_bytes = max_bytes.min(MAX_FILE_BYTES);
        let request = Request::Read { path: path.as_bytes().to_vec(), offset, max_bytes };
        match self.call(&request, &[], PROMPT).await? {
            (Answer::Slice { truncated, stamp }, content) => {
                Ok(FileSlice { content, size: stamp.size, truncated, stamp: stamp.into() })
            }
            other => Err(misplaced(&other.0)),
        }
    }

    /// A sign of life, from both sides: an init that nobody speaks to for two hours ends its session. With it
    /// comes how many bytes the workspace holds, where it is a file system of its own.
    pub async fn ping(&self) -> Result<Option<u64>, Error> {
        match self.call(&Request::Ping, &[], PING).await? {
            (Answer::Pong { disk_bytes, .. }, _) => Ok(disk_bytes),
            other => Err(misplaced(&other.0)),
        }
    }

    /// From now on the session ends by itself once nobody has called this for so long: what may be somebody else's
    /// after that is not used from here any more, whatever has become of this process.
    pub async fn lease(&self, time: Duration) -> Result<(), Error> {
        self.call(&Request::Lease { ms: millis(time) }, &[], PING).await.and_then(done)
    }

    /// Ends every process of the session; they are dead when this returns.
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.call(&Request::Shutdown, &[], PROMPT).await.and_then(done)
    }

    /// A call that waits for a command. Waiting for one's turn is part of the wait.
    async fn waiting(&self, request: &Request, body: &[u8], wait: Duration) -> Result<(Answer, Vec<u8>), Error> {
        if wait.is_zero() {
            return self.call(request, body, PROMPT).await;
        }
        let _slot = slot(&self.waits, wait + PROMPT).await?;
        self.exchange(request, body, wait + PROMPT).await
    }

    async fn call(&self, request: &Request, body: &[u8], limit: Duration) -> Result<(Answer, Vec<u8>), Error> {
        let _slot = slot(&self.calls, limit).await?;
        self.exchange(request, body, limit).await
    }

    async fn exchange(&self, request: &Request, body: &[u8], limit: Duration) -> Result<(Answer, Vec<u8>), Error> {
        let front = wire::frame(&request.encode(), body.len())
            .ok_or_else(|| Error::new(ErrorKind::TooLarge, "the request is larger than a session takes"))?;
        let answer = tokio::time::timeout_at(Instant::now() + limit, self.talk(&front, body))
            .await
            .map_err(|_| Error::new(ErrorKind::Deadline, "the sandbox session did not answer in time"))??;
        match answer {
            (Answer::Refused(refusal), _) => Err(refused(refusal)),
            other => Ok(other),
        }
    }

    /// Given up in the middle, the connection goes; only one whose answer has been read is kept.
    async fn talk(&self, front: &[u8], body: &[u8]) -> Result<(Answer, Vec<u8>), Error> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut stream) = kept {
            match ask(&mut stream, front, body).await {
                // The init has let it go, to make room or because it has ended. Every call can be repeated.
                Err(error) if error.kind() == ErrorKind::Unavailable => {}
                answer => return self.keep(stream, answer),
            }
        }
        let mut stream = dial(&self.socket).await?;
        let answer = ask(&mut stream, front, body).await;
        self.keep(stream, answer)
    }

    fn keep<T>(&self, stream: UnixStream, answer: Result<T, Error>) -> Result<T, Error> {
        if answer.is_ok() {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        }
        answer
    }
}

async fn slot(slots: &Semaphore, limit: Duration) -> Result<tokio::sync::SemaphorePermit<'_>, Error> {
    let busy = || Error::new(ErrorKind::Busy, "too many calls to this sandbox session at once");
    timeout(limit, slots.acquire()).await.map_err(|_| busy())?.map_err(|_| busy())
}

async fn ask(stream: &mut UnixStream, front: &[u8], body: &[u8]) -> Result<(Answer, Vec<u8>), Error> {
    stream.write_all(front).await.map_err(broken)?;
    stream.write_all(body).await.map_err(broken)?;
    receive(stream).await
}

async fn dial(socket: &Path) -> Result<UnixStream, Error> {
    let gone = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Error::caused(ErrorKind::SessionLost, "the sandbox session is gone; open another", error)
        }
        _ => Error::caused(ErrorKind::Unavailable, "the sandbox session cannot be reached", error),
    };
    let address = SocketPath::of(socket).map_err(gone)?;
    UnixStream::connect(address.path()).await.map_err(gone)
}

/// The other side may be anything that runs in the session, so its lengths are checked before a byte
/// is kept.
async fn receive(stream: &mut UnixStream) -> Result<(Answer, Vec<u8>), Error> {
    let mut prefix = [0; wire::PREFIX];
    stream.read_exact(&mut prefix).await.map_err(broken)?;
    let (head_len, body_len) = wire::lengths(prefix).ok_or_else(garbled)?;
    let mut head = vec![0; head_len];
    stream.read_exact(&mut head).await.map_err(broken)?;
    let mut body = Vec::new();
    stream.take(body_len as u64).read_to_end(&mut body).await.map_err(broken)?;
    if body.len() != body_len {
        return Err(broken(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok((Answer::decode(&head).map_err(|_| garbled())?, body))
}

fn broken(error: io::Error) -> Error {
    Error::caused(ErrorKind::Unavailable, "the sandbox session broke off; try again", error)
}

fn garbled() -> Error {
    Error::new(ErrorKind::Internal, "the sandbox session gave an answer that makes no sense")
}

fn misplaced(answer: &Answer) -> Error {
    let got = io::Error::other(format!("{answer:?}"));
    Error::caused(ErrorKind::Internal, "the sandbox session answered something else than was asked", got)
}

fn refused(refusal: Refusal) -> Error {
    let kind = match refusal.kind {
        RefusalKind::Invalid => ErrorKind::Invalid,
        RefusalKind::Outside | RefusalKind::Denied => ErrorKind::Refused,
        RefusalKind::NotFound => ErrorKind::NotFound,
        RefusalKind::Evicted => ErrorKind::Evicted,
        RefusalKind::Conflict => ErrorKind::Conflict,
        RefusalKind::TooLarge => ErrorKind::TooLarge,
        RefusalKind::Busy => ErrorKind::Busy,
        RefusalKind::NoSpace => ErrorKind::NoSpace,
        RefusalKind::Failed => ErrorKind::Internal,
    };
    Error::new(kind, refusal.message)
}

fn done((answer, _): (Answer, Vec<u8>)) -> Result<(), Error> {
    if answer == Answer::Done { Ok(()) } else { Err(misplaced(&answer)) }
}

fn report((answer, output): (Answer, Vec<u8>)) -> Result<ExecReport, Error> {
    let Answer::Report(report) = answer else { return Err(misplaced(&answer)) };
    let Report { exit_code, signal, timed_out, killed, oom_killed, output_bytes, duration_ms } = report;
    let truncated = output_bytes > output.len() as u64;
    let signal = (signal != 0).then(|| signal_name(signal));
    Ok(ExecReport { output, output_bytes, truncated, exit_code, signal, timed_out, killed, oom_killed, duration_ms })
}

fn exec_request(spec: &ExecSpec, wait: Duration) -> Result<(ExecRequest, &[u8]), Error> {
    if spec.command.len() > MAX_COMMAND_BYTES {
        let message =
            format!("a command has at most {MAX_COMMAND_BYTES} bytes; write a longer one to a file and run that");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    if spec.command.contains('\0') {
        return Err(Error::new(ErrorKind::Invalid, "`command` holds a NUL byte"));
    }
    let stdin = spec.stdin.as_deref().unwrap_or_default();
    check_size("`stdin`", stdin.len())?;
    if let Some(cwd) = &spec.cwd {
        check_path(cwd)?;
    }
    for (name, value) in &spec.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let shown: String = name.chars().take(64).collect();
            return Err(Error::new(ErrorKind::Invalid, format!("{shown:?} is no variable that can be set in `env`")));
        }
    }
    let env_bytes: usize = spec.env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
    if env_bytes > wire::MAX_ENV {
        return Err(Error::new(ErrorKind::TooLarge, format!("`env` has at most {} bytes", wire::MAX_ENV)));
    }
    let env = spec.env.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
    let request = ExecRequest {
        id: spec.exec_id.as_str().to_owned(),
        command: spec.command.as_bytes().to_vec(),
        cwd: spec.cwd.as_ref().map(|cwd| cwd.as_bytes().to_vec()),
        env,
        timeout_ms: millis(spec.timeout),
        keep: spec.max_output_bytes,
        wait_ms: millis(wait),
    };
    Ok((request, stdin))
}

fn check_path(path: &str) -> Result<(), Error> {
    if path.is_empty() || path.len() > wire::MAX_PATH || path.contains('\0') {
        let message = format!("a path is 1 to {} bytes without a NUL", wire::MAX_PATH);
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

fn check_size(what: &str, len: usize) -> Result<(), Error> {
    if len as u64 > MAX_FILE_BYTES {
        return Err(Error::new(ErrorKind::TooLarge, format!("{what} has at most {MAX_FILE_BYTES} bytes")));
    }
    Ok(())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl From<Stamp> for FileStamp {
    fn from(stamp: Stamp) -> Self {
        let Stamp { mtime_ns, ctime_ns, size, inode } = stamp;
        Self { mtime_ns, ctime_ns, size, inode }
    }
}
