//! How a command ends: its exit code, and what is said on stderr.

use std::io;
use std::process::ExitCode;

use hearth_client::{ApiError, Error, UnreachableError};
use hearth_types::{Envelope, FaultCode, TurnOutcome};
use serde_json::json;

use crate::screen::Screen;

/// The command did its work; whether what it reports about went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Exit code 0.
    Done,
    /// Exit code 1: a turn that ended, and not `finished`.
    Failed,
}

impl Verdict {
    /// A turn that still runs when the caller's own time-out has passed has not failed: `state` tells.
    pub fn of(envelope: &Envelope) -> Self {
        match envelope.outcome {
            Some(TurnOutcome::Finished) => Self::Done,
            None if !envelope.state.is_final() => Self::Done,
            Some(_) | None => Self::Failed,
        }
    }

    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Done => 0,
            Self::Failed => 1,
        })
    }
}

/// Why a command could not do its work.
#[derive(Debug)]
pub enum Failure {
    Client(Error),
    /// Arguments that clap could not judge.
    Usage(String),
    /// Anything else that went wrong here.
    Failed(String),
    /// Ctrl-C; what to do next.
    Interrupted(Vec<String>),
    /// Whoever read our output has gone (`| head`): no reason to complain.
    ReaderGone,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::failed(format!("the output cannot be written: {error}")),
        }
    }
}

impl Failure {
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Self::ReaderGone => 0,
            Self::Usage(_) => 2,
            Self::Client(Error::Api(error)) if error.is(FaultCode::InvalidArgument) => 2,
            Self::Client(Error::Unreachable(_)) => 3,
            Self::Client(_) | Self::Failed(_) => 1,
            // 128 + SIGINT, as shells count.
            Self::Interrupted(_) => 130,
        }
    }

    /// Says it on stderr, as `{"error": …}` where the output is for machines.
    pub fn report(&self, screen: &Screen) -> ExitCode {
        if !matches!(self, Self::ReaderGone) {
            if screen.json() {
                screen.complain(&self.to_body().to_string());
            } else {
                self.explain(screen);
            }
        }
        ExitCode::from(self.exit_code())
    }

    fn explain(&self, screen: &Screen) {
        if matches!(self, Self::Interrupted(_)) {
            screen.complain("interrupted");
        } else {
            screen.complain(&format!("{} {}", screen.red("error:"), self.message()));
        }
        for hint in self.hints() {
            screen.complain(&format!("  {hint}"));
        }
    }

    pub fn message(&self) -> String {
        match self {
            Self::Client(error) => error.to_string(),
            Self::Usage(message) | Self::Failed(message) => message.clone(),
            Self::Interrupted(_) => "interrupted".to_owned(),
            Self::ReaderGone => "nobody reads the output".to_owned(),
        }
    }

    fn to_body(&self) -> serde_json::Value {
        let code = match self {
            Self::Client(Error::Api(error)) => return error.to_body(),
            Self::Client(Error::Unreachable(_)) => "unreachable",
            Self::Client(Error::Protocol(_)) => "protocol",
            Self::Usage(_) => "usage",
            Self::Failed(_) => "failed",
            Self::Interrupted(_) => "interrupted",
            Self::ReaderGone => "reader_gone",
        };
        json!({ "error": { "code": code, "message": self.message(), "retryable": code == "unreachable", "hints": self.hints() } })
    }

    /// What to do about it.
    fn hints(&self) -> Vec<String> {
        match self {
            Self::Client(Error::Api(error)) => api_hints(error),
            Self::Client(Error::Unreachable(error)) => away_hints(error),
            Self::Client(Error::Protocol(_)) => {
                vec!["check HEARTH_URL: is it a Hearth replica, and of this version?".to_owned()]
            }
            Self::Interrupted(hints) => hints.clone(),
            Self::Usage(_) => vec!["`hearth help COMMAND` shows the arguments, with examples".to_owned()],
            Self::Failed(_) | Self::ReaderGone => Vec::new(),
        }
    }
}

fn away_hints(error: &UnreachableError) -> Vec<String> {
    let mut hints = vec![
        "is a replica up there? `hearth dev` starts one; HEARTH_URL or --url says where to look".to_owned(),
        "--patience 5m waits longer for a server that is away".to_owned(),
    ];
    if let Some(key) = &error.key {
        hints.push(format!("the command may have had its effect; with --key {key} it cannot have it twice"));
    }
    hints
}

fn api_hints(error: &ApiError) -> Vec<String> {
    let is = |code: FaultCode| error.is(code);
    let mut hints = Vec::new();
    if is(FaultCode::Unauthenticated) {
        hints.push("set HEARTH_TOKEN; `hearth dev` prints its token at the start".to_owned());
    } else if is(FaultCode::PermissionDenied) {
        hints.push("the token's role is too low for this: use an operator's or admin's".to_owned());
    } else if is(FaultCode::NotFound) {
        hints.push("`hearth ls` shows the runs, `hearth agents ls` the agents that this token sees".to_owned());
    } else if is(FaultCode::Conflict) {
        hints.push("that --key was used for another body: leave it out, or repeat the body as it was".to_owned());
    } else if is(FaultCode::RunEnded) {
        hints.push("a final run takes no more: `hearth open` or `hearth message` goes on".to_owned());
    } else if is(FaultCode::ResidentLimit) {
        hints.push("close residents that are not needed: `hearth ls --residents`, `hearth close ID`".to_owned());
    } else if is(FaultCode::Internal) {
        hints.push("a bug of the server: its log has the details under the trace id".to_owned());
    }
    if error.retryable {
        hints.push(match error.retry_after {
            Some(after) => format!("try again in {:.1} s", after.as_secs_f64()),
            None => "try again".to_owned(),
        });
    }
    if let Some(key) = error.key.as_ref().filter(|_| is(FaultCode::DeadlineExceeded)) {
        hints.push(format!("its outcome is unknown: with --key {key} the same command has no second effect"));
    }
    if let Some(trace) = &error.trace_id {
        hints.push(format!("trace {trace}"));
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(state: &str, outcome: Option<&str>) -> Envelope {
        let body = json!({ "run_id": "r", "state": state, "turn_id": "t", "outcome": outcome, "output": "", "truncated": false });
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn only_a_finished_or_a_running_turn_is_no_failure() {
        let verdict = |state, outcome| Verdict::of(&envelope(state, outcome));
        assert_eq!(verdict("awaiting_input", Some("finished")), Verdict::Done);
        assert_eq!(verdict("completed", Some("finished")), Verdict::Done);
        assert_eq!(verdict("running", None), Verdict::Done);
        for outcome in ["failed", "cancelled", "blocked", "rejected"] {
            assert_eq!(verdict("awaiting_input", Some(outcome)), Verdict::Failed, "{outcome}");
        }
        assert_eq!(verdict("closed", None), Verdict::Failed);
    }

    #[test]
    fn exit_codes_tell_the_callers_fault_from_the_servers_absence() {
        let api = |code: &str| {
            Failure::Client(Error::Api(Box::new(ApiError {
                status: 400,
                code: code.to_owned(),
                message: String::new(),
                retryable: false,
                retry_after: None,
                details: None,
                trace_id: None,
                key: None,
            })))
        };
        assert_eq!(api("invalid_argument").exit_code(), 2);
        assert_eq!(api("not_found").exit_code(), 1);
        let away = UnreachableError { url: String::new(), cause: String::new(), attempts: 1, key: None };
        assert_eq!(Failure::Client(Error::Unreachable(Box::new(away))).exit_code(), 3);
        assert_eq!(Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).exit_code(), 0);
    }
}
