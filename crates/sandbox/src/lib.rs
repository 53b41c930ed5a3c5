//! Sandbox sessions: a container (or a confined process group) and its `/work`.
//!
//! It decides nothing about runs: who a session is for comes from the caller, and whether a run tree
//! is still alive from [`RunLiveness`].

mod port;

pub use port::{
    Caller, CloseRunArgs, CloseRunResult, ExecArgs, ExecResult, KillArgs, Liveness, OpenArgs, OpenResult, PollArgs,
    ReadArgs, ReadResult, RunLiveness, Sandboxes, SessionArgs, SessionRow, SharedSandboxes, WriteArgs, WriteResult,
};
