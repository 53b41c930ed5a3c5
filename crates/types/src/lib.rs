//! The nouns that several crates share: ids, times, principals, states, the envelope and the fault.
//!
//! It holds no behaviour beyond parsing and printing, and nothing that only one crate needs: a noun
//! is promoted here on its second use.

mod clock;
mod definition;
mod envelope;
mod fault;
mod id;
mod json;
pub mod limits;
mod loopback;
mod misfit;
mod principal;
mod random;
mod sandbox;
mod state;
mod time;
mod tool;
mod trace;

pub use clock::{Clock, SharedClock, SystemClock};
pub use definition::AgentDefinition;
pub use envelope::{Blocker, Envelope, TurnError};
pub use fault::{Fault, FaultCode};
pub use id::{
    CallId, Epoch, ExecId, IdError, ReplicaId, RunId, SandboxId, Seq, SessionId, SnapshotId, TurnId, check_id,
    derive_hex,
};
pub use json::{from_own_json, is_too_deep};
pub use loopback::check_loopback_names;
pub use misfit::{decode, expected};
pub use principal::{Principal, Role, Tenant};
pub use random::SeededRandom;
pub use sandbox::{Isolation, SandboxLimits, SandboxScope, SandboxSpec};
pub use state::{InputMode, RunState, TurnOutcome};
pub use time::Timestamp;
pub use tool::{ToolCall, ToolOutput, ToolPattern, Usage};
pub use trace::TraceContext;
