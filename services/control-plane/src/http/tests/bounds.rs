//! What is bounded: bodies, nesting, requests in flight, time.

use std::sync::LazyLock;

use axum::extract::State;
use bytes::Bytes;
use futures::stream;
use hearth_types::limits::MAX_BODY_BYTES;
use reqwest::{Body, Method};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::*;
use crate::http::call::Call;
use crate::http::disconnect;
use crate::http::openapi::{Operation, Tag};
use crate::http::reply::{self, Reply};

fn operation() -> Operation {
    Operation::new(Tag::Health, "test", "A route of a test").answers("Ok")
}

#[tokio::test]
async fn a_body_past_the_bound_is_refused_with_and_without_a_declared_length() {
    let server = Server::start().await;
    let large = format!("{{\"agent\":\"{}\"}}", "x".repeat(MAX_BODY_BYTES));
    let (status, code, _) = refusal(server.post("/v1/runs", &large).await).await;
    assert_eq!((status, code.as_str()), (413, "payload_too_large"));
    let pieces = (0..17).map(|_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 1 << 20])));
    let chunked = server.request(Method::POST, "/v1/runs").body(Body::wrap_stream(stream::iter(pieces)));
    let (status, code, _) = refusal(chunked.send().await.unwrap()).await;
    assert_eq!((status, code.as_str()), (413, "payload_too_large"));
}

#[tokio::test]
async fn deep_nesting_is_a_clean_refusal() {
    let server = Server::start().await;
    for levels in [129, 2_000, 500_000] {
        let body =
            format!("{{\"agent\":\"mock\",\"metadata\":{{\"a\":{}{}}}}}", "[".repeat(levels), "]".repeat(levels));
        let (status, code, _) = refusal(server.post("/v1/runs", &body).await).await;
        assert_eq!((status, code.as_str()), (400, "invalid_argument"));
    }
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_and_the_server_goes_on() {
    let server = Server::start().await;
    let response = server.request(Method::GET, "/livez").header("x-large", "x".repeat(100_000)).send().await;
    assert!(response.is_err() || response.is_ok_and(|response| response.status() == 431));
    assert_eq!(server.get("/livez").await.status(), 200);
}

async fn panics() -> Reply {
    panic!("on purpose")
}

async fn panics_in_its_task(State(gateway): State<Gateway>) -> Reply {
    disconnect::run(&gateway, "test", (), async { panic!("on purpose") })
        .await
        .map(|()| reply::json(Default::default(), &1))?
}

#[tokio::test]
async fn a_panic_is_an_internal_fault_that_carries_its_trace() {
    let server = Server::with(Auth::single(TOKEN), HttpOptions::default(), |table| {
        table.get("/test/panics", panics, operation()).get("/test/task", panics_in_its_task, operation())
    })
    .await;
    for path in ["/test/panics", "/test/task"] {
        let response = server.get(path).await;
        let trace_id = response.headers()["x-trace-id"].to_str().unwrap().to_owned();
        let (status, code, body) = refusal(response).await;
        assert_eq!((status, code.as_str()), (500, "internal"));
        assert_eq!(body["error"]["details"]["trace_id"], trace_id);
        assert!(!body.to_string().contains("purpose"));
    }
    assert_eq!(server.get("/livez").await.status(), 200);
}

static RELEASE: LazyLock<Notify> = LazyLock::new(Notify::new);

/// Waits, as a call that waits for a turn does.
async fn waits(State(gateway): State<Gateway>, mut call: Call) -> Reply {
    let held = (call.place.take(), gateway.enter_wait()?);
    let command = async {
        RELEASE.notified().await;
        Ok(())
    };
    disconnect::run(&gateway, "test", held, command).await?;
    reply::json(axum::http::StatusCode::OK, &true)
}

#[tokio::test]
async fn waits_past_their_bound_are_shed_and_leave_room_for_everything_else() {
    let options = HttpOptions { max_concurrent_requests: 8, ..HttpOptions::default() };
    let server = Server::with(Auth::single(TOKEN), options, |table| table.get("/test/waits", waits, operation())).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..7 {
        let request = server.request(Method::GET, "/test/waits");
        waiting.spawn(async move { request.send().await.unwrap().status() });
    }
    // Seven of eight places are for waits.
    until("all places for waits are taken", || server.gateway.enter_wait().is_err()).await;
    let response = server.get("/test/waits").await;
    assert_eq!(response.headers()["retry-after"], "1");
    let (status, code, body) = refusal(response).await;
    assert_eq!((status, code.as_str(), &body["error"]["retryable"]), (503, "unavailable", &Value::Bool(true)));
    assert_eq!(server.get("/nothing").await.status(), 404, "a request that does not wait gets through");
    let last = server.gateway.enter().unwrap();
    assert_eq!(server.get("/nothing").await.status(), 503, "no place is left");
    assert_eq!(server.get("/livez").await.status(), 200, "health takes no place");
    assert_eq!(server.get("/metrics").await.status(), 200);
    drop(last);
    while !waiting.is_empty() {
        RELEASE.notify_waiters();
        if let Ok(Some(status)) = tokio::time::timeout(Duration::from_millis(20), waiting.join_next()).await {
            assert_eq!(status.unwrap(), 200);
        }
    }
    until("the places are given back", || server.gateway.enter_wait().is_ok()).await;
}

#[tokio::test]
async fn a_client_that_sends_its_head_slowly_is_closed() {
    let options = HttpOptions { idle_timeout: Duration::from_millis(200), ..HttpOptions::default() };
    let server = Server::with(Auth::single(TOKEN), options, |table| table).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(20), slow.read_to_end(&mut answer)).await;
    closed.expect("the connection is closed").ok();
    assert!(!String::from_utf8_lossy(&answer).contains("200"));
}

#[tokio::test]
async fn nonsense_on_the_wire_ends_that_connection_alone() {
    let server = Server::start().await;
    for nonsense in [&b"\0\0\0\0\r\n\r\n"[..], b"GET\r\n\r\n", b"POST /v1/runs HTTP/1.1\r\nContent-Length: -1\r\n\r\n"]
    {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        connection.write_all(nonsense).await.unwrap();
        connection.shutdown().await.ok();
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await.ok();
        assert!(!String::from_utf8_lossy(&answer).contains(" 200 "));
    }
    assert_eq!(server.get("/livez").await.status(), 200);
}
