//! The contract that every bus adapter keeps.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::Subject;

pub type SharedBus = Arc<dyn Bus>;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Nobody serves the subject. Alone it does not prove that the process is dead.
    #[error("nobody answers on {subject}")]
    NoResponders { subject: String },
    /// No answer in time; whether the request had an effect is unknown.
    #[error("no answer on {subject} within the deadline")]
    Timeout { subject: String },
    #[error("the bus is out of reach: {reason}")]
    Unavailable { reason: String },
    #[error("a message of {bytes} bytes is over the bus's limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
}

/// Messages of one subject, in the order each publisher sent them. When the subscriber is slower
/// than its bounded buffer, messages are dropped, counted in `dropped`, and the rest goes on.
pub struct Subscription {
    pub messages: mpsc::Receiver<Bytes>,
    pub dropped: Arc<std::sync::atomic::AtomicU64>,
}

/// A request that waits for an answer. Dropping `answer` tells the requester that nobody answers.
pub struct Incoming {
    pub payload: Bytes,
    pub answer: oneshot::Sender<Bytes>,
}

/// Requests to one subject. The buffer is bounded; past it requesters get [`Error::Timeout`].
pub struct Requests {
    pub incoming: mpsc::Receiver<Incoming>,
}

/// - **Order.** Messages of one publisher on one subject arrive in order, or not at all.
/// - **Durability.** None; at most once.
/// - **Cancelling** a publish or request leaves it sent or not sent. Dropping a [`Subscription`] or
///   [`Requests`] ends it.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Sends to whoever subscribes now; nobody is no error. Never waits for a slow subscriber.
    async fn publish(&self, subject: &Subject, payload: Bytes) -> Result<(), Error>;

    /// Whether somebody may receive what is published now; `true` where that is not known. What nobody
    /// can receive need not be made.
    fn may_be_heard(&self, _subject: &Subject) -> bool {
        true
    }

    /// Once this returned, everything published afterwards is received or counted as dropped.
    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, Error>;

    async fn request(&self, subject: &Subject, payload: Bytes, deadline: Duration) -> Result<Bytes, Error>;

    /// Becomes the one that answers on the subject.
    async fn serve(&self, subject: &Subject) -> Result<Requests, Error>;
}
