//! The client of a session's init.
//!
//! [`InitClient`] is a cheap handle: every call is one short-lived connection to the session's socket,
//! so that any number of processes may use a session, one after the other or at once.
//!
//! | call | what |
//! |---|---|
//! | `InitClient::connect(&Path) -> Result<InitClient, Error>` | checks that somebody answers |
//! | `exec(&ExecSpec) -> Result<ExecReport, Error>` | starts, or re-attaches; returns at once |
//! | `run(&ExecSpec, wait: Duration) -> Result<ExecReport, Error>` | the same, then waits, in one exchange |
//! | `wait(&ExecId, Duration) -> Result<ExecReport, Error>` | until it ended, or as it is when the time is over |
//! | `poll(&ExecId) -> Result<ExecReport, Error>` | as it is |
//! | `kill(&ExecId) -> Result<ExecReport, Error>` | ends its whole tree, what it left behind included |
//! | `write(path: &str, content: &[u8], mode: Option<u32>) -> Result<FileStamp, Error>` | |
//! | `read(path: &str, offset: u64, max_bytes: u64) -> Result<FileSlice, Error>` | |
//! | `ping() -> Result<(), Error>` | also keeps the session from ending for want of a node |
//! | `forget(&ExecId) -> Result<(), Error>` | drops the kept result |
//! | `shutdown() -> Result<(), Error>` | ends the session |

mod binary;
mod client;
mod exec;

pub use binary::install;
pub use client::InitClient;
pub use exec::{ExecReport, ExecSpec, FileSlice, FileStamp};
use hearth_sandbox_init::wire;

/// Bytes of a command.
pub const MAX_COMMAND_BYTES: usize = wire::MAX_COMMAND;
/// Bytes of output that an init keeps of one exec.
pub const MAX_OUTPUT_BYTES: u64 = wire::MAX_BODY as u64;
/// Bytes of a file that go in one write or read.
pub const MAX_FILE_BYTES: u64 = wire::MAX_BODY as u64;
