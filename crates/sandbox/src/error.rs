//! The crate's error: a kind that says who may retry what, and the cause below it.

use std::error::Error as StdError;

use hearth_types::{Fault, FaultCode};

type Source = Box<dyn StdError + Send + Sync + 'static>;

/// What went wrong, as far as a caller can act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// An argument that is malformed or out of range.
    Invalid,
    /// A policy or the fence around `/work` forbids it.
    Refused,
    /// A file that is not there, or an exec that nobody started.
    NotFound,
    /// The exec is known, but its result is no longer kept; running it again is not what was asked.
    Evicted,
    /// The exec id belongs to another command.
    Conflict,
    /// Longer than a frame, a command line or a file may be.
    TooLarge,
    /// A bound of the session is reached: commands at once, connections, bytes under way.
    Busy,
    /// No room left in `/work`.
    NoSpace,
    /// The level or the runtime cannot be had here.
    IsolationUnavailable,
    /// The session's processes are gone for good.
    SessionLost,
    /// The engine, or the init of a live session, could not be reached.
    Unavailable,
    /// No answer in time; the outcome is unknown.
    Deadline,
    /// A bug here, or a host that does what it never should.
    Internal,
}

impl ErrorKind {
    /// The code that callers see.
    pub const fn code(self) -> FaultCode {
        match self {
            Self::Invalid => FaultCode::InvalidArgument,
            Self::Refused => FaultCode::ToolRefused,
            Self::NotFound | Self::Evicted => FaultCode::NotFound,
            Self::Conflict => FaultCode::Conflict,
            Self::TooLarge => FaultCode::PayloadTooLarge,
            Self::Busy => FaultCode::QueueFull,
            Self::NoSpace => FaultCode::QuotaExceeded,
            Self::IsolationUnavailable => FaultCode::IsolationUnavailable,
            Self::SessionLost => FaultCode::SessionLost,
            Self::Unavailable => FaultCode::Unavailable,
            Self::Deadline => FaultCode::DeadlineExceeded,
            Self::Internal => FaultCode::Internal,
        }
    }

    pub const fn retryable(self) -> bool {
        self.code().retryable()
    }
}

/// An error of this crate. `message` is for the caller, `source` for the log.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    #[source]
    source: Option<Source>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same with the cause below it, which is logged but never shown to callers.
    pub fn caused(kind: ErrorKind, message: impl Into<String>, source: impl Into<Source>) -> Self {
        Self { kind, message: message.into(), source: Some(source.into()) }
    }

    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    pub const fn retryable(&self) -> bool {
        self.kind.retryable()
    }
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Self {
        Fault::new(error.kind.code(), error.message.clone())
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::from(&error)
    }
}
