//! Residents: open, send, poll, list, and the queue of prompts.

use futures::future::join_all;
use hearth_tests::{Server, eventually, mock};
use serde_json::{Value, json};

#[tokio::test]
async fn a_resident_is_opened_sent_to_polled_listed_and_closed() {
    let server = Server::start().await;
    let api = server.api();
    let opened = api.post("/v1/_resident", json!({ "agent": "mock", "prompt": "one" })).await.ok();
    assert_eq!((opened["state"].as_str(), opened["output"].as_str()), (Some("awaiting_input"), Some("one")));
    assert_eq!(opened["run_id"], opened["child_run_id"]);
    let id = opened["child_run_id"].as_str().unwrap();

    let sent = api.send(id, "two").await;
    assert_eq!((sent["outcome"].as_str(), sent["output"].as_str()), (Some("finished"), Some("two")));
    assert_ne!(sent["turn_id"], opened["turn_id"]);
    assert_eq!(api.poll(id).await, sent);

    let listed = api.residents("").await;
    let row = listed.iter().find(|row| row["child_run_id"] == id).expect("the resident is listed");
    for field in [
        "agent",
        "state",
        "parent_run_id",
        "root_run_id",
        "tenant_id",
        "idle_ttl_seconds",
        "last_used_at",
        "opened_at",
        "owner_replica",
        "epoch",
        "turns",
        "sandbox_session_id",
    ] {
        assert!(row.get(field).is_some(), "no `{field}` in {row}");
    }
    assert_eq!((row["turns"].as_u64(), row["idle_ttl_seconds"].as_u64()), (Some(2), Some(1800)));
    let run = api.get_run(id).await;
    assert_eq!((run["resident"].as_bool(), &run["owner_replica"]), (Some(true), &row["owner_replica"]));

    let closed = api.close(id).await;
    assert_eq!((closed["state"].as_str(), closed["child_run_id"].as_str()), (Some("closed"), Some(id)));
    assert_eq!(closed["closed_descendants"], 0);
    assert!(api.residents("").await.is_empty());
    let last = api.poll(id).await;
    assert_eq!((last["state"].as_str(), last["output"].as_str()), (Some("closed"), Some("two")));
    api.post(&format!("/v1/_resident/{id}/send"), json!({ "prompt": "three" })).await.refused(409, "run_ended");
    api.post(&format!("/v1/runs/{id}/input"), json!({ "text": "three" })).await.refused(409, "run_ended");
    server.stop().await;
}

#[tokio::test]
async fn a_time_out_returns_the_output_so_far_and_the_turn_goes_on() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let prompt = mock(json!({ "latency_ms": 1_500, "chunks": 3, "output": "aabbcc" }));
    let turn = api.start(&id, &prompt).await;
    let partial = eventually("a part of the output is there", async || {
        let envelope = api.poll(&id).await;
        (envelope["output"] != "").then_some(envelope)
    })
    .await;
    assert_eq!((partial["state"].as_str(), partial["outcome"].is_null()), (Some("running"), true), "{partial}");
    assert!("aabb".starts_with(partial["output"].as_str().unwrap()), "{partial}");
    assert_eq!(partial["turn_id"], turn);
    assert_eq!(api.end_of(&id, &turn).await["output"], "aabbcc");
    server.stop().await;
}

#[tokio::test]
async fn a_send_that_times_out_tells_of_a_running_turn() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let prompt = mock(json!({ "latency_ms": 1_200, "chunks": 4, "output": "wxyz" }));
    let body = json!({ "prompt": prompt, "timeout_ms": 800 });
    let envelope = api.post(&format!("/v1/_resident/{id}/send"), body).await.ok();
    assert_eq!(envelope["state"], "running");
    let output = envelope["output"].as_str().unwrap();
    assert!(!output.is_empty() && "wxyz".starts_with(output), "{envelope}");
    server.stop().await;
}

#[tokio::test]
async fn a_poll_without_time_is_a_snapshot_and_with_time_waits_for_the_end() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    api.start(&id, &mock(json!({ "latency_ms": 600, "output": "slow" }))).await;
    assert_eq!(api.poll(&id).await["state"], "running");
    let waited = api.get(&format!("/v1/_resident/{id}?timeout_ms=20000")).await.ok();
    assert_eq!((waited["state"].as_str(), waited["output"].as_str()), (Some("awaiting_input"), Some("slow")));
    server.stop().await;
}

#[tokio::test]
async fn queued_sends_run_in_order_and_each_returns_its_own_output() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let running = api.start(&id, &mock(json!({ "latency_ms": 800, "output": "first" }))).await;
    let mut turns = Vec::new();
    for number in 0..16 {
        turns.push(api.start(&id, &format!("queued {number}")).await);
    }
    let refused = api.post(&format!("/v1/_resident/{id}/send"), json!({ "prompt": "one too many" })).await;
    assert!(refused.header("retry-after").is_some());
    let error = refused.refused(429, "queue_full");
    assert_eq!(error["retryable"], true);
    assert!(error["retry_after_ms"].is_u64(), "{error}");
    assert_eq!(api.end_of(&id, &running).await["output"], "first");
    for (number, turn) in turns.iter().enumerate() {
        assert_eq!(api.end_of(&id, turn).await["output"], format!("queued {number}"));
    }
    let started: Vec<Value> = join_all(turns.iter().map(|turn| api.poll_turn(&id, turn))).await;
    assert!(started.iter().all(|envelope| envelope["outcome"] == "finished"));
    assert_eq!(api.send(&id, "usable").await["output"], "usable");
    server.stop().await;
}

#[tokio::test]
async fn the_envelope_of_a_turn_stays_when_later_turns_run() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let first = api.send(&id, "first").await;
    let slow = api.start(&id, &mock(json!({ "latency_ms": 60_000 }))).await;
    let again = api.poll_turn(&id, first["turn_id"].as_str().unwrap()).await;
    assert_eq!(again, first, "a later turn runs, and this one's envelope is as it was");
    assert_eq!(api.poll(&id).await["turn_id"], slow);
    api.post(&format!("/v1/_resident/{id}/cancel"), json!({})).await.ok();
    server.stop().await;
}

#[tokio::test]
async fn a_poll_for_an_unknown_turn_is_not_found() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    api.get(&format!("/v1/_resident/{id}?turn_id=turn_unknown")).await.refused(404, "not_found");
    server.stop().await;
}

#[tokio::test]
async fn t27_two_sends_at_once_both_end_with_their_own_output() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    for round in 0..20 {
        let (a, b) = (format!("a{round}"), format!("b{round}"));
        let (first, second) = tokio::join!(api.send(&id, &a), api.send(&id, &b));
        assert_eq!((first["output"].as_str(), second["output"].as_str()), (Some(a.as_str()), Some(b.as_str())));
        assert_ne!(first["turn_id"], second["turn_id"]);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_hundred_residents_answer_at_once() {
    let server = Server::start().await;
    let api = server.api();
    let ids = join_all((0..100).map(|_| api.open("mock", "one"))).await;
    let outputs = join_all(ids.iter().map(|id| api.send(id, id))).await;
    assert!(outputs.iter().zip(&ids).all(|(envelope, id)| envelope["output"] == id.as_str()));
    server.stop().await;
}
