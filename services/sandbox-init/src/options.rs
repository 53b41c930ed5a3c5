//! The command line.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

pub const USAGE: &str =
    "usage: hearth-sandbox-init serve --socket PATH --root DIR [--alias DIR] [--socket-mode OCTAL] [--name NAME]
           [--deadline-ms UNIX_MS] [--idle-s SECONDS] [--uid UID --gid GID] [--own DIR]...
           [--max-data BYTES] [--max-file BYTES] [--max-processes N] [--cut-network] [--watch-oom] [--no-spare]
       hearth-sandbox-init detach [--log PATH] -- COMMAND [ARGUMENT]...
       hearth-sandbox-init probe-network";

/// How long no client may speak and no command run before the session ends.
const IDLE_S: u64 = 2 * 3600;

/// A command line that cannot be meant.
#[derive(Debug, PartialEq, Eq)]
pub struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hearth-sandbox-init: {}", self.0)
    }
}

impl std::error::Error for Usage {}

#[derive(Debug, PartialEq, Eq)]
pub enum Command {
    /// Be the init of a session.
    Serve(Options),
    /// Start a command that does not depend on who started it, print its process id, and return.
    Detach { log: Option<PathBuf>, words: Vec<OsString> },
    /// Succeed when `--cut-network` would.
    ProbeNetwork,
}

/// Settings of `serve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub socket: PathBuf,
    /// Permission bits of the socket.
    pub socket_mode: u32,
    /// The workspace, and the default folder of commands.
    pub root: PathBuf,
    /// Another name that paths may begin with, where the workspace cannot be mounted at it.
    pub alias: Option<PathBuf>,
    /// When the session ends by itself, in milliseconds since the Unix epoch.
    pub deadline_ms: Option<u64>,
    pub idle_s: u64,
    /// The user and group to become once the socket is bound.
    pub user: Option<(u32, u32)>,
    /// Folders to hand over to that user.
    pub own: Vec<PathBuf>,
    /// Bytes of data (`RLIMIT_DATA`) of one process, and of one file it writes.
    pub max_data: Option<u64>,
    pub max_file: Option<u64>,
    /// Processes of the user (`RLIMIT_NPROC`); means the session only where the user is its own.
    pub max_processes: Option<u64>,
    /// Leave the host's network for an empty one.
    pub cut_network: bool,
    /// Whether the control group at `/sys/fs/cgroup` is the session's own, so that its OOM kills count.
    pub watch_oom: bool,
    /// Whether processes wait for the next command, so that it starts at once.
    pub spare: bool,
}

impl Options {
    fn new(socket: PathBuf, root: PathBuf) -> Self {
        Self {
            socket,
            socket_mode: 0o666,
            root,
            alias: None,
            deadline_ms: None,
            idle_s: IDLE_S,
            user: None,
            own: Vec::new(),
            max_data: None,
            max_file: None,
            max_processes: None,
            cut_network: false,
            watch_oom: false,
            spare: true,
        }
    }
}

impl Command {
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, Usage> {
        let mut args = args.into_iter();
        let name = args.next().unwrap_or_default();
        match name.as_bytes() {
            b"serve" => serve(args).map(Self::Serve),
            b"detach" => detach(args),
            b"probe-network" => Ok(Self::ProbeNetwork),
            other => Err(Usage(format!("no such command: {:?}", String::from_utf8_lossy(other)))),
        }
    }
}

fn detach(mut args: impl Iterator<Item = OsString>) -> Result<Command, Usage> {
    let mut log = None;
    loop {
        let word = args.next().ok_or_else(|| Usage("detach needs `--` and a command".to_owned()))?;
        match word.as_bytes() {
            b"--log" => log = args.next().map(PathBuf::from),
            b"--" => break,
            _ => return Err(Usage(format!("no such option: {word:?}"))),
        }
    }
    let words: Vec<_> = args.collect();
    if words.is_empty() { Err(Usage("detach needs a command".to_owned())) } else { Ok(Command::Detach { log, words }) }
}

fn serve(mut args: impl Iterator<Item = OsString>) -> Result<Options, Usage> {
    let mut options = Options::new(PathBuf::new(), PathBuf::new());
    let (mut uid, mut gid) = (None, None);
    while let Some(name) = args.next() {
        let mut value = || args.next().ok_or_else(|| Usage(format!("{name:?} needs a value")));
        match name.as_bytes() {
            b"--socket" => options.socket = PathBuf::from(value()?),
            b"--root" => options.root = PathBuf::from(value()?),
            b"--alias" => options.alias = Some(PathBuf::from(value()?)),
            b"--own" => options.own.push(PathBuf::from(value()?)),
            b"--cut-network" => options.cut_network = true,
            b"--watch-oom" => options.watch_oom = true,
            b"--no-spare" => options.spare = false,
            b"--socket-mode" => {
                let mode = value()?;
                let bits = mode.to_str().and_then(|text| u32::from_str_radix(text, 8).ok());
                options.socket_mode = bits.ok_or_else(|| Usage(format!("{mode:?} is no octal mode")))? & 0o777;
            }
            b"--deadline-ms" => options.deadline_ms = Some(number(value()?)?),
            b"--idle-s" => options.idle_s = number(value()?)?,
            b"--max-data" => options.max_data = Some(number(value()?)?),
            b"--max-file" => options.max_file = Some(number(value()?)?),
            b"--max-processes" => options.max_processes = Some(number(value()?)?),
            // Only there to be found in the list of processes.
            b"--name" => drop(value()?),
            b"--uid" => uid = Some(number(value()?)?),
            b"--gid" => gid = Some(number(value()?)?),
            _ => return Err(Usage(format!("no such option: {name:?}"))),
        }
    }
    options.user = match (uid, gid) {
        (Some(uid), Some(gid)) => Some((uid, gid)),
        (None, None) => None,
        _ => return Err(Usage("--uid and --gid go together".to_owned())),
    };
    if !options.root.is_absolute() || !options.socket.is_absolute() {
        return Err(Usage("--socket and --root are needed, and absolute".to_owned()));
    }
    Ok(options)
}

fn number<N: std::str::FromStr>(value: OsString) -> Result<N, Usage> {
    let text = String::from_utf8_lossy(&value.into_vec()).into_owned();
    text.parse().map_err(|_| Usage(format!("{text:?} is no number in range")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Command, Usage> {
        Command::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn a_full_command_line_is_read() {
        let Ok(Command::Serve(options)) = parse(&[
            "serve",
            "--socket",
            "/s",
            "--root",
            "/work",
            "--uid",
            "1000",
            "--gid",
            "1001",
            "--socket-mode",
            "600",
            "--own",
            "/work",
            "--deadline-ms",
            "5",
            "--cut-network",
            "--no-spare",
        ]) else {
            panic!("not read");
        };
        assert_eq!(options.user, Some((1000, 1001)));
        assert_eq!((options.socket_mode, options.deadline_ms, options.cut_network), (0o600, Some(5), true));
        assert!(!options.spare);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for bad in [
            &["serve"][..],
            &["serve", "--socket", "s", "--root", "/work"],
            &["serve", "--socket", "/s", "--root", "/work", "--uid", "1"],
            &["serve", "--socket", "/s", "--root", "/work", "--idle-s", "x"],
            &["serve", "--socket", "/s", "--root"],
            &["serve", "--sokcet", "/s"],
            &["detach", "--"],
            &["sing"],
            &[],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
