//! `/v1/snapshots`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use futures::StreamExt as _;
use hearth_api::{Key, SnapshotStream, TakeSnapshot};
use hearth_types::{Fault, FaultCode};
use serde_json::json;
use tokio::time::timeout;

use super::call::{BodyCall, Call, Nothing};
use super::gateway::Gateway;
use super::openapi::{Operation, SNAPSHOT, Tag};
use super::reply::{self, Reply};
use super::table::Table;
use super::{disconnect, negotiate};

/// Between two pieces of a file that comes in.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

pub fn routes(table: Table) -> Table {
    let operation = |id, summary| Operation::new(Tag::Snapshots, id, summary);
    table
        .post(
            "/v1/runs/{id}/snapshot",
            take,
            operation("takeSnapshot", "Takes a resident, or a whole run tree, to go on with later or elsewhere")
                .path("id", "Id")
                .optional_body("TakeSnapshot")
                .answers("Snapshot"),
        )
        .get("/v1/snapshots", list, operation("listSnapshots", "Snapshots").pages().answers("SnapshotList"))
        .get(
            "/v1/snapshots/{id}/export",
            export,
            operation("exportSnapshot", "A snapshot as a portable file").path("id", "Id").answers_binary(SNAPSHOT),
        )
        .post(
            "/v1/snapshots/import",
            import,
            operation("importSnapshot", "Brings a portable file in, all of it or nothing")
                .takes(SNAPSHOT)
                .answers("Snapshot"),
        )
        .post(
            "/v1/snapshots/{id}/resume",
            resume,
            operation("resumeSnapshot", "New runs with the conversation and the state of those that were taken")
                .path("id", "Id")
                .optional_body("Nothing")
                .answers("ResumeAnswer"),
        )
        .delete(
            "/v1/snapshots/{id}",
            remove,
            operation("removeSnapshot", "Removes a snapshot").path("id", "Id").answers("SnapshotRemoved"),
        )
}

async fn take(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<TakeSnapshot>()?;
    let (hearth, run) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.take_snapshot(&caller, &run, request).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "snapshot", call.place.take(), command).await?)
}

async fn list(call: Call) -> Reply {
    let (caller, page) = call.page()?;
    reply::listing("snapshots", &call.gateway.hearth().list_snapshots(&caller, page).await?)
}

async fn export(mut call: Call) -> Reply {
    let caller = call.question()?;
    let (view, file) = call.gateway.hearth().export_snapshot(&caller, &call.id()?).await?;
    // The place among the requests in flight is held until the last byte; a fault breaks the connection off,
    // as the status has been sent.
    let held = Arc::new(call.place.take());
    let pieces = file.map(move |piece| {
        let _held = &held;
        piece.map_err(|fault| std::io::Error::other(fault.message))
    });
    let headers = [(header::CONTENT_TYPE, SNAPSHOT.to_owned()), (header::CONTENT_LENGTH, view.size_bytes.to_string())];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

async fn import(BodyCall(mut call, body): BodyCall) -> Reply {
    let caller = call.question()?;
    if let Some(encoding) = call.headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let shown = encoding.to_str().unwrap_or("not text");
        return Err(Fault::invalid("Content-Encoding", shown, "none: send the file as it was exported").into());
    }
    let key = negotiate::idempotency_key(&call.headers)?.map(|key| Key::unbound(key, "import".to_owned()));
    let (gateway, hearth, place) = (call.gateway.clone(), call.gateway.hearth().clone(), call.place.take());
    let command = async move { hearth.import_snapshot(&caller, key, pieces_of(body)).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "import", place, command).await?)
}

fn pieces_of(body: Body) -> SnapshotStream {
    let pieces = futures::stream::unfold(Some(body.into_data_stream()), |pieces| async move {
        let mut pieces = pieces?;
        let broke_off = |reason: String| Some((Err(Fault::new(FaultCode::InvalidArgument, reason)), None));
        match timeout(PIECE_TIMEOUT, pieces.next()).await {
            Err(_) => broke_off("the snapshot did not arrive in time; send it again".to_owned()),
            Ok(Some(Err(error))) => broke_off(format!("the snapshot ended early: {error}")),
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some(pieces))),
            Ok(None) => None,
        }
    });
    pieces.boxed()
}

async fn resume(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, Nothing {}) = call.command::<Nothing>()?;
    let (hearth, id) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.resume_snapshot(&caller, &id).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "resume", call.place.take(), command).await?)
}

async fn remove(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let caller = call.question()?;
    let (hearth, id) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.remove_snapshot(&caller, &id).await };
    let removed = disconnect::run(&gateway, "remove_snapshot", call.place.take(), command).await?;
    reply::json(StatusCode::OK, &json!({ "snapshot_id": removed, "removed": true }))
}
