//! What stands between HTTP and the protocol: room for requests, and whose session a request names.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures::StreamExt as _;
use hearth_types::{Fault, FaultCode};
use rmcp::transport::streamable_http_server::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::handler::Handler;
use crate::metrics::REFUSED;
use crate::receipt::Delivery;
use crate::sessions::{Place, Sessions, Use};
use crate::{Owner, Toolbox};

const SESSION_HEADER: &str = "mcp-session-id";
const VERSION_HEADER: &str = "mcp-protocol-version";
/// Of a client that goes on with a stream.
const RESUMED_HEADER: &str = "last-event-id";
/// From this version on there are no sessions.
const WITHOUT_SESSIONS: &str = "2026-07-28";
/// An error that the protocol's own code answers with is one line of text.
const MAX_ERROR_BYTES: usize = 4_096;
/// One, and another one while a client that lost it takes it up again.
const STREAMS_PER_SESSION: usize = 2;
/// Memory for bodies is counted in pieces of this size.
const PIECE: usize = 64 * 1024;

/// What a server is called and how much it takes on.
#[derive(Debug, Clone)]
pub struct Options {
    pub name: &'static str,
    pub version: &'static str,
    /// What a model is told of the tools as a whole.
    pub instructions: &'static str,
    /// None: each request stands for itself, and any server of the same tools may answer it.
    pub sessions: Option<SessionOptions>,
    /// Requests at once, and calls under way.
    pub max_requests: usize,
    pub max_body_bytes: usize,
    /// Bytes of all bodies that are held at once.
    pub max_body_memory: usize,
}

/// The bounds of MCP sessions.
#[derive(Debug, Clone, Copy)]
pub struct SessionOptions {
    /// At once, of all clients.
    pub max: usize,
    /// How long a session lives without a request or an open stream.
    pub idle: Duration,
}

struct Front {
    sessions: Option<Arc<Sessions>>,
    requests: Arc<Semaphore>,
    /// Streams that stay open take no place from requests: most clients hold one for as long as they live.
    streams: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    max_body_bytes: usize,
    /// Ends the streams that would never end by themselves.
    stop: CancellationToken,
}

/// `/mcp`. Each request has to have an [`Owner`] and a [`Toolbox::Caller`] among its extensions. Once
/// `stop` is cancelled idle streams end, and calls under way go on; `end` ends them too.
pub fn router<T: Toolbox>(
    toolbox: Arc<T>,
    options: &Options,
    stop: CancellationToken,
    end: &CancellationToken,
) -> Router {
    let mut manager = LocalSessionManager::default();
    // A session in which a command runs for an hour is not idle: `Sessions` knows, the manager does not.
    manager.session_config.keep_alive = None;
    let manager = Arc::new(manager);
    // The layer in front checks tokens, and names where there are none.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(options.sessions.is_some())
        .disable_allowed_hosts()
        .disable_allowed_origins()
        // Where there is no session to take a stream up again, an answer in one piece: some clients bound
        // the size of an event.
        .with_json_response(true)
        .with_max_request_body_bytes(options.max_body_bytes)
        .with_cancellation_token(end.clone());
    let calls = Arc::new(Semaphore::new(options.max_requests));
    let made = options.clone();
    let handler = move || Ok(Handler { toolbox: toolbox.clone(), options: made.clone(), calls: calls.clone() });
    let service = StreamableHttpService::new(handler, manager.clone(), config);
    let sessions = options.sessions.map(|bounds| Sessions::new(bounds.max, bounds.idle));
    if let Some(sessions) = &sessions {
        drop(hearth_telemetry::task::spawn("mcp-sessions", expire(sessions.clone(), manager, end.clone())));
    }
    let streams =
        options.sessions.map_or(options.max_requests, |bounds| bounds.max.saturating_mul(STREAMS_PER_SESSION));
    let front = Front {
        sessions,
        requests: Arc::new(Semaphore::new(options.max_requests)),
        streams: Arc::new(Semaphore::new(streams)),
        memory: Arc::new(Semaphore::new(options.max_body_memory / PIECE)),
        max_body_bytes: options.max_body_bytes,
        stop,
    };
    Router::new().route_service("/mcp", service).layer(from_fn_with_state(Arc::new(front), admit))
}

async fn expire(sessions: Arc<Sessions>, manager: Arc<LocalSessionManager>, end: CancellationToken) {
    while !end.is_cancelled() {
        for id in sessions.expired() {
            if let Err(error) = manager.close_session(&id.into()).await {
                tracing::debug!(%error, "an MCP session was gone before it was closed");
            }
        }
        tokio::select! {
            () = end.cancelled() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// What a request holds until its answer was sent to the end.
struct Held {
    _place: OwnedSemaphorePermit,
    _memory: Option<OwnedSemaphorePermit>,
    _session: Option<Use>,
}

async fn admit(State(front): State<Arc<Front>>, mut request: Request, next: Next) -> Response {
    let Some(owner) = request.extensions().get::<Owner>().cloned() else {
        return refuse(&Fault::internal("the request does not say whose it is"));
    };
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = kind.is_some_and(|kind| kind.starts_with("application/json"));
    let (method, named) = (request.method().clone(), session_of(request.headers()));
    let held = match front.hold(&request, named.as_deref(), &owner) {
        Ok(held) => held,
        Err(fault) => return refuse(&fault),
    };
    let place = match front.place(&request, named.as_deref(), &owner) {
        Ok(place) => place,
        Err(fault) => return refuse(&fault),
    };
    let delivery = Delivery::new(front.sessions.clone().zip(named.clone()));
    request.extensions_mut().insert(delivery.receipt());
    let resumes = method == Method::GET && request.headers().contains_key(RESUMED_HEADER);
    let response = next.run(request).await;
    if let (true, Some(sessions), Some(named)) = (resumes && response.status().is_success(), &front.sessions, &named) {
        sessions.taken_up(named);
    }
    if let Some(sessions) = &front.sessions
        && let Some(begun) = session_of(response.headers()).filter(|_| named.is_none())
    {
        match place.or_else(|| sessions.reserve(&owner)) {
            Some(place) => place.fill(&begun, &owner),
            None => sessions.end(begun),
        }
    }
    if let (Some(sessions), Some(named)) = (&front.sessions, named)
        && (response.status() == StatusCode::NOT_FOUND || (method == Method::DELETE && response.status().is_success()))
    {
        sessions.forget(&named);
    }
    let response = told(response, is_json).await;
    let stop = (method == Method::GET).then(|| front.stop.clone());
    carry(response, held, delivery, stop)
}

impl Front {
    fn hold(&self, request: &Request, named: Option<&str>, owner: &Owner) -> Result<Held, Fault> {
        let full = || {
            REFUSED.with_label_values(&["requests"]).inc();
            Fault::unavailable("this server is busy with as many requests as it takes; try again")
        };
        let places = if *request.method() == Method::GET { &self.streams } else { &self.requests };
        let place = places.clone().try_acquire_owned().map_err(|_| full())?;
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let bytes: usize = match (request.method(), length) {
            (&Method::POST, None) => self.max_body_bytes,
            (_, length) => length.unwrap_or(0),
        };
        if bytes > self.max_body_bytes {
            return Err(too_large(self.max_body_bytes));
        }
        let pieces = u32::try_from(bytes.div_ceil(PIECE)).unwrap_or(u32::MAX);
        let memory = match pieces {
            0 => None,
            pieces => Some(self.memory.clone().try_acquire_many_owned(pieces).map_err(|_| full())?),
        };
        let session = match (named, &self.sessions) {
            (Some(id), Some(sessions)) => Some(sessions.begin(id, owner).ok_or_else(unknown_session)?),
            _ => None,
        };
        Ok(Held { _place: place, _memory: memory, _session: session })
    }

    /// A place where the request may begin a session: a handshake names none, and no newer version.
    fn place(&self, request: &Request, named: Option<&str>, owner: &Owner) -> Result<Option<Place>, Fault> {
        let Some(sessions) = &self.sessions else { return Ok(None) };
        let version = request.headers().get(VERSION_HEADER).and_then(|value| value.to_str().ok());
        if named.is_some() || *request.method() != Method::POST || version.is_some_and(|v| v >= WITHOUT_SESSIONS) {
            return Ok(None);
        }
        sessions.reserve(owner).map(Some).ok_or_else(|| {
            REFUSED.with_label_values(&["sessions"]).inc();
            Fault::unavailable("this server has as many MCP sessions as it takes; end one with DELETE, or try later")
        })
    }
}

fn session_of(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION_HEADER).map(|value| value.to_str().unwrap_or_default().to_owned())
}

fn unknown_session() -> Fault {
    Fault::new(FaultCode::NotFound, "there is no such MCP session, or it has ended; begin another with `initialize`")
}

fn too_large(max: usize) -> Fault {
    Fault::new(FaultCode::PayloadTooLarge, format!("the body is larger than {max} bytes"))
}

/// A refusal of the request as a whole, before the protocol sees it.
pub fn refuse(fault: &Fault) -> Response {
    let status = match fault.code {
        FaultCode::InvalidArgument => StatusCode::BAD_REQUEST,
        FaultCode::Unauthenticated => StatusCode::UNAUTHORIZED,
        FaultCode::PermissionDenied => StatusCode::FORBIDDEN,
        FaultCode::NotFound => StatusCode::NOT_FOUND,
        FaultCode::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        FaultCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut response = (status, axum::Json(fault.to_body())).into_response();
    if let Some(ms) = fault.retry_after_ms {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
    }
    response
}

/// The protocol's own refusals are plain text; here they become what every refusal looks like.
async fn told(response: Response, is_json: bool) -> Response {
    let status = match response.status() {
        // It says so of JSON that cannot be read, too.
        StatusCode::UNSUPPORTED_MEDIA_TYPE if is_json => StatusCode::BAD_REQUEST,
        status => status,
    };
    if !status.is_client_error() || response.headers().contains_key(header::CONTENT_TYPE) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MAX_ERROR_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let code = match status {
        StatusCode::NOT_FOUND => FaultCode::NotFound,
        StatusCode::PAYLOAD_TOO_LARGE => FaultCode::PayloadTooLarge,
        _ => FaultCode::InvalidArgument,
    };
    let mut answer = (status, axum::Json(Fault::new(code, text).to_body())).into_response();
    for (name, value) in &parts.headers {
        if name != header::CONTENT_LENGTH {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    answer
}

/// The answer, with what it holds until it was sent.
fn carry(response: Response, held: Held, delivery: Delivery, stop: Option<CancellationToken>) -> Response {
    response.map(|body| {
        let stream = body.into_data_stream().map(move |piece| {
            let _ = &held;
            delivery.carried();
            piece
        });
        match stop {
            Some(stop) => Body::from_stream(stream.take_until(stop.cancelled_owned())),
            None => Body::from_stream(stream),
        }
    })
}
