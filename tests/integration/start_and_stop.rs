//! Start-up, settings and the graceful stop.

use hearth_tests::{Options, Server, mock};
use serde_json::json;

#[tokio::test]
async fn a_stop_exits_0_hands_the_running_turn_over_and_it_goes_on_after_the_start() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let turn = api.start(&id, &mock(json!({ "latency_ms": 60_000 }))).await;
    let status = server.terminate().await;
    assert_eq!(status.code(), Some(0), "{}", server.log());
    server.restart().await;
    assert_eq!(api.poll_turn(&id, &turn).await["state"], "running");
    let stopped = api.post(&format!("/v1/_resident/{id}/cancel"), json!({})).await.ok();
    assert_eq!((stopped["stopped"].as_bool(), stopped["turn_id"].as_str()), (Some(true), Some(turn.as_str())));
    assert_eq!(api.send(&id, "next").await["output"], "next");
    server.stop().await;
}

#[tokio::test]
async fn callers_blocked_during_a_stop_are_told_to_repeat_and_get_the_same_turn() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let path = format!("/v1/_resident/{id}/send");
    let body = json!({ "prompt": mock(json!({ "latency_ms": 2_500, "output": "kept" })) });
    let request = api.request("POST", &path).header("idempotency-key", "k").json(&body);
    let (blocked, status) = tokio::join!(api.try_finish(request), async {
        hearth_tests::eventually("the turn runs", async || (api.poll(&id).await["state"] == "running").then_some(()))
            .await;
        server.terminate().await
    });
    assert_eq!(status.code(), Some(0));
    if let Ok(reply) = blocked {
        assert!(reply.status == 200 || reply.body["error"]["retryable"] == true, "{} {}", reply.status, reply.text);
    }
    server.restart().await;
    let end = api.post_with_key(&path, "k", body).await.ok();
    assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some("kept")));
    assert_eq!(api.residents("").await[0]["turns"], 2);
    server.stop().await;
}

#[tokio::test]
async fn everything_is_there_after_a_clean_restart() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let sent = api.send(&id, "two").await;
    let before = api.get("/v1/runs").await.ok()["runs"].clone();
    server.terminate().await;
    server.restart().await;
    assert_eq!(api.poll(&id).await, sent);
    let after = api.get("/v1/runs").await.ok()["runs"].clone();
    assert_eq!(after[0]["last_turn"], before[0]["last_turn"]);
    assert_eq!(api.send(&id, "three").await["output"], "three");
    server.stop().await;
}

#[tokio::test]
async fn a_bad_setting_stops_the_start_with_its_name_value_and_what_is_allowed() {
    for (name, value) in [
        ("HEARTH_MAX_INTERACTIVE_CHILDREN", "many"),
        ("HEARTH_INTERACTIVE_CHILD_IDLE_TTL_MS", "-5"),
        ("HEARTH_PASSIVATE_AFTER_MS", "soon"),
        ("SANDBOX_SESSION_IDLE_TTL", "15 parsecs"),
    ] {
        let (status, log) = Options::default().variable(name, value).start_in_vain().await;
        assert!(!status.success(), "{name}={value} was taken");
        assert!(log.contains(name) && log.contains(value), "{name} and {value:?} are not in:\n{log}");
    }
}

#[tokio::test]
async fn an_unknown_setting_stops_the_start() {
    let (status, log) = Options::default().variable("HEARTH_COLOUR", "red").start_in_vain().await;
    assert!(!status.success() && log.contains("HEARTH_COLOUR"), "{log}");
}

#[tokio::test]
async fn a_passivated_resident_answers_as_if_nothing_had_been() {
    let server = Options::default().variable("HEARTH_PASSIVATE_AFTER_MS", "200").start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    hearth_tests::eventually("it is passivated", async || {
        (api.get_run(&id).await["resident_state"] == "passivated").then_some(())
    })
    .await;
    assert_eq!(api.poll(&id).await["output"], "one");
    assert_eq!(api.send(&id, "two").await["output"], "two");
    server.stop().await;
}
