//! `/v1/_replicas`.

use super::call::Call;
use super::openapi::{Operation, Tag};
use super::reply::{self, Reply};
use super::table::Table;

pub fn routes(table: Table) -> Table {
    table.get(
        "/v1/_replicas",
        list,
        Operation::new(Tag::Members, "listReplicas", "Replicas and their load").pages().answers("ReplicaList"),
    )
}

async fn list(call: Call) -> Reply {
    let (caller, page) = call.page()?;
    reply::listing("replicas", &call.gateway.hearth().list_replicas(&caller, page).await?)
}
