//! What comes back.

use std::time::Duration;

use hearth_types::{Envelope, FaultCode, RunId, RunState, SessionId, TraceContext, Usage};
use reqwest::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::call::{Attempt, Call};
use crate::error::causes;
use crate::{ApiError, Error};

/// Bytes of an answer that are read. Outputs are bounded at 16 MiB, which JSON may escape sixfold.
pub(crate) const MAX_ANSWER_BYTES: usize = 128 * 1024 * 1024;

/// A decoded answer, and the object as the server wrote it: it may hold fields that this client does
/// not know.
#[derive(Debug, Clone)]
pub struct Answer<T> {
    pub body: T,
    pub raw: Value,
    /// It is the first answer of its key again.
    pub replayed: bool,
    pub status: u16,
    pub trace_id: Option<String>,
}

/// Answer to a run and to a session message.
#[derive(Debug, Clone, Deserialize)]
pub struct RunReply {
    #[serde(flatten)]
    pub envelope: Envelope,
    pub session_id: SessionId,
    pub root_run_id: RunId,
    #[serde(default)]
    pub usage: Usage,
}

#[derive(Debug, Clone, Deserialize)]
pub struct CancelReply {
    #[serde(flatten)]
    pub envelope: Envelope,
    pub stopped: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct CloseReply {
    pub run_id: RunId,
    pub state: RunState,
    pub closed_descendants: u64,
}

/// An answer before it is decoded.
pub(crate) struct Reply {
    pub status: u16,
    pub replayed: bool,
    pub trace_id: Option<String>,
    pub retry_after: Option<Duration>,
    pub body: Vec<u8>,
}

impl Reply {
    pub(crate) fn head(response: &Response) -> Self {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        Self {
            status: response.status().as_u16(),
            replayed: header("idempotent-replay") == Some("true"),
            trace_id: header("traceresponse").and_then(TraceContext::parse).map(|trace| trace.trace_id().to_owned()),
            retry_after: header("retry-after").and_then(|text| text.parse().ok()).map(Duration::from_secs),
            body: Vec::new(),
        }
    }

    pub(crate) fn decode<T: DeserializeOwned>(self, call: &str) -> Result<Answer<T>, Error> {
        let outside = |error: serde_json::Error| Error::protocol(call, error.to_string());
        let raw: Value = serde_json::from_slice(&self.body).map_err(outside)?;
        let body = T::deserialize(&raw).map_err(outside)?;
        Ok(Answer { body, raw, replayed: self.replayed, status: self.status, trace_id: self.trace_id })
    }

    /// A refusal. What stands between client and server (a proxy) may answer without the contract's
    /// body; for the statuses of an outage that is as good.
    pub(crate) fn into_error(self, call: &Call) -> Result<ApiError, Error> {
        let body: Option<Fault> = serde_json::from_slice::<Body>(&self.body).ok().map(|body| body.error);
        let fault = match (body, self.status) {
            (Some(fault), _) => fault,
            (None, 502 | 503) => Fault::of_proxy(FaultCode::Unavailable, self.status),
            (None, 504) => Fault::of_proxy(FaultCode::DeadlineExceeded, self.status),
            (None, status) => {
                let start: String = String::from_utf8_lossy(&self.body).chars().take(200).collect();
                return Err(Error::protocol(call.name(), format!("status {status}, {start:?}")));
            }
        };
        let error = ApiError::of(fault, self.status);
        Ok(ApiError {
            // The body's is finer: the header counts whole seconds.
            retry_after: error.retry_after.or(self.retry_after),
            trace_id: self.trace_id,
            key: call.key.clone(),
            ..error
        })
    }
}

impl ApiError {
    fn of(fault: Fault, status: u16) -> Self {
        Self {
            status,
            code: fault.code,
            message: fault.message,
            retryable: fault.retryable,
            retry_after: fault.retry_after_ms.map(Duration::from_millis),
            details: fault.details,
            trace_id: None,
            key: None,
        }
    }

    /// The fault that a stream ends with, whose answer had been accepted long before.
    pub(crate) fn of_stream(data: &Value) -> Option<Self> {
        Body::deserialize(data).ok().map(|body| Self::of(body.error, 200))
    }
}

#[derive(Deserialize)]
struct Body {
    error: Fault,
}

#[derive(Deserialize)]
struct Fault {
    code: String,
    message: String,
    #[serde(default)]
    retryable: bool,
    retry_after_ms: Option<u64>,
    details: Option<Value>,
}

impl Fault {
    fn of_proxy(code: FaultCode, status: u16) -> Self {
        Self {
            code: code.as_str().to_owned(),
            message: format!("what stands before the server answered {status}; it may be restarting: try again"),
            retryable: true,
            retry_after_ms: None,
            details: None,
        }
    }
}

/// Why the body of an answer could not be read.
pub(crate) enum Unread {
    Broken(String),
    Outside(Error),
}

impl Unread {
    pub(crate) fn into_attempt(self, broken: impl FnOnce(String) -> Attempt) -> Attempt {
        match self {
            Self::Broken(cause) => broken(cause),
            Self::Outside(error) => Attempt::Final(error),
        }
    }
}

pub(crate) async fn read_body(mut response: Response, call: &str) -> Result<Vec<u8>, Unread> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| Unread::Broken(causes(&error)))? {
        if body.len() + chunk.len() > MAX_ANSWER_BYTES {
            let detail = format!("the answer is longer than {MAX_ANSWER_BYTES} bytes");
            return Err(Unread::Outside(Error::protocol(call, detail)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
