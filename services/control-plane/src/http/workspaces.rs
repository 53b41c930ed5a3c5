//! `/v1/workspaces`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use futures::StreamExt as _;
use hearth_types::{Fault, FaultCode};
use serde_json::json;
use tokio::time::timeout;

use super::call::{BodyCall, Call};
use super::openapi::{Operation, TAR, Tag};
use super::reply::{self, Reply};
use super::table::Table;

/// Between two pieces of an archive that comes in.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

pub fn routes(table: Table) -> Table {
    let of_one =
        |id, summary| Operation::new(Tag::Workspaces, id, summary).path("name", "WorkspaceName").query("tenant", "Id");
    table
        .get(
            "/v1/workspaces",
            list,
            Operation::new(Tag::Workspaces, "listWorkspaces", "Durable workspaces: where, how big, used by whom")
                .pages()
                .answers("WorkspaceList"),
        )
        .get("/v1/workspaces/{name}", get, of_one("getWorkspace", "One workspace").answers("Workspace"))
        .delete(
            "/v1/workspaces/{name}",
            delete,
            of_one("deleteWorkspace", "Removes a workspace that no session has, with all it holds")
                .answers("WorkspaceRemoved"),
        )
        .get(
            "/v1/workspaces/{name}/export",
            export,
            of_one("exportWorkspace", "What it holds, as an uncompressed tar archive").answers_binary(TAR),
        )
        .put(
            "/v1/workspaces/{name}/import",
            import,
            of_one("importWorkspace", "Replaces what it holds by an uncompressed tar archive, all of it or nothing")
                .takes(TAR)
                .answers("WorkspaceImported"),
        )
}

async fn list(call: Call) -> Reply {
    let (caller, page) = call.page()?;
    reply::listing("workspaces", &call.gateway.hearth().list_workspaces(&caller, page).await?)
}

async fn get(call: Call) -> Reply {
    let (caller, name) = call.workspace()?;
    reply::json(StatusCode::OK, &call.gateway.hearth().get_workspace(&caller, &name).await?)
}

async fn delete(call: Call) -> Reply {
    let (caller, name) = call.workspace()?;
    call.gateway.hearth().delete_workspace(&caller, &name).await?;
    reply::json(StatusCode::OK, &json!({ "name": name, "deleted": true }))
}

async fn export(mut call: Call) -> Reply {
    let (caller, name) = call.workspace()?;
    let archive = call.gateway.hearth().export_workspace(&caller, &name).await?;
    // The place among the requests in flight is held until the last byte; a fault breaks the connection off,
    // as the status has been sent.
    let held = Arc::new(call.place.take());
    let pieces = archive.map(move |piece| {
        let _held = &held;
        piece.map_err(|fault| std::io::Error::other(fault.message))
    });
    Ok(([(header::CONTENT_TYPE, TAR)], Body::from_stream(pieces)).into_response())
}

async fn import(BodyCall(call, body): BodyCall) -> Reply {
    let (caller, name) = call.workspace()?;
    if let Some(encoding) = call.headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let shown = encoding.to_str().unwrap_or("not text");
        return Err(Fault::invalid("Content-Encoding", shown, "none: send the archive uncompressed").into());
    }
    let pieces = futures::stream::unfold(Some(body.into_data_stream()), |pieces| async move {
        let mut pieces = pieces?;
        let broke_off = |reason: String| Some((Err(Fault::new(FaultCode::InvalidArgument, reason)), None));
        match timeout(PIECE_TIMEOUT, pieces.next()).await {
            Err(_) => broke_off("the archive did not arrive in time; send it again".to_owned()),
            Ok(Some(Err(error))) => broke_off(format!("the archive ended early: {error}")),
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some(pieces))),
            Ok(None) => None,
        }
    });
    let imported = call.gateway.hearth().import_workspace(&caller, &name, pieces.boxed()).await?;
    reply::json(StatusCode::OK, &imported)
}
