//! Replay: a new session with the conversation of another one.

use hearth_tests::{Api, Options, Server, mock};
use serde_json::{Value, json};

/// What was said, without whose run and when.
async fn said(api: &Api, session: &str) -> Vec<(String, Value)> {
    let page = api.get(&format!("/v1/sessions/{session}/transcript?limit=500")).await.ok();
    let messages = page["messages"].as_array().unwrap();
    messages.iter().map(|said| (said["role"].as_str().unwrap().to_owned(), said["content"].clone())).collect()
}

async fn session_of(api: &Api, run: &str) -> String {
    api.get_run(run).await["session_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_replay_carries_the_conversation_and_leaves_the_source_as_it_is() {
    let mut server = Server::start().await;
    let api = server.api();
    let source_run = api.open("mock", "one").await;
    api.send(&source_run, "two").await;
    let source = session_of(&api, &source_run).await;
    let before = said(&api, &source).await;
    let replay = format!("/v1/sessions/{source}/replay");
    let answer = api.post(&replay, json!({ "agent": "dev/exec" })).await.ok();
    assert_eq!((&answer["events_copied"], &answer["compressed"]), (&json!(4), &json!(false)), "{answer}");
    let session = answer["session_id"].as_str().unwrap().to_owned();
    assert_ne!(session, source);
    assert_eq!(said(&api, &session).await, before);

    // What the source says from now on is its own.
    api.send(&source_run, "three").await;
    server.crash().await;
    assert_eq!(said(&api, &session).await, before);
    let prompt = json!({ "commands": ["true"] }).to_string();
    let message = format!("/v1/sessions/{session}/messages");
    let first = api.post(&message, json!({ "prompt": prompt })).await.ok();
    let run = api.get_run(first["run_id"].as_str().unwrap()).await;
    assert_eq!((&run["agent"], &run["session_id"]), (&json!("dev/exec"), &json!(session)), "{run}");
    let after = said(&api, &session).await;
    assert_eq!(after[..before.len()], before[..]);
    assert!(after.len() > before.len() && after.contains(&("user".to_owned(), json!(prompt))), "{after:?}");
    assert_eq!(said(&api, &source).await.len(), before.len() + 2);

    // A replay of a replay, for another agent; and one of it before anybody has gone on with it.
    let again = api.post(&format!("/v1/sessions/{session}/replay"), json!({ "agent": "mock" })).await.ok();
    let last = again["session_id"].as_str().unwrap();
    let twice = api.post(&format!("/v1/sessions/{last}/replay"), json!({ "agent": "mock" })).await.ok();
    for id in [last, twice["session_id"].as_str().unwrap()] {
        assert_eq!(said(&api, id).await, after);
    }
    assert_eq!(twice["events_copied"].as_u64().unwrap(), after.len() as u64);
    server.stop().await;
}

#[tokio::test]
async fn a_compressed_replay_has_what_was_asked_and_answered_and_cuts_long_texts() {
    let server = Server::start().await;
    let api = server.api();
    let long = format!("begin{}end", "x".repeat(20_000));
    let run = api.open("mock", &long).await;
    let list = json!({ "op": "list" });
    api.send(&run, &mock(json!({ "tool": { "name": "Agent", "arguments": list } }))).await;
    let source = session_of(&api, &run).await;
    assert!(said(&api, &source).await.iter().any(|(role, _)| role == "tool"));
    let body = json!({ "agent": "mock", "compress": true });
    let answer = api.post(&format!("/v1/sessions/{source}/replay"), body).await.ok();
    assert_eq!((&answer["events_copied"], &answer["compressed"]), (&json!(4), &json!(true)), "{answer}");
    let session = answer["session_id"].as_str().unwrap();
    let carried = said(&api, session).await;
    let roles: Vec<&str> = carried.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    let cut = carried[0].1.as_str().unwrap();
    assert!(cut.len() < 4_096 && cut.starts_with("begin") && cut.ends_with("end"), "{} bytes", cut.len());
    assert!(cut.contains("bytes left out"), "what is left out is said");
    server.stop().await;
}

#[tokio::test]
async fn a_replay_is_repeated_by_its_key_and_refuses_what_it_does_not_take() {
    const ANN: &str = "token-of-ann-0123456789abcdef";
    const BOB: &str = "token-of-bob-0123456789abcdef";
    let options = Options::default().token(ANN, "acme", "ann", "member").token(BOB, "acme", "bob", "member");
    let server = options.start().await;
    let (admin, ann, bob) = (server.api(), server.api().with_token(ANN), server.api().with_token(BOB));
    let run = ann.open("mock", "one").await;
    let source = session_of(&ann, &run).await;
    let path = format!("/v1/sessions/{source}/replay");
    let first = ann.post_with_key(&path, "k", json!({ "agent": "mock" })).await;
    let again = ann.post_with_key(&path, "k", json!({ "agent": "mock", "compress": false })).await;
    again.refused(409, "conflict");
    let again = ann.post_with_key(&path, "k", json!({ "agent": "mock" })).await;
    assert_eq!(again.header("idempotent-replay"), Some("true"));
    let session = first.ok()["session_id"].clone();
    assert_eq!(again.ok()["session_id"], session);

    for (body, field) in [
        (json!({}), "agent"),
        (json!({ "agent": "mock", "prompt": "x" }), "prompt"),
        (json!({ "agent": "mock", "compress": "yes" }), "compress"),
        (json!({ "agent": "a b" }), "agent"),
    ] {
        let refused = ann.post(&path, body).await;
        assert_eq!(refused.body["error"]["details"]["field"], field, "{}", refused.text);
        refused.refused(400, "invalid_argument");
    }
    ann.post(&path, json!({ "agent": "absent" })).await.refused(404, "not_found");
    ann.post("/v1/sessions/sess_unknown/replay", json!({ "agent": "mock" })).await.refused(404, "not_found");

    // The new session is its source's subject's, before anybody has gone on with it and after.
    let message = format!("/v1/sessions/{}/messages", session.as_str().unwrap());
    let transcript = format!("/v1/sessions/{}/transcript", session.as_str().unwrap());
    bob.post(&path, json!({ "agent": "mock" })).await.refused(403, "permission_denied");
    bob.post(&message, json!({ "prompt": "mine" })).await.refused(403, "permission_denied");
    bob.get(&transcript).await.refused(403, "permission_denied");
    let joins = json!({ "agent": "mock", "prompt": "mine", "session_id": session });
    bob.post("/v1/runs", joins).await.refused(403, "permission_denied");
    let by_admin = admin.post(&path, json!({ "agent": "mock" })).await.ok();
    let of_admin = format!("/v1/sessions/{}/messages", by_admin["session_id"].as_str().unwrap());
    let run = admin.post(&of_admin, json!({ "prompt": "of an admin" })).await.ok();
    let row = ann.get_run(run["run_id"].as_str().unwrap()).await;
    assert_eq!(row["tenant_id"], "acme", "{row}");
    assert_eq!(ann.post(&message, json!({ "prompt": "mine" })).await.ok()["output"], "mine");
    server.stop().await;
}
