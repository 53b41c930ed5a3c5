//! The bus port: talk to that process now.
//!
//! It keeps nothing: a message to nobody is gone, and callers repeat with their key. What must not
//! be lost goes through the journal.

mod port;
mod subject;

pub use port::{Bus, Error, Incoming, Requests, SharedBus, Subscription};
pub use subject::Subject;
