//! `/v1/runs`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use hearth_api::{Answer, Caller, Cancel, Close, CreateRun, Hearth, Input, Poll, RunAnswer, SandboxOverride};
use hearth_types::{Fault, RunId, RunState, TurnId};
use serde::Deserialize;

use super::call::{Call, Checked};
use super::disconnect::{self, CancelOnDrop};
use super::gateway::Gateway;
use super::negotiate;
use super::openapi::{Operation, Tag};
use super::reply::{self, Reply};
use super::sse::{self, End, Pace};
use super::table::Table;

pub fn routes(table: Table) -> Table {
    table
        .get(
            "/v1/runs",
            list,
            Operation::new(Tag::Runs, "listRuns", "Runs of the whole cluster, newest first")
                .filters()
                .answers("RunList"),
        )
        .post(
            "/v1/runs",
            create,
            Operation::new(Tag::Runs, "createRun", "Starts a run and waits until it parks or ends")
                .body("CreateRun")
                .answers("RunAnswer")
                .or(202, "RunAnswer")
                .streams(),
        )
        .get("/v1/runs/{id}", get, Operation::new(Tag::Runs, "getRun", "One run").path("id", "Id").answers("Run"))
        .get(
            "/v1/runs/{id}/stream",
            stream,
            Operation::new(Tag::Runs, "streamRun", "The events of a run, from any of them on")
                .path("id", "Id")
                .query("from_seq", "EventId")
                .header("Last-Event-ID", "EventId")
                .streams_only(),
        )
        .post(
            "/v1/runs/{id}/input",
            input,
            Operation::new(Tag::Runs, "inputRun", "Gives a run its next prompt, or steers the turn that runs")
                .path("id", "Id")
                .body("Input")
                .or(202, "InputAnswer"),
        )
        .post(
            "/v1/runs/{id}/cancel",
            cancel,
            Operation::new(Tag::Runs, "cancelRun", "Ends the current turn; the run stays")
                .path("id", "Id")
                .optional_body("Cancel")
                .answers("CancelAnswer"),
        )
        .put(
            "/v1/runs/{id}/sandbox",
            override_sandbox,
            Operation::new(Tag::Runs, "overrideSandbox", "What this run and its descendants open from now on")
                .path("id", "Id")
                .body("SandboxOverride")
                .answers("OverrideAnswer"),
        )
        .delete(
            "/v1/runs/{id}/sandbox",
            clear_override,
            Operation::new(Tag::Runs, "clearSandboxOverride", "Brings the run back to its tree's shared session")
                .path("id", "Id")
                .answers("OverrideAnswer"),
        )
        .post(
            "/v1/runs/{id}/close",
            close,
            Operation::new(Tag::Runs, "closeRun", "Ends a run and all its descendants, for good")
                .path("id", "Id")
                .optional_body("Close")
                .answers("CloseAnswer"),
        )
}

async fn list(call: Call) -> Reply {
    let (caller, request) = call.runs()?;
    reply::listing("runs", &call.gateway.hearth().list_runs(&caller, request).await?)
}

async fn get(call: Call) -> Reply {
    let caller = call.question()?;
    reply::json(StatusCode::OK, &call.gateway.hearth().get_run(&caller, &call.id()?).await?)
}

async fn override_sandbox(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<SandboxOverride>()?;
    set_override(&gateway, call, caller, Some(request)).await
}

async fn clear_override(State(gateway): State<Gateway>, call: Call) -> Reply {
    let caller = call.question()?;
    set_override(&gateway, call, caller, None).await
}

async fn set_override(gateway: &Gateway, mut call: Call, caller: Caller, request: Option<SandboxOverride>) -> Reply {
    let (hearth, run) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.override_sandbox(&caller, &run, request).await };
    let view = disconnect::run(gateway, "override_sandbox", call.place.take(), command).await?;
    reply::json(StatusCode::OK, &view)
}

async fn create(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<CreateRun>()?;
    if negotiate::wants_stream(&call.headers) {
        return create_and_stream(&gateway, call, caller, request).await;
    }
    let held = (call.place.take(), gateway.enter_wait()?);
    let answer = if request.cancel_on_disconnect {
        create_watched(&gateway, held, caller, request).await?
    } else {
        let hearth = gateway.hearth().clone();
        let command = async move { hearth.create_run(&caller, request).await };
        disconnect::run(&gateway, "create_run", held, command).await?
    };
    run_answer(&answer)
}

/// `202` says that the wait passed first.
pub fn run_answer(answer: &Answer<RunAnswer>) -> Reply {
    let waits = answer.body.envelope.state == RunState::Running;
    reply::answer(if waits { StatusCode::ACCEPTED } else { StatusCode::OK }, answer)
}

/// Accepts first, so that the turn is known, and then waits; a client that goes away meanwhile has
/// its turn cancelled.
async fn create_watched<P: Send + Sync + 'static>(
    gateway: &Gateway,
    held: P,
    caller: Caller,
    request: CreateRun,
) -> Result<Answer<RunAnswer>, Fault> {
    let wait_ms = request.wait_ms.filter(|wait| *wait > 0);
    // The client may go away before the acceptance: then the task that accepts cancels.
    let (watching, watched) = tokio::sync::oneshot::channel();
    let (hearth, accepts) = (gateway.hearth().clone(), caller.clone());
    let watch = CancelOnDrop::new(gateway, {
        let (hearth, caller) = (hearth.clone(), caller.clone());
        async move {
            if let Ok((run, turn)) = watched.await {
                cancel_turn(&hearth, &caller, &run, turn).await;
            }
        }
    });
    let accept = async move {
        let accepted = hearth.start_run(&accepts, request).await?;
        let envelope = &accepted.body.envelope;
        if let Some(turn) = envelope.turn_id.clone() {
            // Nobody listens any more when the answer is out already.
            watching.send((envelope.run_id.clone(), turn)).ok();
        }
        Ok(accepted)
    };
    let held = Arc::new(held);
    let mut answer = disconnect::run(gateway, "start_run", held.clone(), accept).await?;
    let result = tokio::select! {
        result = wait_for_turn(gateway.hearth(), &caller, &mut answer.body, wait_ms) => result,
        () = gateway.expired().cancelled() => Err(disconnect::replica_ends()),
    };
    watch.disarm();
    drop(held);
    result.map(|()| answer)
}

/// Waits for the accepted turn, as long as the request says, and brings the answer up to date.
async fn wait_for_turn(
    hearth: &Hearth,
    caller: &Caller,
    answer: &mut RunAnswer,
    wait_ms: Option<u64>,
) -> Result<(), Fault> {
    // One question lasts an hour at the most, so that a wait without an end asks again.
    let question = Duration::from_secs(3_600);
    let run = answer.envelope.run_id.clone();
    while answer.envelope.state == RunState::Running {
        let timeout_ms = wait_ms.unwrap_or(u64::try_from(question.as_millis()).unwrap_or(u64::MAX));
        let request = Poll { timeout_ms: Some(timeout_ms), turn_id: answer.envelope.turn_id.clone() };
        answer.envelope = hearth.poll(caller, run.as_str(), request).await?;
        answer.envelope.child_run_id = None;
        if wait_ms.is_some() {
            break;
        }
    }
    answer.usage = hearth.get_run(caller, run.as_str()).await?.usage;
    Ok(())
}

async fn cancel_turn(hearth: &Hearth, caller: &Caller, run: &RunId, turn: TurnId) {
    let caller = Caller { key: None, ..caller.clone() };
    let request = Cancel { reason: Some("the client went away".to_owned()), turn_id: Some(turn) };
    if let Err(fault) = hearth.cancel(&caller, run.as_str(), request, false).await {
        tracing::warn!(%fault, run_id = %run, "a turn whose client went away was not cancelled");
    }
}

async fn create_and_stream(gateway: &Gateway, mut call: Call, caller: Caller, request: CreateRun) -> Reply {
    let place = gateway.enter_stream()?;
    let cancels = request.cancel_on_disconnect;
    let (hearth, accepts) = (gateway.hearth().clone(), caller.clone());
    let command = async move { hearth.start_run(&accepts, request).await };
    let accepted = disconnect::run(gateway, "start_run", call.place.take(), command).await?;
    let envelope = accepted.body.envelope;
    let start = hearth_api::StreamFrom::default();
    let events = gateway.hearth().stream(&caller, envelope.run_id.as_str(), start).await?;
    let hearth = gateway.hearth().clone();
    let ended = move |end: End| {
        if let (true, End::Gone, Some(turn)) = (cancels, end, envelope.turn_id) {
            let cancel = async move { cancel_turn(&hearth, &caller, &envelope.run_id, turn).await };
            drop(hearth_telemetry::task::spawn("cancel_on_disconnect", cancel));
        }
    };
    Ok(reply::mark_replay(sse::respond(events, pace(gateway), place, ended), accepted.replayed))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    from_seq: Option<u64>,
}

impl Checked for StreamQuery {}

async fn stream(State(gateway): State<Gateway>, call: Call) -> Reply {
    let (caller, query) = call.asked::<StreamQuery>()?;
    let (run, start) = (call.id()?, negotiate::stream_start(&call.headers, query.from_seq)?);
    let place = gateway.enter_stream()?;
    let events = gateway.hearth().stream(&caller, &run, start).await?;
    Ok(sse::respond(events, pace(&gateway), place, |_| ()))
}

fn pace(gateway: &Gateway) -> Pace {
    let options = gateway.options();
    Pace { heartbeat: options.stream_heartbeat, stall: options.stream_stall, closing: gateway.closing().clone() }
}

async fn input(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let (caller, request) = call.command::<Input>()?;
    let (hearth, run) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.input(&caller, &run, request).await };
    let answer = disconnect::run(&gateway, "input", call.place.take(), command).await?;
    reply::answer(StatusCode::ACCEPTED, &answer)
}

async fn cancel(gateway: State<Gateway>, call: Call) -> Reply {
    cancel_of(gateway, call, false).await
}

async fn close(gateway: State<Gateway>, call: Call) -> Reply {
    close_of(gateway, call, false).await
}

/// `child` says that the run is called a resident here.
pub async fn cancel_of(State(gateway): State<Gateway>, mut call: Call, child: bool) -> Reply {
    let (caller, request) = call.command::<Cancel>()?;
    let (hearth, run) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.cancel(&caller, &run, request, child).await };
    let answer = disconnect::run(&gateway, "cancel", call.place.take(), command).await?;
    reply::answer(StatusCode::OK, &answer)
}

pub async fn close_of(State(gateway): State<Gateway>, mut call: Call, child: bool) -> Reply {
    let (caller, request) = call.command::<Close>()?;
    let (hearth, run) = (gateway.hearth().clone(), call.id()?);
    let command = async move { hearth.close(&caller, &run, request, child).await };
    let answer = disconnect::run(&gateway, "close", call.place.take(), command).await?;
    reply::answer(StatusCode::OK, &answer)
}
