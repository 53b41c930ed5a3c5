//! Answers and refusals as HTTP.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hearth_api::{Answer, Listing};
use hearth_types::{Fault, FaultCode, TraceContext};
use serde::Serialize;
use serde_json::{Value, json};

use crate::metrics::FAULTS;

pub const TRACE_RESPONSE: HeaderName = HeaderName::from_static("traceresponse");
pub const TRACE_ID: HeaderName = HeaderName::from_static("x-trace-id");
pub const IDEMPOTENT_REPLAY: HeaderName = HeaderName::from_static("idempotent-replay");

/// What a handler gives.
pub type Reply = Result<Response, Refusal>;

/// A fault on its way to the client. Its body is written last, where the trace is known.
#[derive(Debug)]
pub struct Refusal(pub Box<Fault>);

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self(Box::new(fault))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = status_of(self.0.code).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

// An extension has to be cloned with its response.
impl Clone for Refusal {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The contract's table of codes.
pub const fn status_of(code: FaultCode) -> StatusCode {
    match code {
        FaultCode::InvalidArgument => StatusCode::BAD_REQUEST,
        FaultCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        FaultCode::PermissionDenied => StatusCode::FORBIDDEN,
        FaultCode::NotFound => StatusCode::NOT_FOUND,
        FaultCode::Conflict | FaultCode::RunEnded | FaultCode::IsolationUnavailable => StatusCode::CONFLICT,
        FaultCode::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        FaultCode::ToolRefused => StatusCode::UNPROCESSABLE_ENTITY,
        FaultCode::ResidentLimit | FaultCode::QueueFull | FaultCode::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
        FaultCode::CircuitOpen | FaultCode::Draining | FaultCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        FaultCode::SessionLost => StatusCode::GONE,
        FaultCode::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        FaultCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Writes a refusal's body and headers, where there is one; and the trace on every answer. What an
/// internal fault says stays in the log: it may name what only operators should see.
pub fn finish(mut response: Response, trace: &TraceContext) -> Response {
    if let Some(Refusal(fault)) = response.extensions_mut().remove::<Refusal>() {
        let shown = if fault.code == FaultCode::Internal { shown_instead(trace) } else { *fault };
        FAULTS.with_label_values(&[shown.code.as_str()]).inc();
        let seconds = shown.retry_after_ms.map(|ms| ms.div_ceil(1_000).max(1));
        let body = shown.to_body().to_string();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.remove(header::CONTENT_LENGTH);
        if let Some(seconds) = seconds {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if shown.code == FaultCode::Unauthenticated {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        *response.body_mut() = Body::from(body);
    }
    let headers = response.headers_mut();
    if let (Ok(context), Ok(id)) = (HeaderValue::from_str(trace.as_str()), HeaderValue::from_str(trace.trace_id())) {
        headers.insert(TRACE_RESPONSE, context);
        headers.insert(TRACE_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn shown_instead(trace: &TraceContext) -> Fault {
    Fault::internal("something went wrong inside Hearth; report it with the trace id")
        .with_details(json!({ "trace_id": trace.trace_id() }))
}

/// A JSON answer.
pub fn json<T: Serialize>(status: StatusCode, body: &T) -> Reply {
    let text =
        serde_json::to_string(body).map_err(|error| Fault::internal(format!("an answer has no JSON: {error}")))?;
    Ok((status, [(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The answer to a command.
pub fn answer<T: Serialize>(status: StatusCode, answer: &Answer<T>) -> Reply {
    json(status, &answer.body).map(|response| mark_replay(response, answer.replayed))
}

/// Says so when an answer is the first one of its key again.
pub fn mark_replay(mut response: Response, replayed: bool) -> Response {
    if replayed {
        response.headers_mut().insert(IDEMPOTENT_REPLAY, HeaderValue::from_static("true"));
    }
    response
}

/// A page of a list, under the name that the contract gives the list.
pub fn listing<T: Serialize>(name: &str, page: &Listing<T>) -> Reply {
    let mut body = json!({ name: page.items, "next_cursor": page.next_cursor, "as_of": page.as_of });
    if page.partial {
        body["partial"] = Value::Bool(true);
    }
    json(StatusCode::OK, &body)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    async fn shown(fault: Fault) -> (Response, Value) {
        let trace = TraceContext::parse(TRACE).unwrap();
        let mut response = finish(Refusal::from(fault).into_response(), &trace);
        let body = std::mem::take(response.body_mut()).collect().await.unwrap().to_bytes();
        (response, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn a_refusal_has_the_status_of_its_code_and_the_trace_in_the_headers_alone() {
        let (response, body) = shown(Fault::not_found()).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert_eq!(response.headers()[TRACE_RESPONSE], TRACE);
        assert_eq!(response.headers()[TRACE_ID], &TRACE[3..35]);
        assert!(!body.to_string().contains(&TRACE[3..35]));
        assert!(!response.headers().contains_key(header::RETRY_AFTER));
    }

    #[tokio::test]
    async fn a_retryable_refusal_says_when_in_whole_seconds_rounded_up() {
        let fault = Fault::unavailable("later").retry_after(std::time::Duration::from_millis(1_001));
        let (response, body) = shown(fault).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        assert_eq!(body["error"]["retry_after_ms"], 1_001);
        assert_eq!(body["error"]["retryable"], true);
    }

    #[tokio::test]
    async fn an_internal_fault_shows_the_trace_and_nothing_of_the_inside() {
        let (response, body) = shown(Fault::internal("sqlite: /var/secret.db is locked")).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(body["error"]["details"]["trace_id"], &TRACE[3..35]);
        assert!(!body.to_string().contains("sqlite"), "{body}");
    }

    #[tokio::test]
    async fn a_list_says_partial_only_when_it_is() {
        for partial in [false, true] {
            let page =
                Listing { items: vec![1], next_cursor: None, as_of: hearth_types::Timestamp::from_millis(0), partial };
            let body = listing("runs", &page).unwrap().into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(body["runs"], json!([1]));
            assert!(body["next_cursor"].is_null() && body["as_of"] == "1970-01-01T00:00:00.000Z");
            assert_eq!(body.get("partial").is_some(), partial);
        }
    }
}
