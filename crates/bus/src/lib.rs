//! The bus port: talk to that process now.
//!
//! It keeps nothing: a message to nobody is gone, and callers repeat with their key. What must not
//! be lost goes through the journal.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod faulty;
mod local;
mod metrics;
#[cfg(feature = "cluster")]
mod nats;
mod port;
mod subject;

pub use faulty::{Fate, FaultyBus, Odds, Operation};
pub use local::{LocalBus, LocalOptions};
#[cfg(feature = "cluster")]
pub use nats::{NatsBus, NatsOptions};
pub use port::{Bus, Error, Incoming, Requests, SharedBus, Subscription};
pub use subject::Subject;
