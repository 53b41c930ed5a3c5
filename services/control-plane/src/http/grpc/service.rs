//! The calls: a message becomes a request to a route, and its answer a message.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, header};
use futures::stream::BoxStream;
use hearth_proto::v1::hearth_server::Hearth;
use hearth_proto::v1::{
    CancelAnswer, CancelRequest, CloseAnswer, CloseRequest, CreateRunRequest, Envelope, Event, GetRunRequest,
    InputAnswer, InputRequest, ListRequest, OpenRequest, PollRequest, ResidentList, Run, RunAnswer, RunList,
    SendRequest, StreamRequest,
};
use hearth_types::{Fault, check_id};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tonic::metadata::MetadataMap;
use tonic::{Response, Status};
use tower::ServiceExt as _;

use super::events::events;
use super::refusal::{status_of, status_of_body};
use crate::http::call::IDS;

/// What a call hands on of its metadata; they mean the same as headers.
const HANDED_ON: &[&str] = &["authorization", "idempotency-key", "traceparent", "tracestate"];
/// What an answer says beside its body.
const SAID: &[&str] = &["traceresponse", "x-trace-id", "idempotent-replay"];

type Answered<T> = Result<Response<T>, Status>;

#[derive(Clone)]
pub struct Calls {
    routes: Router,
}

/// A request to a route.
struct Asked {
    method: Method,
    path: String,
    body: Body,
    headers: HeaderMap,
}

impl Asked {
    fn get<T: Serialize>(metadata: MetadataMap, path: &str, query: &T) -> Result<Self, Status> {
        let query = serde_urlencoded::to_string(query).map_err(unreadable)?;
        let headers = handed_on(metadata);
        Ok(Self { method: Method::GET, path: format!("{path}?{query}"), body: Body::empty(), headers })
    }

    fn post<T: Serialize>(metadata: MetadataMap, path: &str, body: &T) -> Result<Self, Status> {
        let mut body = serde_json::to_value(body).map_err(unreadable)?;
        leave_out(&mut body, true);
        let headers = handed_on(metadata);
        Ok(Self { method: Method::POST, path: path.to_owned(), body: Body::from(body.to_string()), headers })
    }
}

fn handed_on(metadata: MetadataMap) -> HeaderMap {
    let given = metadata.into_headers();
    let mut headers = HeaderMap::new();
    for name in HANDED_ON {
        for value in given.get_all(*name) {
            headers.append(*name, value.clone());
        }
    }
    headers
}

/// A field that says nothing is left away, so that a key stands for the same body on every surface. A flag is one
/// of the request itself; those further in are optional and say something when they are there.
fn leave_out(value: &mut Value, outermost: bool) {
    let Value::Object(fields) = value else { return };
    fields.retain(|_, field| match field {
        Value::Null => false,
        Value::Bool(false) => !outermost,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !(outermost && fields.is_empty()),
        _ => true,
    });
    fields.values_mut().for_each(|field| leave_out(field, false));
}

fn unreadable(error: impl std::fmt::Display) -> Status {
    Status::internal(format!("a request has no other form: {error}"))
}

/// `/v1/KIND/ID` and what follows; an id that is none would be another path.
fn path(kind: &str, id: &str, rest: &str) -> Result<String, Status> {
    check_id(id).map_err(|_| status_of(&Fault::invalid("run_id", id, IDS)))?;
    Ok(format!("/v1/{kind}/{id}{rest}"))
}

const RUNS: &str = "runs";
const RESIDENTS: &str = "_resident";

impl Calls {
    pub fn new(routes: Router) -> Self {
        Self { routes }
    }

    async fn ask(&self, asked: Asked) -> Result<axum::response::Response, Status> {
        let mut request = Request::builder().method(asked.method).uri(asked.path);
        if let Some(headers) = request.headers_mut() {
            *headers = asked.headers;
            // Whoever called was checked for its own names.
            headers.insert(header::HOST, header::HeaderValue::from_static("localhost"));
        }
        let request = request.body(asked.body).map_err(unreadable)?;
        let response = match self.routes.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let said = said(response.headers());
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_default();
        let mut status = status_of_body(&serde_json::from_slice(&body).unwrap_or_default());
        *status.metadata_mut() = said;
        Err(status)
    }

    async fn call<T: DeserializeOwned>(&self, asked: Asked) -> Answered<T> {
        let response = self.ask(asked).await?;
        let said = said(response.headers());
        let body = to_bytes(response.into_body(), usize::MAX).await.map_err(unreadable)?;
        let mut answer = Response::new(serde_json::from_slice(&body).map_err(unreadable)?);
        *answer.metadata_mut() = said;
        Ok(answer)
    }
}

fn said(headers: &HeaderMap) -> MetadataMap {
    let kept = SAID.iter().filter_map(|name| {
        let value = headers.get(*name)?.clone();
        Some((header::HeaderName::from_static(name), value))
    });
    MetadataMap::from_headers(kept.collect())
}

#[tonic::async_trait]
impl Hearth for Calls {
    async fn create_run(&self, request: tonic::Request<CreateRunRequest>) -> Answered<RunAnswer> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::post(metadata, "/v1/runs", &message)?).await
    }

    async fn get_run(&self, request: tonic::Request<GetRunRequest>) -> Answered<Run> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::get(metadata, &path(RUNS, &message.run_id, "")?, &())?).await
    }

    async fn list_runs(&self, request: tonic::Request<ListRequest>) -> Answered<RunList> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::get(metadata, "/v1/runs", &message)?).await
    }

    async fn input_run(&self, request: tonic::Request<InputRequest>) -> Answered<InputAnswer> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::post(metadata, &path(RUNS, &message.run_id, "/input")?, &message)?).await
    }

    type StreamRunStream = BoxStream<'static, Result<Event, Status>>;

    async fn stream_run(&self, request: tonic::Request<StreamRequest>) -> Answered<Self::StreamRunStream> {
        let (metadata, _, message) = request.into_parts();
        let mut asked = Asked::get(metadata, &path(RUNS, &message.run_id, "/stream")?, &message)?;
        if let Some(id) = message.last_event_id {
            asked.headers.insert("last-event-id", id.into());
        }
        let response = self.ask(asked).await?;
        let said = said(response.headers());
        let mut answer = Response::new(events(response.into_body()));
        *answer.metadata_mut() = said;
        Ok(answer)
    }

    async fn cancel_run(&self, request: tonic::Request<CancelRequest>) -> Answered<CancelAnswer> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::post(metadata, &path(RUNS, &message.run_id, "/cancel")?, &message)?).await
    }

    async fn close_run(&self, request: tonic::Request<CloseRequest>) -> Answered<CloseAnswer> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::post(metadata, &path(RUNS, &message.run_id, "/close")?, &message)?).await
    }

    async fn open_resident(&self, request: tonic::Request<OpenRequest>) -> Answered<Envelope> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::post(metadata, "/v1/_resident", &message)?).await
    }

    async fn send_resident(&self, request: tonic::Request<SendRequest>) -> Answered<Envelope> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::post(metadata, &path(RESIDENTS, &message.run_id, "/send")?, &message)?).await
    }

    async fn poll_resident(&self, request: tonic::Request<PollRequest>) -> Answered<Envelope> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::get(metadata, &path(RESIDENTS, &message.run_id, "")?, &message)?).await
    }

    async fn cancel_resident(&self, request: tonic::Request<CancelRequest>) -> Answered<CancelAnswer> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::post(metadata, &path(RESIDENTS, &message.run_id, "/cancel")?, &message)?).await
    }

    async fn close_resident(&self, request: tonic::Request<CloseRequest>) -> Answered<CloseAnswer> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::post(metadata, &path(RESIDENTS, &message.run_id, "/close")?, &message)?).await
    }

    async fn list_residents(&self, request: tonic::Request<ListRequest>) -> Answered<ResidentList> {
        let (metadata, _, message) = request.into_parts();
        self.call(Asked::get(metadata, "/v1/_resident", &message)?).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_says_nothing_is_left_away() {
        let message = CreateRunRequest {
            agent: "mock".to_owned(),
            segments: vec!["a".to_owned()],
            sandbox: Some(hearth_proto::v1::SandboxSpec { read_only: Some(false), ..Default::default() }),
            wait_ms: Some(0),
            ..CreateRunRequest::default()
        };
        let mut body = serde_json::to_value(message).unwrap();
        leave_out(&mut body, true);
        assert_eq!(
            body,
            json!({ "agent": "mock", "segments": ["a"], "sandbox": { "read_only": false }, "wait_ms": 0 })
        );
    }
}
