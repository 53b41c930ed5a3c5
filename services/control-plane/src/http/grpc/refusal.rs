//! Refusals as canonical status codes.

use std::collections::HashMap;
use std::time::Duration;

use hearth_types::{Fault, FaultCode};
use serde_json::Value;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

const DOMAIN: &str = "hearth";

/// The contract's code among the canonical ones.
const fn canonical(code: FaultCode) -> Code {
    match code {
        FaultCode::InvalidArgument => Code::InvalidArgument,
        FaultCode::Unauthenticated => Code::Unauthenticated,
        FaultCode::PermissionDenied => Code::PermissionDenied,
        FaultCode::NotFound => Code::NotFound,
        FaultCode::Conflict
        | FaultCode::RunEnded
        | FaultCode::IsolationUnavailable
        | FaultCode::ToolRefused
        | FaultCode::SessionLost => Code::FailedPrecondition,
        FaultCode::PayloadTooLarge | FaultCode::ResidentLimit | FaultCode::QueueFull | FaultCode::QuotaExceeded => {
            Code::ResourceExhausted
        }
        FaultCode::CircuitOpen | FaultCode::Draining | FaultCode::Unavailable => Code::Unavailable,
        FaultCode::DeadlineExceeded => Code::DeadlineExceeded,
        FaultCode::Internal => Code::Internal,
    }
}

/// The same refusal in the words of gRPC.
pub fn status_of(fault: &Fault) -> Status {
    let mut more = HashMap::from([("retryable".to_owned(), fault.code.retryable().to_string())]);
    if let Some(details) = &fault.details {
        more.insert("details".to_owned(), details.to_string());
    }
    let mut details = ErrorDetails::new();
    details.set_error_info(fault.code.as_str(), DOMAIN, more);
    if let Some(ms) = fault.retry_after_ms {
        details.set_retry_info(Some(Duration::from_millis(ms)));
    }
    Status::with_error_details(canonical(fault.code), fault.message.clone(), details)
}

/// From the body of an HTTP refusal.
pub fn status_of_body(body: &Value) -> Status {
    match serde_json::from_value::<Fault>(body["error"].clone()) {
        Ok(fault) => status_of(&fault),
        Err(_) => Status::internal("a refusal could not be read"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_code_its_details_and_when_to_come_back() {
        let fault = Fault::invalid("agent", "no/such agent", "a name").retry_after(Duration::from_millis(1_500));
        for status in [status_of(&fault), status_of_body(&fault.to_body())] {
            assert_eq!((status.code(), status.message()), (Code::InvalidArgument, fault.message.as_str()));
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!((info.reason.as_str(), info.domain.as_str()), ("invalid_argument", "hearth"));
            assert_eq!(info.metadata["retryable"], "false");
            let more: Value = serde_json::from_str(&info.metadata["details"]).unwrap();
            assert_eq!(more["field"], "agent");
            assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_millis(1_500)));
        }
    }
}
