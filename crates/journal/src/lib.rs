//! The journal port: append-only logs with fenced appends, and the index of run heads that the
//! appends maintain.
//!
//! It does not know what a frame means: encoding and folding belong to `run-core`.

mod error;
mod head;
mod port;

pub use error::Error;
pub use head::{HeadPage, HeadQuery, RunHead};
pub use port::{Append, Journal, LogKey, Position, SharedJournal, StoredFrame};
