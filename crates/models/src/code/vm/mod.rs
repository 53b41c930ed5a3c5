//! The interpreter and its threads: one program, one virtual machine, one thread.
//!
//! Knows nothing of turns, nor of how many programs there may be.

mod exception;
mod host;
mod meter;
mod program;
mod random;
mod thread;
mod watchdog;

use std::sync::Arc;

use hearth_types::FaultCode;
pub(super) use program::{Program, check};
use serde::{Deserialize, Serialize};
pub(super) use thread::{Launch, Live, launch};
pub(super) use watchdog::Watchdog;

use crate::{Error, ErrorKind, ToolRequest};

/// What a program tells its turn.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Event {
    /// A line of console output, its end included.
    Line(String),
    /// It waits for the result of this call.
    Call(ToolRequest),
    /// The last event.
    Ended(Result<String, Failed>),
    /// It cannot be stopped at the moment.
    Stuck,
}

/// An error in a form that passes between processes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Failed {
    kind: ErrorKind,
    message: String,
    /// The code that the contract has for it, where that is known.
    code: Option<FaultCode>,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { kind: error.kind, code: error.code(), message: error.message }
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        let error = Self::new(failed.kind, failed.message);
        match failed.code {
            Some(code) => error.with_code(code),
            None => error,
        }
    }
}

/// Nobody listens to the program any more.
#[derive(Debug)]
pub(super) struct Gone;

/// Where a program's events go. Blocks while there is no room for one more.
pub(super) type Tell = Arc<dyn Fn(Event) -> Result<(), Gone> + Send + Sync>;
