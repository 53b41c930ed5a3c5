//! `/v1/runs`: create, wait, end.

use hearth_tests::{Server, eventually, mock};
use serde_json::json;

#[tokio::test]
async fn a_run_answers_with_its_envelope_and_is_final() {
    let server = Server::start().await;
    let api = server.api();
    let run = api.run("mock", "hello").await;
    assert_eq!(run["state"], "completed");
    assert_eq!(run["outcome"], "finished");
    assert_eq!(run["output"], "hello");
    assert_eq!(run["truncated"], false);
    assert_eq!(run["root_run_id"], run["run_id"]);
    for (field, prefix) in [("run_id", "run_"), ("session_id", "sess_"), ("turn_id", "turn_")] {
        assert!(run[field].as_str().is_some_and(|id| id.starts_with(prefix)), "{field} of {run}");
    }
    assert!(run["usage"].is_object());
    for absent in ["error", "blocker", "child_run_id"] {
        assert!(run.get(absent).is_none_or(serde_json::Value::is_null), "{absent} of {run}");
    }
    let shown = api.get_run(run["run_id"].as_str().unwrap()).await;
    assert_eq!(shown["state"], "completed");
    server.stop().await;
}

#[tokio::test]
async fn a_run_shows_every_field_of_the_contract() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.run("mock", "hello").await["run_id"].as_str().unwrap().to_owned();
    let run = api.get_run(&id).await;
    for field in [
        "run_id",
        "session_id",
        "root_run_id",
        "parent_run_id",
        "agent",
        "tenant_id",
        "state",
        "last_turn",
        "resident",
        "resident_state",
        "owner_replica",
        "epoch",
        "created_at",
        "last_used_at",
        "usage",
        "trace_id",
    ] {
        assert!(run.get(field).is_some(), "no `{field}` in {run}");
    }
    assert_eq!(run["tenant_id"], "default");
    assert_eq!(run["agent"], "mock");
    assert_eq!(run["resident"], false);
    let turn = &run["last_turn"];
    assert_eq!((turn["outcome"].as_str(), turn["output"].as_str()), (Some("finished"), Some("hello")));
    for time in [&turn["started_at"], &turn["ended_at"], &run["created_at"], &run["last_used_at"]] {
        assert!(is_millisecond_utc(time.as_str().unwrap()), "{time}");
    }
    server.stop().await;
}

/// RFC 3339 in UTC with milliseconds: `2026-01-02T03:04:05.678Z`.
fn is_millisecond_utc(text: &str) -> bool {
    let form = "0000-00-00T00:00:00.000Z";
    let same = |(a, b): (char, char)| if b == '0' { a.is_ascii_digit() } else { a == b };
    text.len() == form.len() && text.chars().zip(form.chars()).all(same)
}

#[tokio::test]
async fn an_interactive_run_parks_and_takes_input() {
    let server = Server::start().await;
    let api = server.api();
    let body = json!({ "agent": "mock", "prompt": "one", "interactive": true });
    let run = api.post("/v1/runs", body).await.ok();
    assert_eq!(run["state"], "awaiting_input");
    let id = run["run_id"].as_str().unwrap();
    let input = api.post(&format!("/v1/runs/{id}/input"), json!({ "text": "two" })).await.with_status(202);
    assert_eq!(input["run_id"], id);
    assert_eq!(input["delivered"], "now");
    let end = api.end_of(id, input["turn_id"].as_str().unwrap()).await;
    assert_eq!((end["state"].as_str(), end["output"].as_str()), (Some("awaiting_input"), Some("two")));
    server.stop().await;
}

#[tokio::test]
async fn an_input_to_a_running_turn_is_queued() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let running = api.start(&id, &mock(json!({ "latency_ms": 700, "output": "slow" }))).await;
    let input = api.post(&format!("/v1/runs/{id}/input"), json!({ "text": "next" })).await.with_status(202);
    assert_eq!(input["delivered"], "queued");
    assert_ne!(input["turn_id"], running);
    assert_eq!(api.end_of(&id, &running).await["output"], "slow");
    assert_eq!(api.end_of(&id, input["turn_id"].as_str().unwrap()).await["output"], "next");
    server.stop().await;
}

#[tokio::test]
async fn a_failing_turn_fails_a_run_that_is_not_interactive_and_parks_one_that_is() {
    let server = Server::start().await;
    let api = server.api();
    let prompt = mock(json!({ "fail": "no luck today" }));
    let run = api.run("mock", &prompt).await;
    assert_eq!((run["state"].as_str(), run["outcome"].as_str()), (Some("failed"), Some("failed")));
    assert!(run["error"]["message"].as_str().unwrap().contains("no luck today"), "{run}");
    let shown = api.get_run(run["run_id"].as_str().unwrap()).await;
    assert_eq!(shown["state"], "failed");
    assert!(shown["last_turn"]["error"]["message"].as_str().unwrap().contains("no luck today"));

    let id = api.open("mock", "one").await;
    let failed = api.send(&id, &prompt).await;
    assert_eq!((failed["state"].as_str(), failed["outcome"].as_str()), (Some("awaiting_input"), Some("failed")));
    assert!(failed["error"]["message"].as_str().unwrap().contains("no luck today"));
    assert_eq!(api.send(&id, "again").await["output"], "again");
    server.stop().await;
}

#[tokio::test]
async fn a_wait_that_passes_first_answers_202_and_the_run_goes_on() {
    let server = Server::start().await;
    let api = server.api();
    let prompt = mock(json!({ "latency_ms": 600, "output": "late" }));
    let body = json!({ "agent": "mock", "prompt": prompt, "wait_ms": 50 });
    let run = api.post("/v1/runs", body).await.with_status(202);
    assert_eq!((run["state"].as_str(), run["outcome"].is_null()), (Some("running"), true));
    let id = run["run_id"].as_str().unwrap();
    let end = api.end_of(id, run["turn_id"].as_str().unwrap()).await;
    assert_eq!((end["state"].as_str(), end["output"].as_str()), (Some("completed"), Some("late")));
    server.stop().await;
}

#[tokio::test]
async fn a_wait_of_zero_waits_for_the_end() {
    let server = Server::start().await;
    let prompt = mock(json!({ "latency_ms": 300, "output": "late" }));
    let body = json!({ "agent": "mock", "prompt": prompt, "wait_ms": 0 });
    let run = server.api().post("/v1/runs", body).await.ok();
    assert_eq!((run["state"].as_str(), run["output"].as_str()), (Some("completed"), Some("late")));
    server.stop().await;
}

#[tokio::test]
async fn segments_take_the_place_of_a_prompt() {
    let server = Server::start().await;
    let api = server.api();
    let run = api.post("/v1/runs", json!({ "agent": "mock", "segments": ["one", "two"] })).await.ok();
    let output = run["output"].as_str().unwrap();
    assert!(output.starts_with("one") && output.ends_with("two"), "{output:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_run_that_exceeds_its_time_fails() {
    let server = Server::start().await;
    let api = server.api();
    let prompt = mock(json!({ "latency_ms": 60_000 }));
    let body = json!({ "agent": "mock", "prompt": prompt, "run_timeout_seconds": 1 });
    let run = api.post("/v1/runs", body).await.ok();
    assert_eq!((run["state"].as_str(), run["outcome"].as_str()), (Some("failed"), Some("failed")), "{run}");
    assert!(run["error"]["code"].is_string(), "{run}");
    server.stop().await;
}

#[tokio::test]
async fn a_large_output_arrives_whole() {
    let server = Server::start().await;
    let api = server.api();
    let run = api.run("mock", &mock(json!({ "output_bytes": 3_000_000 }))).await;
    assert_eq!((run["output"].as_str().unwrap().len(), &run["truncated"]), (3_000_000, &json!(false)));
    server.stop().await;
}

#[tokio::test]
async fn t33_a_prompt_of_one_mebibyte_is_delivered_to_a_child() {
    let server = Server::start().await;
    let api = server.api();
    let parent = api.open("mock", "parent").await;
    let child = api.open_below(&parent, "mock", "child").await;
    let prompt = "x".repeat(1024 * 1024);
    assert!(api.send(&child, &prompt).await["output"] == prompt);
    server.stop().await;
}

#[tokio::test]
async fn t39_a_client_that_goes_away_leaves_the_turn_running() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let prompt = mock(json!({ "latency_ms": 800, "output": "done without you" }));
    let send = api.request("POST", &format!("/v1/_resident/{id}/send")).json(&json!({ "prompt": prompt }));
    let blocked = tokio::time::timeout(std::time::Duration::from_millis(200), send.send()).await;
    assert!(blocked.is_err(), "the call should still block");
    let end = eventually("the turn of the client that went away has ended", async || {
        let envelope = api.poll(&id).await;
        (envelope["state"] != "running").then_some(envelope)
    })
    .await;
    assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some("done without you")));
    assert_eq!(api.send(&id, "next").await["output"], "next");
    server.stop().await;
}

#[tokio::test]
async fn t40_a_disconnect_that_was_to_cancel_ends_the_turn_cancelled() {
    let server = Server::start().await;
    let api = server.api();
    for interactive in [true, false] {
        let prompt = mock(json!({ "latency_ms": 60_000 }));
        let metadata = json!({ "mark": interactive });
        let body = json!({ "agent": "mock", "prompt": prompt, "interactive": interactive, "cancel_on_disconnect": true,
                           "metadata": metadata });
        let call = api.request("POST", "/v1/runs").json(&body);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(300), call.send()).await.is_err());
        let run = eventually("the turn has ended", async || {
            let page = api.get("/v1/runs?limit=1").await.ok();
            let run = page["runs"][0].clone();
            (!run["last_turn"].is_null()).then_some(run)
        })
        .await;
        assert_eq!(run["last_turn"]["outcome"], "cancelled", "{run}");
        assert_ne!(run["state"], "failed", "{run}");
        if interactive {
            assert_eq!(run["state"], "awaiting_input", "{run}");
        }
    }
    server.stop().await;
}
