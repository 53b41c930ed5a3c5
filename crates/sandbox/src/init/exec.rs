//! What is asked of an init, and what it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use hearth_types::ExecId;
use serde::{Deserialize, Serialize};

/// A command for a session. Its identity is `exec_id`; a second one with the same id and the same
/// command, `cwd` and `stdin` re-attaches to the first, with others it is refused.
#[derive(Clone)]
pub struct ExecSpec {
    pub exec_id: ExecId,
    /// For `bash -c`, else `sh -c`. At most [`MAX_COMMAND_BYTES`](super::MAX_COMMAND_BYTES).
    pub command: String,
    /// Absent: `/work`. A relative one starts there.
    pub cwd: Option<String>,
    /// Beside the session's own; may hold secrets, which the init keeps no copy of.
    pub env: BTreeMap<String, String>,
    /// Absent: empty.
    pub stdin: Option<Vec<u8>>,
    /// After it the whole process tree gets TERM, and KILL two seconds later.
    pub timeout: Duration,
    /// Bytes of output that are kept, at most [`MAX_OUTPUT_BYTES`](super::MAX_OUTPUT_BYTES).
    pub max_output_bytes: u64,
}

/// An exec as it is, or as it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecReport {
    /// What it wrote first, stdout and stderr interleaved as written, up to its cap.
    pub output: Vec<u8>,
    /// All it wrote, what was not kept included.
    pub output_bytes: u64,
    /// Whether less was kept than was written.
    pub truncated: bool,
    /// Absent while it runs. 128 + n when signal n ended it.
    pub exit_code: Option<i32>,
    /// Such as `SIGKILL`, when a signal ended the command.
    pub signal: Option<String>,
    pub timed_out: bool,
    /// Ended by a `kill`.
    pub killed: bool,
    pub oom_killed: bool,
    pub duration_ms: u64,
}

impl ExecReport {
    pub const fn running(&self) -> bool {
        self.exit_code.is_none()
    }
}

/// What tells that a file has changed: one of them differs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileStamp {
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub size: u64,
    pub inode: u64,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSlice {
    pub content: Vec<u8>,
    /// Of the whole file.
    pub size: u64,
    /// Whether the file goes on after this part.
    pub truncated: bool,
    pub stamp: FileStamp,
}

/// The name that shells and manuals use.
pub(super) fn signal_name(signal: u32) -> String {
    const NAMES: [&str; 32] = [
        "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let name = usize::try_from(signal).ok().and_then(|index| NAMES.get(index));
    name.filter(|name| !name.is_empty()).map_or_else(|| format!("SIG{signal}"), |name| format!("SIG{name}"))
}
