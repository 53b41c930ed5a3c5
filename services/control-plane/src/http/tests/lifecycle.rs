//! Clients that go away, and the end of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::response::Response as AxumResponse;
use futures::StreamExt;
use hearth_types::Fault;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::*;
use crate::http::disconnect::{self, CancelOnDrop};
use crate::http::openapi::{Operation, Tag};
use crate::http::reply::{self, Reply};
use crate::http::sse::{self, Pace};

async fn gateway(options: HttpOptions) -> (Gateway, (Replica, TempDir)) {
    let replica = replica().await;
    (Gateway::new(replica.0.hearth.clone(), Auth::single(TOKEN), options), replica)
}

fn operation() -> Operation {
    Operation::new(Tag::Health, "test", "A route of a test").answers("Ok")
}

#[tokio::test(start_paused = true)]
async fn a_command_is_accepted_though_its_client_has_gone_and_its_place_is_given_back() {
    let (gateway, _replica) = gateway(HttpOptions::default()).await;
    let (accepted, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
    let (place, command) = (gateway.enter().unwrap(), {
        let (accepted, begun) = (accepted.clone(), begun.clone());
        async move {
            begun.notify_one();
            tokio::time::sleep(Duration::from_secs(5)).await;
            accepted.store(true, Ordering::SeqCst);
            std::future::pending::<Result<(), Fault>>().await
        }
    });
    let watched = Arc::downgrade(&place);
    let start = Instant::now();
    let handler = disconnect::run(&gateway, "test", place, command);
    tokio::select! {
        _ = handler => panic!("it waits for ever"),
        () = begun.notified() => {}
    }
    while watched.strong_count() > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(accepted.load(Ordering::SeqCst), "the acceptance was cut short");
    let held = start.elapsed();
    assert!((30..32).contains(&held.as_secs()), "the place was held for {held:?}");
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_only_when_it_is_the_client() {
    for (told, server_ends, expected) in [(false, false, true), (true, false, false), (false, true, false)] {
        let (gateway, _replica) = gateway(HttpOptions::default()).await;
        let (cancelled, mut was_cancelled) = tokio::sync::oneshot::channel();
        let watch = CancelOnDrop::new(&gateway, async move { cancelled.send(()).unwrap() });
        if server_ends {
            gateway.closing().cancel();
        }
        if told {
            watch.disarm();
        } else {
            drop(watch);
        }
        // The sender is gone at once where nothing is to be cancelled.
        assert_eq!((&mut was_cancelled).await.is_ok(), expected, "told {told}, server ends {server_ends}");
    }
}

/// A handler that tells when it was reached and waits until it may go on.
struct Gate {
    reached: AtomicBool,
    open: Notify,
}

impl Gate {
    const fn closed() -> Self {
        Self { reached: AtomicBool::new(false), open: Notify::const_new() }
    }

    async fn pass(&'static self) -> Result<(), Fault> {
        self.reached.store(true, Ordering::SeqCst);
        self.open.notified().await;
        Ok(())
    }

    async fn is_reached(&self) {
        until("the handler is reached", || self.reached.load(Ordering::SeqCst)).await;
    }
}

static FINISHES: Gate = Gate::closed();
static OUTLASTS: Gate = Gate::closed();
static ABANDONED: Gate = Gate::closed();
static ABANDONED_DONE: AtomicBool = AtomicBool::new(false);

async fn finishes(State(gateway): State<Gateway>) -> Reply {
    disconnect::run(&gateway, "test", (), FINISHES.pass()).await?;
    reply::json(axum::http::StatusCode::OK, &true)
}

async fn outlasts(State(gateway): State<Gateway>) -> Reply {
    disconnect::run(&gateway, "test", (), OUTLASTS.pass()).await?;
    reply::json(axum::http::StatusCode::OK, &true)
}

/// Tells when its client has gone.
struct Gone;

impl Drop for Gone {
    fn drop(&mut self) {
        ABANDONED.open.notify_one();
    }
}

async fn abandoned(State(gateway): State<Gateway>) -> Reply {
    let _gone = Gone;
    let command = async {
        ABANDONED.pass().await?;
        ABANDONED_DONE.store(true, Ordering::SeqCst);
        Ok(())
    };
    disconnect::run(&gateway, "test", (), command).await?;
    reply::json(axum::http::StatusCode::OK, &true)
}

async fn streams(State(gateway): State<Gateway>) -> AxumResponse {
    let pace =
        Pace { heartbeat: Duration::from_secs(15), stall: Duration::from_secs(30), closing: gateway.closing().clone() };
    sse::respond(futures::stream::pending().boxed(), pace, (), |_| ())
}

static FLOOD_ENDED: AtomicBool = AtomicBool::new(false);

/// More than a connection can hold.
async fn floods(State(gateway): State<Gateway>) -> AxumResponse {
    let pace = Pace {
        heartbeat: Duration::from_secs(15),
        stall: gateway.options().stream_stall,
        closing: gateway.closing().clone(),
    };
    let data = serde_json::json!({ "text": "x".repeat(1 << 16) });
    let event = hearth_api::StreamEvent { id: Some(1), name: "text", data };
    let events = futures::stream::repeat_with(move || Ok(event.clone()));
    sse::respond(events.boxed(), pace, (), |_| FLOOD_ENDED.store(true, Ordering::SeqCst))
}

fn routes(table: Table) -> Table {
    table
        .get("/test/finishes", finishes, operation())
        .get("/test/outlasts", outlasts, operation())
        .get("/test/abandoned", abandoned, operation())
        .get("/test/stream", streams, operation())
        .get("/test/flood", floods, operation())
}

#[tokio::test]
async fn requests_in_flight_are_finished_before_the_end() {
    let server = Server::with(Auth::single(TOKEN), HttpOptions::default(), routes).await;
    let request = server.request(Method::GET, "/test/finishes");
    let in_flight = hearth_telemetry::task::spawn("request", async move { request.send().await.unwrap().status() });
    FINISHES.is_reached().await;
    server.shutdown.cancel();
    server.gateway.closing().cancelled().await;
    assert!(TcpStream::connect(server.address).await.is_err(), "it still accepts");
    FINISHES.open.notify_one();
    assert_eq!(in_flight.await.unwrap().unwrap(), 200);
    server.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_that_outlasts_the_grace_is_told_to_repeat() {
    let options = HttpOptions { shutdown_grace: Duration::from_millis(100), ..HttpOptions::default() };
    let server = Server::with(Auth::single(TOKEN), options, routes).await;
    let request = server.request(Method::GET, "/test/outlasts");
    let in_flight =
        hearth_telemetry::task::spawn("request", async move { refusal(request.send().await.unwrap()).await });
    OUTLASTS.is_reached().await;
    server.shutdown.cancel();
    let (status, code, body) = in_flight.await.unwrap().unwrap();
    assert_eq!((status, code.as_str()), (504, "deadline_exceeded"));
    assert!(body["error"]["message"].as_str().unwrap().contains("same key"));
    server.ended.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_connection_that_is_closed_by_its_client_does_not_cut_the_command_short() {
    let server = Server::with(Auth::single(TOKEN), HttpOptions::default(), routes).await;
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let head = format!("GET /test/abandoned HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    connection.write_all(head.as_bytes()).await.unwrap();
    ABANDONED.is_reached().await;
    drop(connection);
    until("the command is done", || ABANDONED_DONE.load(Ordering::SeqCst)).await;
}

#[tokio::test]
async fn a_reader_that_stops_reading_is_cut_and_its_connection_closed() {
    let options = HttpOptions { stream_stall: Duration::from_millis(200), ..HttpOptions::default() };
    let server = Server::with(Auth::single(TOKEN), options, routes).await;
    let stalled = crate::metrics::CONNECTIONS_STALLED.get();
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let head = format!("GET /test/flood HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    connection.write_all(head.as_bytes()).await.unwrap();
    until("the stream is given up", || FLOOD_ENDED.load(Ordering::SeqCst)).await;
    until("the connection is closed", || crate::metrics::CONNECTIONS_STALLED.get() > stalled).await;
}

#[tokio::test]
async fn a_stream_is_open_at_once_and_ends_with_the_server() {
    let server = Server::with(Auth::single(TOKEN), HttpOptions::default(), routes).await;
    let mut stream = server.get("/test/stream").await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let first = stream.chunk().await.unwrap().unwrap();
    assert!(first.starts_with(b"retry: 1000\n:"));
    server.shutdown.cancel();
    assert_eq!(stream.chunk().await.unwrap(), None, "it ends cleanly, so that its reader resumes elsewhere");
    server.ended.await.unwrap().unwrap();
}
