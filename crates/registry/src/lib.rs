//! The registry port: who is where, who is alive, how many.
//!
//! It makes things fast and nothing true: whatever it says is checked by the next journal append,
//! and all of it can be lost and rebuilt.

mod port;

pub use port::{Error, Location, Registry, ReplicaRow, SharedRegistry};
