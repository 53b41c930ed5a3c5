//! `/v1/_replicas`.

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
            "/v1/_replicas",
            list,
            Operation::new(Tag::Members, "listReplicas", "Replicas and their load").pages().answers("ReplicaList"),
        )
        .post(
            "/v1/_replicas/{id}/drain",
            drain,
            Operation::new(Tag::Members, "drainReplica", "Has a replica hand its turns over and end")
                .path("id", "Id")
                .optional_body("Nothing")
                .answers("Replica"),
        )
}

async fn list(call: Call) -> Reply {
    let (caller, page) = call.page()?;
    reply::listing("replicas", &call.gateway.hearth().list_replicas(&caller, page).await?)
}

async fn drain(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, Nothing {}) = call.command::<Nothing>()?;
    let (hearth, replica) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.drain_replica(&caller, &replica).await };
    let drained = disconnect::run(&gateway, "drain_replica", call.place.take(), command).await?;
    reply::answer(StatusCode::OK, &drained)
}
