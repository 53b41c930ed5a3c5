//! The use cases, without transport: every surface calls these and differs in encoding only.
//!
//! Nothing here knows HTTP, gRPC or MCP, and nothing decides what a command does to a run: that is
//! `run-core`'s, by the run's own activation.

mod agent_calls;
mod answers;
mod catalog;
mod check;
mod cursor;
mod delegate;
mod extent;
mod hearth;
mod identities;
mod lifecycle;
mod liveness;
mod members;
mod nodes;
mod overrides;
mod replay;
mod requests;
mod residents;
mod runs;
mod sessions;
mod snapshots;
mod start;
mod stream;
mod transcript;
mod workspaces;

pub use answers::{
    AgentView, Answer, CancelAnswer, CloseAnswer, InputAnswer, LastTurn, Listing, NodeView, ReplayAnswer, ReplicaView,
    ResidentView, ResumeAnswer, ResumedRun, ResumedWorkspace, RunAnswer, RunView, SkillView, SnapshotView, StreamEvent,
    Transcript, TranscriptMessage,
};
pub use catalog::{AgentOverrides, CloneAgent, SkillOverrides};
pub use delegate::AgentTool;
pub use hearth::{Deps, Hearth, Options};
pub use liveness::JournalLiveness;
pub use overrides::{OverrideView, SandboxOverride};
pub use requests::{
    Caller, Cancel, Close, CreateRun, Input, Key, ListRuns, OpenResident, Page, Poll, ReplaySession, Send,
    SessionMessage, TakeSnapshot,
};
pub use snapshots::SnapshotStream;

/// Where a stream starts.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamFrom {
    /// `from_seq`, inclusive; 0 and 1 mean the first event. `Last-Event-ID` N is `from_seq` N + 1.
    pub seq: u64,
}
