//! The typed error that every surface shows.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The code of a fault, as in the contract's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCode {
    InvalidArgument,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    Conflict,
    RunEnded,
    IsolationUnavailable,
    PayloadTooLarge,
    ToolRefused,
    ResidentLimit,
    QueueFull,
    QuotaExceeded,
    CircuitOpen,
    Draining,
    Unavailable,
    SessionLost,
    DeadlineExceeded,
    Internal,
}

impl FaultCode {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::RunEnded => "run_ended",
            Self::IsolationUnavailable => "isolation_unavailable",
            Self::PayloadTooLarge => "payload_too_large",
            Self::ToolRefused => "tool_refused",
            Self::ResidentLimit => "resident_limit",
            Self::QueueFull => "queue_full",
            Self::QuotaExceeded => "quota_exceeded",
            Self::CircuitOpen => "circuit_open",
            Self::Draining => "draining",
            Self::Unavailable => "unavailable",
            Self::SessionLost => "session_lost",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Internal => "internal",
        }
    }

    const ALL: [Self; 18] = [
        Self::InvalidArgument,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::NotFound,
        Self::Conflict,
        Self::RunEnded,
        Self::IsolationUnavailable,
        Self::PayloadTooLarge,
        Self::ToolRefused,
        Self::ResidentLimit,
        Self::QueueFull,
        Self::QuotaExceeded,
        Self::CircuitOpen,
        Self::Draining,
        Self::Unavailable,
        Self::SessionLost,
        Self::DeadlineExceeded,
        Self::Internal,
    ];

    /// The code of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == name)
    }

    /// Whether the same call may succeed later without a change.
    pub const fn retryable(self) -> bool {
        matches!(
            self,
            Self::QueueFull
                | Self::QuotaExceeded
                | Self::CircuitOpen
                | Self::Draining
                | Self::Unavailable
                | Self::DeadlineExceeded
        )
    }
}

/// A refusal or failure as a caller sees it. `message` says what to do about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct Fault {
    pub code: FaultCode,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub details: Option<Value>,
}

impl Fault {
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        let retry_after_ms = match code {
            FaultCode::QueueFull | FaultCode::QuotaExceeded => Some(1_000),
            FaultCode::CircuitOpen | FaultCode::Draining | FaultCode::Unavailable => Some(1_000),
            _ => None,
        };
        Self { code, message: message.into(), retry_after_ms, details: None }
    }

    /// A field of a request that is not allowed: its name, what it held, what is allowed.
    pub fn invalid(field: &str, value: impl std::fmt::Display, allowed: &str) -> Self {
        let shown: String = value.to_string().chars().take(120).collect();
        let mut fault = Self::new(FaultCode::InvalidArgument, format!("`{field}` is {shown:?}; allowed: {allowed}"));
        fault.details = Some(serde_json::json!({ "field": field, "value": shown, "allowed": allowed }));
        fault
    }

    /// A field that a request must have and has not.
    pub fn missing(field: &str, allowed: &str) -> Self {
        Self::new(FaultCode::InvalidArgument, format!("`{field}` is missing; allowed: {allowed}"))
            .with_details(serde_json::json!({ "field": field, "allowed": allowed }))
    }

    /// The one answer to an unknown id and to another tenant's; it names no id.
    pub fn not_found() -> Self {
        Self::new(FaultCode::NotFound, "there is no such thing here; check the id and the token's tenant")
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(FaultCode::Unavailable, message)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(FaultCode::Internal, message)
    }

    #[must_use]
    pub fn retry_after(mut self, span: Duration) -> Self {
        self.retry_after_ms = Some(u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        self
    }

    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// The `{"error": …}` body of the HTTP surface and of tool refusals.
    pub fn to_body(&self) -> Value {
        let mut error = serde_json::json!({
            "code": self.code.as_str(),
            "message": self.message,
            "retryable": self.code.retryable(),
        });
        if let Some(ms) = self.retry_after_ms {
            error["retry_after_ms"] = ms.into();
        }
        if let Some(details) = &self.details {
            error["details"] = details.clone();
        }
        serde_json::json!({ "error": error })
    }
}
