//! Why a command was not taken. A refused command leaves no trace.

use hearth_types::{RunState, limits};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("the run is {}: it takes nothing more; open another one", state.as_str())]
    Ended { state: RunState },
    #[error("the run is closing: it takes nothing more; open another one")]
    Closing,
    #[error("the idempotency key was used for another body; use a new key for a new command")]
    KeyConflict,
    #[error("{} prompts wait already; send again when a turn has ended", limits::MAX_QUEUED_TURNS)]
    QueueFull,
    #[error(
        "{} bytes were said in this run, the most that one keeps; close it and go on in its session with another",
        limits::MAX_SAID_BYTES
    )]
    TooMuchSaid,
    #[error("the run holds {limit} residents, which is its cap; close one first")]
    ResidentLimit { limit: u32 },
    #[error("the tree may have {} levels below its root; do the work here", limits::MAX_DEPTH)]
    TooDeep,
    #[error("the turn may have {limit} children at once; wait for some to end")]
    TooManySpawns { limit: usize },
    #[error("the tree has {limit} kinds of sandbox sessions already; use one of those")]
    TooManySandboxes { limit: usize },
    /// The report of a turn that is no longer the current one.
    #[error("the turn is over")]
    StaleTurn,
}
