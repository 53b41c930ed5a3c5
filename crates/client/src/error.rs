//! Why a call has no answer.

use std::time::Duration;

use hearth_types::FaultCode;
use serde_json::Value;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered, and the answer is a refusal or a failure.
    #[error(transparent)]
    Api(#[from] Box<ApiError>),
    /// No server answered, or the connection broke and could not be had again in time. Whether the
    /// call had an effect is unknown: the same key finds out.
    #[error(transparent)]
    Unreachable(#[from] Box<UnreachableError>),
    /// Something answered that does not speak the contract.
    #[error(transparent)]
    Protocol(#[from] Box<ProtocolError>),
}

/// The server's `{"error": …}`. `code` is kept as text, so that a newer server's codes pass through.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    pub status: u16,
    pub code: String,
    pub message: String,
    pub retryable: bool,
    pub retry_after: Option<Duration>,
    pub details: Option<Value>,
    pub trace_id: Option<String>,
    /// The key under which the call was made; the same call with it has at most one effect.
    pub key: Option<String>,
}

impl ApiError {
    pub fn is(&self, code: FaultCode) -> bool {
        self.code == code.as_str()
    }

    /// Whether the client itself repeats such a call. Refusals of the kind "not now, there is too
    /// much of it" (429) go back to the caller, who knows whether waiting makes sense.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self.status, 502..=504)
    }

    /// The body as the server wrote it, for callers who pass it on.
    pub fn to_body(&self) -> Value {
        let mut error = serde_json::json!({ "code": self.code, "message": self.message, "retryable": self.retryable });
        if let Some(after) = self.retry_after {
            error["retry_after_ms"] = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into();
        }
        if let Some(details) = &self.details {
            error["details"] = details.clone();
        }
        serde_json::json!({ "error": error })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no answer from {url}: {cause} (tried {attempts} times)")]
pub struct UnreachableError {
    pub url: String,
    pub cause: String,
    pub attempts: u32,
    pub key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} was answered outside the contract: {detail}")]
pub struct ProtocolError {
    /// Method and path, or the setting that cannot be used.
    pub call: String,
    pub detail: String,
}

impl Error {
    pub(crate) fn protocol(call: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Protocol(Box::new(ProtocolError { call: call.into(), detail: detail.into() }))
    }

    /// The server's fault, if there was an answer.
    pub fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Api(error) => Some(error),
            Self::Unreachable(_) | Self::Protocol(_) => None,
        }
    }

    pub fn is(&self, code: FaultCode) -> bool {
        self.api().is_some_and(|error| error.is(code))
    }
}

/// The chain of causes in one line: reqwest's own text names the URL but not the reason.
pub(crate) fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
