//! Whether this replica lives and can serve, its metrics, and the description of its interface.
//! These take no place among the requests in flight: a full replica still says how it is.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hearth_api::{Caller, Page};
use hearth_telemetry::metrics;
use hearth_types::{Fault, FaultCode};
use serde_json::json;
use tokio::time::timeout;

use super::call::{RequestTrace, unauthenticated};
use super::gateway::Gateway;
use super::negotiate;
use super::openapi::{Operation, Tag};
use super::reply::{self, Refusal, Reply};
use super::table::Table;
use crate::auth::bearer;

pub fn routes(table: Table) -> Table {
    table
        .get(
            "/livez",
            livez,
            Operation::new(Tag::Health, "livez", "Whether the process answers").public().answers("Ok"),
        )
        .get(
            "/readyz",
            readyz,
            Operation::new(Tag::Health, "readyz", "Whether this replica can serve")
                .public()
                .answers("Ok")
                .or(503, "Error"),
        )
        .get(
            "/healthz",
            healthz,
            Operation::new(Tag::Health, "healthz", "Whether this replica can serve; with a token the members too")
                .public()
                .answers("Health")
                .or(503, "Health")
                .or(401, "Error"),
        )
        .get(
            "/metrics",
            metrics_page,
            Operation::new(Tag::Health, "metrics", "The metrics of this replica, for Prometheus")
                .unbounded()
                .answers_text(),
        )
}

async fn livez() -> Reply {
    reply::json(StatusCode::OK, &json!({ "ok": true }))
}

/// Whether this replica can serve, within the time that a probe has.
async fn ready(gateway: &Gateway) -> Result<(), Fault> {
    if gateway.closing().is_cancelled() {
        return Err(Fault::new(FaultCode::Draining, "this replica ends: use another one"));
    }
    let limit = gateway.options().ready_timeout;
    let late = || Fault::unavailable(format!("the stores did not answer within {} ms", limit.as_millis()));
    timeout(limit, gateway.hearth().ready()).await.unwrap_or_else(|_| Err(late()))
}

/// Any fault means 503 here, so that a probe needs to know one number only.
async fn readyz(State(gateway): State<Gateway>) -> Response {
    match ready(&gateway).await {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], json!({ "ok": true }).to_string())
            .into_response(),
        Err(fault) => {
            let mut response = Refusal::from(shown(fault)).into_response();
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
        }
    }
}

/// What is wrong inside is for the log: these answers need no token.
fn shown(fault: Fault) -> Fault {
    match fault.code {
        FaultCode::Draining | FaultCode::Unavailable => fault,
        _ => {
            tracing::error!(%fault, "this replica does not know whether it can serve");
            Fault::unavailable("this replica cannot serve now: see its log")
        }
    }
}

async fn healthz(State(gateway): State<Gateway>, request: Request) -> Reply {
    let token = negotiate::authorization(request.headers()).and_then(bearer);
    let principal = gateway.auth().identify(token);
    if token.is_some() && principal.is_none() {
        return Err(unauthenticated().into());
    }
    let ok = ready(&gateway).await.is_ok();
    let mut body = json!({ "ok": ok });
    if let Some(principal) = principal {
        let trace = request.extensions().get::<RequestTrace>().map(|trace| trace.0.clone());
        let caller = Caller { principal, run: None, key: None, trace };
        let members = gateway.hearth().list_replicas(&caller, Page::default());
        match timeout(gateway.options().ready_timeout, members).await {
            Ok(Ok(members)) => body["replicas"] = serde_json::to_value(members.items).unwrap_or_default(),
            Ok(Err(_)) | Err(_) => body["partial"] = true.into(),
        }
    }
    reply::json(if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &body)
}

pub async fn metrics_page() -> Response {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::render()).into_response()
}
