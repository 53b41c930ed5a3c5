//! The HTTP contract as calls: typed, repeated safely when a server goes away, and resumable where
//! they stream.
//!
//! It keeps no state of runs, caches nothing and decides nothing for the caller: a call that the
//! server refuses comes back as the server's fault. It speaks plain HTTP only; TLS ends in front of
//! the replicas.

mod answer;
mod call;
mod client;
mod definitions;
mod error;
mod members;
mod options;
mod residents;
mod retry;
mod runs;
mod snapshots;
mod sse;
mod stream;
mod workspaces;

pub use answer::{Answer, CancelReply, CloseReply, RunReply};
pub use client::Client;
pub use definitions::Definitions;
pub use error::{ApiError, Error, ProtocolError, UnreachableError};
pub use options::{Options, Repeat, RepeatObserver};
pub use residents::{OpenResident, Poll, Send};
pub use retry::RetryPolicy;
pub use runs::{CreateRun, Input, ListRuns, Page, SessionMessage};
pub use stream::{Event, EventStream};
