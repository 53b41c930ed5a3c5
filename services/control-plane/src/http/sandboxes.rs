//! `/v1/_sandboxes`.

use axum::extract::State;
use axum::http::StatusCode;
use hearth_types::{Fault, RunId};
use serde::Deserialize;

use super::call::{Call, Checked, Nothing};
use super::disconnect;
use super::gateway::Gateway;
use super::openapi::{Operation, Tag};
use super::reply::{self, Reply};
use super::table::Table;

pub fn routes(table: Table) -> Table {
    table
        .get(
            "/v1/_sandboxes",
            list,
            Operation::new(Tag::Sandboxes, "listSandboxes", "Sandbox sessions of the whole cluster")
                .pages()
                .answers("SandboxList"),
        )
        .post(
            "/v1/_sandboxes/{id}/close",
            close,
            Operation::new(Tag::Sandboxes, "closeSandbox", "Closes one session; its workspace stays")
                .path("id", "Id")
                .optional_body("Nothing")
                .answers("SandboxClosed"),
        )
        .post(
            "/v1/_sandboxes/close_run",
            close_run,
            Operation::new(Tag::Sandboxes, "closeRunSandboxes", "Closes all sessions of one run tree")
                .body("CloseRun")
                .answers("SandboxesClosed"),
        )
}

async fn list(call: Call) -> Reply {
    let (caller, page) = call.page()?;
    reply::listing("sandboxes", &call.gateway.hearth().list_sandboxes(&caller, page).await?)
}

async fn close(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, Nothing {}) = call.command::<Nothing>()?;
    let (hearth, session) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.close_sandbox(&caller, &session).await };
    let closed = disconnect::run(&gateway, "close_sandbox", call.place.take(), command).await?;
    reply::answer(StatusCode::OK, &closed)
}

/// An empty id would mean every session that belongs to no run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloseRun {
    root_run_id: String,
}

impl Checked for CloseRun {
    fn check(&self) -> Result<(), Fault> {
        let allowed = "1 to 128 characters of A-Z a-z 0-9 _ -";
        RunId::parse(&self.root_run_id).map(drop).map_err(|_| Fault::invalid("root_run_id", &self.root_run_id, allowed))
    }
}

async fn close_run(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<CloseRun>()?;
    let hearth = gateway.hearth().clone();
    let command = async move { hearth.close_run_sandboxes(&caller, &request.root_run_id).await };
    let closed = disconnect::run(&gateway, "close_run_sandboxes", call.place.take(), command).await?;
    reply::answer(StatusCode::OK, &closed)
}
