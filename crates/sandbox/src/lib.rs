//! Sandbox sessions: a container (or a confined process group) and its `/work`.
//!
//! It decides nothing about runs: who a session is for comes from the caller, and whether a run tree
//! is still alive from [`RunLiveness`].

mod available;
pub mod docker;
mod driver;
mod env;
mod error;
pub mod init;
pub mod local;
pub mod node;
mod ownership;
mod port;
mod spec;
pub mod tools;
mod workspaces;

pub use available::{DRIVER_VARIABLES, Unavailable, available_drivers};
pub use driver::{Driver, Network, SESSION_GID, SESSION_UID, SessionSpec, SessionState, SharedDriver, Started, Work};
pub use env::{session_env, session_home, session_path};
pub use error::{Error, ErrorKind};
pub use node::{is_image_name, is_workspace_name};
pub use port::{
    Caller, CloseRunArgs, CloseRunResult, ExecArgs, ExecResult, KillArgs, Liveness, Needs, OpenArgs, OpenResult,
    PollArgs, ReadArgs, ReadResult, RunLiveness, Sandboxes, SessionArgs, SessionRow, SessionUsage, SharedSandboxes,
    WriteArgs, WriteResult,
};
pub use workspaces::{Imported, TarStream, WorkspaceRow, WorkspaceUse, Workspaces};
