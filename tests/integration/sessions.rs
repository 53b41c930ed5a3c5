//! Sessions: one conversation, one live run.

use hearth_tests::{Server, mock};
use serde_json::{Value, json};

#[tokio::test]
async fn a_message_to_a_session_whose_run_ended_goes_on_in_a_new_run() {
    let server = Server::start().await;
    let api = server.api();
    let first = api.run("mock", "one").await;
    let session = first["session_id"].as_str().unwrap();
    let path = format!("/v1/sessions/{session}/messages");
    let second = api.post(&path, json!({ "prompt": "two" })).await.ok();
    assert_eq!((second["session_id"].as_str(), second["output"].as_str()), (Some(session), Some("two")));
    assert_ne!(second["run_id"], first["run_id"]);
    let transcript = api.get(&format!("/v1/sessions/{session}/transcript")).await.ok();
    assert_eq!(transcript["session_id"], session);
    let messages = transcript["messages"].as_array().unwrap();
    let contents: Vec<String> = messages.iter().map(|message| message["content"].to_string()).collect();
    assert!(contents[0].contains("one") && contents.last().unwrap().contains("two"), "{contents:?}");
    for message in messages {
        assert!(message["role"].is_string() && message["run_id"].is_string() && message["at"].is_string(), "{message}");
    }
    let runs: Vec<&Value> = messages.iter().map(|message| &message["run_id"]).collect();
    assert!(runs.contains(&&first["run_id"]) && runs.contains(&&second["run_id"]));
    server.stop().await;
}

#[tokio::test]
async fn a_message_to_a_session_with_a_live_run_is_an_input_to_it() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let session = api.get_run(&id).await["session_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{session}/messages");
    let reply = api.post(&path, json!({ "prompt": "two" })).await.ok();
    assert_eq!((reply["run_id"].as_str(), reply["output"].as_str()), (Some(id.as_str()), Some("two")));

    let running = api.start(&id, &mock(json!({ "latency_ms": 600, "output": "slow" }))).await;
    let queued = api.post(&path, json!({ "prompt": "three" })).await.ok();
    assert_eq!((queued["run_id"].as_str(), queued["output"].as_str()), (Some(id.as_str()), Some("three")));
    assert_eq!(api.poll_turn(&id, &running).await["output"], "slow");
    server.stop().await;
}

#[tokio::test]
async fn a_session_has_one_live_run() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let session = api.get_run(&id).await["session_id"].clone();
    let body = json!({ "agent": "mock", "prompt": "two", "session_id": session });
    api.post("/v1/runs", body.clone()).await.refused(409, "conflict");
    api.close(&id).await;
    assert_eq!(api.post("/v1/runs", body).await.ok()["session_id"], session);
    server.stop().await;
}

#[tokio::test]
async fn a_transcript_is_paged() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "turn 0").await;
    for number in 1..10 {
        api.send(&id, &format!("turn {number}")).await;
    }
    let session = api.get_run(&id).await["session_id"].as_str().unwrap().to_owned();
    let base = format!("/v1/sessions/{session}/transcript");
    let whole = api.get(&format!("{base}?limit=500")).await.ok();
    assert!(whole["next_cursor"].is_null());
    let mut pieces = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = api.get(&format!("{base}?limit=3{cursor}")).await.ok();
        let messages = page["messages"].as_array().unwrap();
        assert!(messages.len() <= 3);
        pieces.extend(messages.clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(&pieces, whole["messages"].as_array().unwrap());
    assert_eq!(pieces.len(), 20, "a prompt and an answer per turn");
    server.stop().await;
}

#[tokio::test]
async fn a_transcript_survives_a_crash() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    api.send(&id, "two").await;
    let session = api.get_run(&id).await["session_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{session}/transcript");
    let before = api.get(&path).await.ok();
    server.crash().await;
    assert_eq!(api.get(&path).await.ok(), before);
    server.stop().await;
}

#[tokio::test]
async fn an_unknown_session_has_no_transcript() {
    let server = Server::start().await;
    let api = server.api();
    api.get("/v1/sessions/sess_unknown/transcript").await.refused(404, "not_found");
    server.stop().await;
}
