//! Why a command did not get its answer, and the one place that maps it to what users see.

use std::time::Duration;

use hearth_run_core::{FrameError, Refusal};
use hearth_types::{Fault, FaultCode};
use serde_json::json;

/// When a tenant that is at its quota may come back.
const QUOTA_RETRY: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the run is not known")]
    NotFound,
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Journal(#[from] hearth_journal::Error),
    #[error("the journal of {run} cannot be folded: {source}")]
    Fold { run: String, source: FrameError },
    /// The id is taken by a run that was created otherwise.
    #[error("the id is taken by another run")]
    Taken,
    #[error("{limit} commands wait for this run already")]
    Busy { limit: usize },
    #[error("this replica is draining")]
    Draining,
    #[error("{taken} of the tenant's {limit} runs are there")]
    Quota { limit: u64, taken: u64, approximate: bool },
    #[error(transparent)]
    Registry(#[from] hearth_registry::Error),
    /// The activation ended before it answered; what became of the command is in the journal.
    #[error("the activation ended before it answered")]
    Gone,
}

impl Error {
    /// Whether the command was certainly not carried out because its activation is, or was, another one.
    pub(crate) fn moved(&self) -> bool {
        matches!(self, Self::Gone | Self::Journal(hearth_journal::Error::Fenced { .. }))
    }
}

impl Error {
    /// Whether a newer version of the program wrote the run, so that this one must leave it to a member of that version.
    pub(crate) fn newer(&self) -> bool {
        matches!(self, Self::Fold { source: FrameError::Newer { .. }, .. })
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound => Self::not_found(),
            Error::Refused(refusal) => refusal_fault(&refusal),
            Error::Journal(error) => journal_fault(&error),
            Error::Fold { source: FrameError::Newer { .. }, .. } => {
                tracing::error!(%error, "a run was written by a newer version of the program");
                Self::unavailable("a newer version of the program wrote this run; ask a replica that was upgraded")
            }
            Error::Fold { .. } => {
                tracing::error!(%error, "a journal is damaged; `hearth doctor` names the place");
                Self::internal("the journal of this run is damaged; the operator finds the place with `hearth doctor`")
            }
            Error::Taken => Self::new(
                FaultCode::Conflict,
                "the idempotency key was used for another body; use a new key for a new command",
            ),
            Error::Busy { limit } => Self::new(
                FaultCode::QueueFull,
                format!("{limit} commands wait for this run already; try again shortly"),
            ),
            Error::Draining => {
                Self::new(FaultCode::Draining, "this replica is being stopped; repeat with the same idempotency key")
            }
            Error::Quota { limit, taken, approximate } => {
                let about = if approximate { ", counted approximately" } else { "" };
                let message = format!(
                    "the tenant has {taken} runs that have not ended{about}; allowed: {limit}. Close some, then repeat"
                );
                Self::new(FaultCode::QuotaExceeded, message)
                    .retry_after(QUOTA_RETRY)
                    .with_details(json!({ "limit": limit, "taken": taken, "approximate": approximate }))
            }
            Error::Registry(_) => {
                Self::unavailable("the registry is out of reach; repeat with the same idempotency key")
            }
            Error::Gone => Self::unavailable("the run moved while it was asked; repeat with the same idempotency key"),
        }
    }
}

fn refusal_fault(refusal: &Refusal) -> Fault {
    let code = match refusal {
        Refusal::Ended { .. } | Refusal::Closing => FaultCode::RunEnded,
        Refusal::KeyConflict => FaultCode::Conflict,
        Refusal::QueueFull => FaultCode::QueueFull,
        Refusal::TooMuchSaid => FaultCode::PayloadTooLarge,
        Refusal::ResidentLimit { .. } => FaultCode::ResidentLimit,
        Refusal::TooDeep => FaultCode::ToolRefused,
        Refusal::TooManySpawns { .. } | Refusal::TooManySandboxes { .. } => FaultCode::QuotaExceeded,
        Refusal::StaleTurn => FaultCode::RunEnded,
    };
    Fault::new(code, refusal.to_string())
}

fn journal_fault(error: &hearth_journal::Error) -> Fault {
    use hearth_journal::Error as Journal;
    match error {
        Journal::TooLarge { limit, .. } => Fault::new(
            FaultCode::PayloadTooLarge,
            format!("the journal takes frames of at most {limit} bytes; send less"),
        ),
        Journal::Corrupt { .. } => {
            tracing::error!(%error, "the journal is damaged; `hearth doctor` names the place");
            Fault::internal("the journal is damaged; the operator finds the place with `hearth doctor`")
        }
        Journal::Full { .. } => Fault::unavailable(
            "the journal has no room, so nothing can be accepted; reads go on. Free space, then repeat",
        ),
        _ => Fault::unavailable("the journal is out of reach; repeat with the same idempotency key"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_a_newer_version_asks_for_an_upgrade_and_is_not_called_damaged() {
        let error = Error::Fold { run: "run_a".into(), source: FrameError::Newer { found: 99 } };
        let fault = Fault::from(error);
        assert_eq!(fault.code, FaultCode::Unavailable);
        assert!(fault.message.contains("newer version") && fault.message.contains("upgraded"), "{}", fault.message);
        let gap = FrameError::Gap { expected: hearth_types::Seq(2), found: hearth_types::Seq(3) };
        assert_eq!(Fault::from(Error::Fold { run: "run_a".into(), source: gap }).code, FaultCode::Internal);
    }
}
