//! A call survives a server that goes away: the same key each time, and one result.

use std::time::Duration;

use crate::support::{Script, Step, answer};
use hearth_client::{Client, CreateRun, Error, OpenResident, Options, Page, Poll, Send};
use hearth_types::{FaultCode, RunState, TurnOutcome};
use tokio::net::TcpListener;
use tokio::time::Instant;

const ENVELOPE: &str = r#"{"run_id":"run_1","child_run_id":"run_1","state":"awaiting_input","turn_id":"turn_1",
    "outcome":"finished","output":"built","truncated":false,"a_later_field":1}"#;

fn prompt(text: &str) -> Send {
    Send { prompt: text.to_owned(), ..Send::default() }
}

fn fault(status: &str, code: &str, headers: &[&str]) -> Step {
    let body = format!(r#"{{"error":{{"code":"{code}","message":"try {code}","retryable":true}}}}"#);
    answer(status, headers, &body)
}

#[tokio::test]
async fn a_send_whose_connection_breaks_repeats_with_its_key_and_gets_the_turn() {
    let cut = Step::Raw("HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"run_id\":".to_owned());
    let done = answer("200 OK", &["idempotent-replay: true"], ENVELOPE);
    let server = Script::start(vec![Step::Drop, cut, fault("503 Service Unavailable", "draining", &[]), done]).await;
    let answer = server.client().send("run_1", &prompt("build")).await.unwrap();
    assert_eq!((answer.body.output.as_str(), answer.body.outcome), ("built", Some(TurnOutcome::Finished)));
    assert!(answer.replayed);
    assert_eq!(answer.raw["a_later_field"], 1);
    let seen = server.seen();
    assert_eq!(seen.len(), 4);
    let key = seen[0].header("idempotency-key").unwrap();
    for request in &seen {
        assert_eq!(request.line, "POST /v1/_resident/run_1/send");
        assert_eq!(request.header("idempotency-key"), Some(key));
        assert_eq!(request.header("authorization"), Some("Bearer secret"));
        assert_eq!(request.body, r#"{"prompt":"build"}"#);
    }
}

#[tokio::test]
async fn a_blocked_send_survives_a_server_that_is_killed_and_comes_back_on_its_port() {
    let first = Script::start(vec![Step::Hold]).await;
    let (client, address) = (first.client(), first.address);
    let mut calls = tokio::task::JoinSet::new();
    calls.spawn(async move { client.send("run_1", &prompt("build")).await });
    while first.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    let key = first.seen()[0].header("idempotency-key").unwrap().to_owned();
    drop(first);
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let second = Script::on(listener, vec![answer("200 OK", &[], ENVELOPE)]);
    let answer = calls.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(answer.body.output, "built");
    assert_eq!(second.seen()[0].header("idempotency-key"), Some(key.as_str()));
}

#[tokio::test]
async fn two_calls_have_two_keys() {
    let server = Script::start(vec![answer("200 OK", &[], ENVELOPE)]).await;
    let client = server.client();
    for _ in 0..2 {
        client.open(&OpenResident { agent: "mock".to_owned(), ..OpenResident::default() }).await.unwrap();
    }
    let seen = server.seen();
    assert_ne!(seen[0].header("idempotency-key").unwrap(), seen[1].header("idempotency-key").unwrap());
}

#[tokio::test]
async fn the_servers_retry_after_is_waited_for() {
    let busy = fault("503 Service Unavailable", "unavailable", &["retry-after: 1"]);
    let server = Script::start(vec![busy, answer("200 OK", &[], ENVELOPE)]).await;
    let began = Instant::now();
    server.client().send("run_1", &prompt("x")).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_unknown_outcome_and_a_proxys_own_page_are_repeated() {
    let page = answer("502 Bad Gateway", &[], "<html>");
    let late = fault("504 Gateway Timeout", "deadline_exceeded", &[]);
    let server = Script::start(vec![page, late, answer("200 OK", &[], ENVELOPE)]).await;
    server.client().send("run_1", &prompt("x")).await.unwrap();
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_refusal_is_not_repeated_and_carries_what_the_server_said() {
    for (status, code) in [("404 Not Found", FaultCode::NotFound), ("429 Too Many Requests", FaultCode::QueueFull)] {
        let trace = "traceresponse: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let server = Script::start(vec![fault(status, code.as_str(), &[trace, "retry-after: 7"])]).await;
        let error = server.client().send("run_1", &prompt("x")).await.unwrap_err();
        assert!(error.is(code), "{error}");
        let api = error.api().unwrap();
        assert_eq!(api.trace_id.as_deref(), Some("0af7651916cd43dd8448eb211c80319c"));
        assert_eq!(api.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(api.key.as_deref(), server.seen()[0].header("idempotency-key"));
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_server_that_stays_away_is_unreachable_and_one_that_stays_busy_keeps_its_code() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let error = crate::support::client(address).list_runs(&hearth_client::ListRuns::default()).await.unwrap_err();
    let Error::Unreachable(away) = error else { panic!("{error}") };
    assert!(away.attempts > 3 && away.cause.contains("refused"), "{away}");

    let server = Script::start(vec![fault("503 Service Unavailable", "draining", &[])]).await;
    let error = server.client().list_replicas(&Page::default()).await.unwrap_err();
    assert!(error.is(FaultCode::Draining), "{error}");
}

#[tokio::test]
async fn an_answer_outside_the_contract_is_told_apart_from_a_fault() {
    for body in ["not json", r#"{"run_id":1}"#] {
        let server = Script::start(vec![answer("200 OK", &[], body)]).await;
        let error = server.client().send("run_1", &prompt("x")).await.unwrap_err();
        assert!(matches!(error, Error::Protocol(_)), "{error}");
    }
    let server = Script::start(vec![answer("404 Not Found", &[], "nginx")]).await;
    assert!(matches!(server.client().run("run_1").await.unwrap_err(), Error::Protocol(_)));
}

#[tokio::test]
async fn paths_queries_and_bodies_are_those_of_the_contract() {
    let server = Script::start(vec![answer("200 OK", &[], ENVELOPE)]).await;
    let client = server.client();
    let poll = Poll { timeout_ms: Some(50), turn_id: Some("turn_1".to_owned()) };
    assert_eq!(client.poll("run_1", &poll).await.unwrap().body.state, RunState::AwaitingInput);
    client.definition(hearth_client::Definitions::Agents, "dev/exec").await.unwrap();
    let request = CreateRun { agent: "mock".to_owned(), prompt: "hi".to_owned(), ..CreateRun::default() };
    client.create_run(&request).await.unwrap_err();
    let seen = server.seen();
    assert_eq!(seen[0].line, "GET /v1/_resident/run_1?timeout_ms=50&turn_id=turn_1");
    assert_eq!(seen[1].line, "GET /v1/agents/dev%2Fexec");
    assert_eq!((seen[2].line.as_str(), seen[2].body.as_str()), ("POST /v1/runs", r#"{"agent":"mock","prompt":"hi"}"#));
}

#[test]
fn a_url_that_cannot_be_used_is_refused_at_once() {
    for url in ["", "127.0.0.1:7420", "https://example.org", "ftp://x"] {
        assert!(matches!(Client::new(Options::new(url, None)), Err(Error::Protocol(_))), "{url}");
    }
}
