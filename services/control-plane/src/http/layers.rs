//! What every request passes through, from the outside in: its span and metrics, the names it may
//! be called by, its place among the requests in flight, its principal.

use std::panic::AssertUnwindSafe;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use hearth_telemetry::names::{field, span};
use hearth_types::{Fault, check_loopback_names};
use tokio::time::Instant;
use tracing::{Instrument, Span, info_span};

use super::call::{RequestTrace, unauthenticated};
use super::gateway::Gateway;
use super::negotiate;
use super::reply::{Refusal, finish};
use crate::auth::bearer;
use crate::metrics::{REQUEST_SECONDS, REQUESTS_IN_FLIGHT};

/// Gives a request its span, its trace id and its metrics, and writes the body of a refusal. A
/// handler that panics is an internal fault like any other.
pub async fn observe(mut request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let method = method_label(request.method());
    let span = info_span!(
        span::HTTP_REQUEST,
        { field::OTEL_NAME } = format!("{method} {route}"),
        { field::OTEL_KIND } = "server",
        { field::HTTP_METHOD } = method,
        { field::HTTP_ROUTE } = route,
        { field::URL_PATH } = request.uri().path(),
        { field::TRACE_ID } = tracing::field::Empty,
        { field::HTTP_STATUS } = tracing::field::Empty,
        { field::ERROR_TYPE } = tracing::field::Empty,
        { field::OTEL_STATUS } = tracing::field::Empty,
    );
    let trace = hearth_telemetry::adopt(&span, negotiate::trace(request.headers()).as_ref());
    request.extensions_mut().insert(RequestTrace(trace.clone()));
    let mut measured = Measured::start(method, route);
    let response = AssertUnwindSafe(next.run(request)).catch_unwind().instrument(span.clone()).await;
    let response = response.unwrap_or_else(|_| Refusal::from(Fault::internal("a handler panicked")).into_response());
    measured.class = class(response.status());
    record(&span, &response);
    finish(response, &trace)
}

/// Logs what only operators can mend; what a caller can mend is told to the caller.
fn record(span: &Span, response: &Response) {
    span.record(field::HTTP_STATUS, response.status().as_u16());
    let Some(Refusal(fault)) = response.extensions().get::<Refusal>() else { return };
    span.record(field::ERROR_TYPE, fault.code.as_str());
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR {
        span.record(field::OTEL_STATUS, "ERROR");
        span.in_scope(|| tracing::error!(fault = %fault, "a request failed inside"));
    } else {
        span.in_scope(|| tracing::debug!(fault = %fault, "a request was refused"));
    }
}

struct Measured {
    method: &'static str,
    route: String,
    begun: Instant,
    class: &'static str,
}

impl Measured {
    fn start(method: &'static str, route: String) -> Self {
        REQUESTS_IN_FLIGHT.inc();
        // Until it is known better: a client that goes away drops this with the request.
        Self { method, route, begun: Instant::now(), class: "gone" }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        REQUESTS_IN_FLIGHT.dec();
        let seconds = self.begun.elapsed().as_secs_f64();
        REQUEST_SECONDS.with_label_values(&[self.method, self.route.as_str(), self.class]).observe(seconds);
    }
}

/// A label comes from a closed set; the method of a request does not.
fn method_label(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    known.into_iter().find(|known| method == *known).unwrap_or("OTHER")
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        100..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        _ => "5xx",
    }
}

/// Where no token protects, the names of loopback and its origins do.
pub async fn check_names(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    if gateway.auth().is_open() {
        let headers = request.headers();
        let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
        let host = negotiate::text(headers, &header::HOST).or(authority);
        if let Err(fault) = check_loopback_names(host, negotiate::text(headers, &header::ORIGIN)) {
            return Refusal::from(fault).into_response();
        }
    }
    next.run(request).await
}

/// Takes a place among the requests in flight; the handler may hold on to it.
pub async fn enter(State(gateway): State<Gateway>, mut request: Request, next: Next) -> Response {
    match gateway.enter() {
        Ok(place) => {
            request.extensions_mut().insert(place.clone());
            let response = next.run(request).await;
            drop(place);
            response
        }
        Err(fault) => Refusal::from(fault).into_response(),
    }
}

/// Finds out who calls, before anything is said about what is there.
pub async fn identify(State(gateway): State<Gateway>, mut request: Request, next: Next) -> Response {
    let token = negotiate::authorization(request.headers()).and_then(bearer);
    match gateway.auth().identify(token) {
        Some(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        None => Refusal::from(unauthenticated()).into_response(),
    }
}
