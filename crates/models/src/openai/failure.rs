//! What a provider's failures mean for a turn.

use std::time::Duration;

use hearth_types::{Fault, FaultCode};
use hyper::StatusCode;
use hyper::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;

use crate::{Error, ErrorKind};

/// Bytes of an error's body that are read, about.
pub(super) const BODY_BYTES: usize = 64 << 10;

/// Bytes of a provider's message that are shown.
const SHOWN_BYTES: usize = 1_000;

pub(super) fn of_status(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    let kind = match status.as_u16() {
        408 | 409 | 425 | 429 | 500.. => ErrorKind::Transient,
        400 | 404 | 413 | 422 => ErrorKind::Invalid,
        _ => ErrorKind::Refused,
    };
    let said = match serde_json::from_slice::<Value>(body) {
        Ok(body) => said(&body),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let said = said.trim();
    let said = &said[..said.floor_char_boundary(SHOWN_BYTES)];
    let mut message = format!("the provider answered {status}");
    if !said.is_empty() {
        message = format!("{message}: {said}");
    }
    let wait = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
    let source = wait.filter(|_| kind == ErrorKind::Transient).map(|wait| {
        message = format!("{message} (try again in {} s)", wait.as_secs());
        Box::new(Fault::new(FaultCode::Unavailable, message.clone()).retry_after(wait)) as _
    });
    Error { kind, message, source }
}

/// An error that comes as an event of the stream.
pub(super) fn of_event(error: &Value) -> Error {
    let kind = match error["type"].as_str() {
        Some("invalid_request_error") => ErrorKind::Invalid,
        _ => ErrorKind::Transient,
    };
    let said = said(error);
    let said = &said[..said.floor_char_boundary(SHOWN_BYTES)];
    Error::new(kind, format!("the provider broke off: {said}"))
}

pub(super) fn unreachable(error: hyper_util::client::legacy::Error) -> Error {
    let what = if error.is_connect() { "cannot be reached" } else { "broke the connection" };
    transient(what, error)
}

pub(super) fn broken(error: hyper::Error) -> Error {
    transient("broke the connection", error)
}

fn transient(what: &str, error: impl std::error::Error + Send + Sync + 'static) -> Error {
    let message = format!("the provider {what}; try again");
    Error { kind: ErrorKind::Transient, message, source: Some(Box::new(error)) }
}

pub(super) fn timed_out(what: &str, span: Duration) -> Error {
    Error::new(ErrorKind::Transient, format!("the provider took {span:?} {what}, the bound; try again"))
}

pub(super) fn not_understood(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Refused, format!("the provider's answer is not that of chat completions: {why}"))
}

/// `{"error": {"message"}}`, `{"error": "…"}`, `{"message"}` and the like.
fn said(body: &Value) -> String {
    let error = body.get("error").unwrap_or(body);
    match error.as_str().or_else(|| error["message"].as_str()) {
        Some(said) => said.to_owned(),
        None => body.to_string(),
    }
}
