//! `/v1/_resident`.

use axum::extract::State;
use axum::http::StatusCode;
use hearth_api::{OpenResident, Poll, Send};

use super::call::Call;
use super::disconnect;
use super::gateway::Gateway;
use super::openapi::{Operation, Tag};
use super::reply::{self, Reply};
use super::runs::{cancel_of, close_of};
use super::table::Table;

pub fn routes(table: Table) -> Table {
    table
        .get(
            "/v1/_resident",
            list,
            Operation::new(Tag::Residents, "listResidents", "Residents that are not final")
                .filters()
                .answers("ResidentList"),
        )
        .post(
            "/v1/_resident",
            open,
            Operation::new(Tag::Residents, "openResident", "Opens a resident and waits for its first turn")
                .body("OpenResident")
                .answers("Envelope"),
        )
        .post(
            "/v1/_resident/{id}/send",
            send,
            Operation::new(Tag::Residents, "sendResident", "Sends a prompt and waits for the turn that it becomes")
                .path("id", "Id")
                .body("Send")
                .answers("Envelope"),
        )
        .get(
            "/v1/_resident/{id}",
            poll,
            Operation::new(Tag::Residents, "pollResident", "The newest turn, or the one that is named")
                .path("id", "Id")
                .query("timeout_ms", "Milliseconds")
                .query("turn_id", "Id")
                .answers("Envelope"),
        )
        .post(
            "/v1/_resident/{id}/cancel",
            cancel,
            Operation::new(Tag::Residents, "cancelResident", "Ends the current turn; the resident stays")
                .path("id", "Id")
                .optional_body("Cancel")
                .answers("CancelAnswer"),
        )
        .post(
            "/v1/_resident/{id}/close",
            close,
            Operation::new(Tag::Residents, "closeResident", "Ends a resident and all its descendants, for good")
                .path("id", "Id")
                .optional_body("Close")
                .answers("CloseAnswer"),
        )
}

async fn list(call: Call) -> Reply {
    let (caller, request) = call.runs()?;
    reply::listing("resident", &call.gateway.hearth().list_residents(&caller, request).await?)
}

async fn open(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<OpenResident>()?;
    let held = (call.place.take(), gateway.enter_wait()?);
    let hearth = gateway.hearth().clone();
    let command = async move { hearth.open(&caller, request).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "open", held, command).await?)
}

async fn send(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<Send>()?;
    let (hearth, run) = (gateway.hearth().clone(), call.id()?);
    let held = (call.place.take(), gateway.enter_wait()?);
    let command = async move { hearth.send(&caller, &run, request).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "send", held, command).await?)
}

/// Accepts nothing, so that it may be dropped with its client.
async fn poll(State(gateway): State<Gateway>, call: Call) -> Reply {
    let (caller, request) = call.asked::<Poll>()?;
    let run = call.id()?;
    let waits = request.timeout_ms.is_some_and(|wait| wait > 0);
    let _held = waits.then(|| gateway.enter_wait()).transpose()?;
    let envelope = tokio::select! {
        envelope = gateway.hearth().poll(&caller, &run, request) => envelope?,
        () = gateway.expired().cancelled() => return Err(disconnect::replica_ends().into()),
    };
    reply::json(StatusCode::OK, &envelope)
}

async fn cancel(gateway: State<Gateway>, call: Call) -> Reply {
    cancel_of(gateway, call, true).await
}

async fn close(gateway: State<Gateway>, call: Call) -> Reply {
    close_of(gateway, call, true).await
}
