//! `/v1/_nodes`.

use axum::extract::State;
use axum::http::StatusCode;

use super::call::{Call, Nothing};
use super::disconnect;
use super::gateway::Gateway;
use super::openapi::{Operation, Tag};
use super::reply::{self, Reply};
use super::table::Table;

pub fn routes(table: Table) -> Table {
    table
        .get(
            "/v1/_nodes",
            list,
            Operation::new(Tag::Members, "listNodes", "Sandbox nodes, what they have and what is in use")
                .pages()
                .answers("NodeList"),
        )
        .post(
            "/v1/_nodes/{id}/drain",
            drain,
            Operation::new(Tag::Members, "drainNode", "Has a node take no new sessions, and end after its last one")
                .path("id", "Id")
                .optional_body("Nothing")
                .answers("Node"),
        )
}

async fn list(call: Call) -> Reply {
    let (caller, page) = call.page()?;
    reply::listing("nodes", &call.gateway.hearth().list_nodes(&caller, page).await?)
}

async fn drain(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, Nothing {}) = call.command::<Nothing>()?;
    let (hearth, node) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.drain_node(&caller, &node).await };
    let drained = disconnect::run(&gateway, "drain_node", call.place.take(), command).await?;
    reply::answer(StatusCode::OK, &drained)
}
