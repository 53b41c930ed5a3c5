//! The registry port: who is where, who is alive, how many.
//!
//! It makes things fast and nothing true: whatever it says is checked by the next journal append,
//! and all of it can be lost and rebuilt.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod faulty;
mod memory;
mod port;
#[cfg(feature = "cluster")]
mod redis;

pub use faulty::{Fate, FaultyRegistry, Odds};
pub use memory::MemoryRegistry;
pub use port::{
    Count, Error, Location, NodeRow, NodeUsage, Registry, ReplicaRow, SandboxPlace, Seat, SharedRegistry, WorkspaceHome,
};
#[cfg(feature = "cluster")]
pub use redis::{RedisOptions, RedisRegistry};
