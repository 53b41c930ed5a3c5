//! The journal port: append-only logs with fenced appends, and the index of run heads that the
//! appends maintain.
//!
//! It does not know what a frame means: encoding and folding belong to `run-core`.

mod admission;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
#[cfg(debug_assertions)]
mod crash;
mod error;
mod faulty;
mod head;
mod index;
#[cfg(feature = "cluster")]
mod jetstream;
mod memory;
mod metrics;
#[cfg(debug_assertions)]
mod next_version;
mod port;
mod report;
mod sqlite;
#[cfg(test)]
mod tests;

#[cfg(debug_assertions)]
pub use crash::{CrashPoint, CrashingJournal};
pub use error::Error;
pub use faulty::{Fate, FaultyJournal, Odds, Operation};
pub use head::{HeadPage, HeadQuery, RawJson, RunHead};
#[cfg(feature = "cluster")]
pub use jetstream::{
    JetStreamJournal, JetStreamOptions, Progress, Relocate, Repartitioned, cancel_repartition, repartition,
};
pub use memory::MemoryJournal;
#[cfg(debug_assertions)]
pub use next_version::{NextVersion, NextVersionJournal};
pub use port::{Append, Journal, LogKey, Position, SharedJournal, StoredFrame};
pub use report::{Finding, Report};
pub use sqlite::{SqliteJournal, SqliteOptions};
