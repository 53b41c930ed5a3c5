//! `/v1/sessions`.

use axum::extract::State;
use axum::http::StatusCode;
use hearth_api::{ReplaySession, SessionMessage};

use super::call::Call;
use super::disconnect;
use super::gateway::Gateway;
use super::openapi::{Operation, Tag};
use super::reply::{self, Reply};
use super::runs::run_answer;
use super::table::Table;

pub fn routes(table: Table) -> Table {
    table
        .post(
            "/v1/sessions/{id}/messages",
            message,
            Operation::new(Tag::Sessions, "messageSession", "Goes on with a conversation")
                .path("id", "Id")
                .body("SessionMessage")
                .answers("RunAnswer")
                .or(202, "RunAnswer"),
        )
        .post(
            "/v1/sessions/{id}/replay",
            replay,
            Operation::new(Tag::Sessions, "replaySession", "A new session with this conversation, for another agent")
                .path("id", "Id")
                .body("ReplaySession")
                .answers("ReplayAnswer"),
        )
        .get(
            "/v1/sessions/{id}/transcript",
            transcript,
            Operation::new(Tag::Sessions, "getTranscript", "What was said in a conversation")
                .path("id", "Id")
                .pages()
                .answers("Transcript"),
        )
}

async fn message(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<SessionMessage>()?;
    let (hearth, session) = (gateway.hearth().clone(), call.id()?);
    let held = (call.place.take(), gateway.enter_wait()?);
    let command = async move { hearth.message(&caller, &session, request).await };
    run_answer(&disconnect::run(&gateway, "message", held, command).await?)
}

async fn replay(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<ReplaySession>()?;
    let (hearth, session, held) = (gateway.hearth().clone(), call.id()?, call.place.take());
    let command = async move { hearth.replay_session(&caller, &session, request).await };
    reply::answer(StatusCode::OK, &disconnect::run(&gateway, "replay", held, command).await?)
}

async fn transcript(call: Call) -> Reply {
    let (caller, page) = call.page()?;
    reply::json(StatusCode::OK, &call.gateway.hearth().transcript(&caller, &call.id()?, page).await?)
}
