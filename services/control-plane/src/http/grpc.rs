//! The gRPC surface: each call is the HTTP call of the same meaning, in another encoding.
//!
//! A call goes through the routes of the HTTP surface, within the process. So fields, bounds, keys, places and
//! refusals are the same on both, and a client that goes away is noticed alike.

mod events;
mod refusal;
mod service;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use hearth_proto::v1::hearth_server::{HearthServer, SERVICE_NAME};
use hearth_types::limits;

use self::refusal::status_of;
use self::service::Calls;
use super::call::{RequestTrace, unauthenticated};
use super::gateway::Gateway;
use super::{intake, negotiate};
use crate::auth::bearer;

/// The routes, in front of those that they lead to.
pub fn router(routes: Router, gateway: &Gateway) -> Router {
    let service = HearthServer::new(Calls::new(routes))
        .max_decoding_message_size(limits::MAX_BODY_BYTES)
        // A page of a list has as many rows as the list allows; what comes out is bounded where it is made.
        .max_encoding_message_size(usize::MAX);
    Router::new()
        .route_service(&format!("/{SERVICE_NAME}/{{method}}"), service)
        .layer(from_fn_with_state(gateway.clone(), take_in))
}

/// Finds out who calls and takes the message in, under the bounds of every body, before it is decoded.
async fn take_in(State(gateway): State<Gateway>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if gateway.auth().identify(negotiate::authorization(&parts.headers).and_then(bearer)).is_none() {
        return status_of(&unauthenticated()).into_http();
    }
    let received = match intake::receive(&parts.headers, body, gateway.bodies()).await {
        Ok(received) => received,
        Err(fault) => return status_of(&fault).into_http(),
    };
    // The call goes on with the trace of its own request.
    if let Some(RequestTrace(trace)) = parts.extensions.get()
        && let Ok(trace) = trace.as_str().parse()
    {
        parts.headers.insert("traceparent", trace);
    }
    let (bytes, memory) = received.split();
    let response = next.run(Request::from_parts(parts, Body::from(bytes))).await;
    drop(memory);
    response
}
