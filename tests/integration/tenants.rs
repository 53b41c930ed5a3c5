//! Nobody sees across tenants, and roles hold within one.

use hearth_tests::{Api, Options, Server, mock};
use serde_json::{Value, json};

const ANN: &str = "token-of-ann-0123456789abcdef";
const BOB: &str = "token-of-bob-0123456789abcdef";
const OPS: &str = "token-of-ops-0123456789abcdef";
const EVE: &str = "token-of-eve-0123456789abcdef";

async fn server() -> Server {
    Options::default()
        .token(ANN, "acme", "ann", "member")
        .token(BOB, "acme", "bob", "member")
        .token(OPS, "acme", "ops", "operator")
        .token(EVE, "other", "eve", "operator")
        .start()
        .await
}

/// Every verb that takes a run's id, with a body that is well-formed.
pub fn verbs(id: &str) -> Vec<(&'static str, String, Option<Value>)> {
    vec![
        ("GET", format!("/v1/runs/{id}"), None),
        ("GET", format!("/v1/runs/{id}/stream"), None),
        ("GET", format!("/v1/runs/{id}/stream?from_seq=1"), None),
        ("POST", format!("/v1/runs/{id}/input"), Some(json!({ "text": "x" }))),
        ("POST", format!("/v1/runs/{id}/cancel"), Some(json!({}))),
        ("POST", format!("/v1/runs/{id}/close"), Some(json!({}))),
        ("PUT", format!("/v1/runs/{id}/sandbox"), Some(json!({ "scope": "own" }))),
        ("DELETE", format!("/v1/runs/{id}/sandbox"), None),
        ("GET", format!("/v1/_resident/{id}"), None),
        ("GET", format!("/v1/_resident/{id}?timeout_ms=5000"), None),
        ("POST", format!("/v1/_resident/{id}/send"), Some(json!({ "prompt": "x" }))),
        ("POST", format!("/v1/_resident/{id}/cancel"), Some(json!({}))),
        ("POST", format!("/v1/_resident/{id}/close"), Some(json!({}))),
        ("POST", "/v1/_resident".to_owned(), Some(json!({ "agent": "mock", "prompt": "x", "parent_run_id": id }))),
    ]
}

pub async fn call(api: &Api, (method, path, body): &(&'static str, String, Option<Value>)) -> hearth_tests::Reply {
    let request = api.request(method, path);
    api.finish(match body {
        Some(body) => request.json(body),
        None => request,
    })
    .await
}

#[tokio::test]
async fn t37_anothers_id_answers_exactly_as_an_unknown_one_on_every_verb() {
    let server = server().await;
    let (ann, eve) = (server.api().with_token(ANN), server.api().with_token(EVE));
    let foreign = ann.open("mock", "secret").await;
    let session = ann.get_run(&foreign).await["session_id"].as_str().unwrap().to_owned();
    let running = ann.start(&foreign, &mock(json!({ "latency_ms": 3_000, "output": "untouched" }))).await;
    for (of_foreign, of_unknown) in verbs(&foreign).iter().zip(&verbs("run_unknown")) {
        let (foreign, unknown) = (call(&eve, of_foreign).await, call(&eve, of_unknown).await);
        assert_eq!((foreign.status, unknown.status), (404, 404), "{of_foreign:?}: {} {}", foreign.text, unknown.text);
        assert_eq!(foreign.text.as_bytes(), unknown.text.as_bytes(), "{of_foreign:?}");
        assert!(!foreign.text.contains("run_"), "the body names an id: {}", foreign.text);
        foreign.refused(404, "not_found");
    }
    let transcripts = [&session, "sess_unknown"].map(|id| format!("/v1/sessions/{id}/transcript"));
    let (foreign_text, unknown_text) = (eve.get(&transcripts[0]).await, eve.get(&transcripts[1]).await);
    assert_eq!(foreign_text.text, unknown_text.text);
    foreign_text.refused(404, "not_found");
    for (verb, body) in [("messages", json!({ "prompt": "x" })), ("replay", json!({ "agent": "mock" }))] {
        let paths = [&session, "sess_unknown"].map(|id| format!("/v1/sessions/{id}/{verb}"));
        let (foreign_text, unknown_text) =
            (eve.post(&paths[0], body.clone()).await, eve.post(&paths[1], body.clone()).await);
        assert_eq!(foreign_text.text, unknown_text.text, "{verb}");
        foreign_text.refused(404, "not_found");
    }

    let page = eve.get(&format!("/v1/runs?root_run_id={foreign}")).await.ok();
    assert_eq!(page["runs"], json!([]));
    assert!(eve.residents("").await.is_empty());
    let end = ann.end_of(&foreign, &running).await;
    assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some("untouched")));
    server.stop().await;
}

#[tokio::test]
async fn a_session_id_of_another_tenant_is_ones_own_to_use_and_shares_nothing() {
    let server = server().await;
    let (ann, eve) = (server.api().with_token(ANN), server.api().with_token(EVE));
    for (api, word) in [(&ann, "acme's word"), (&eve, "other's word")] {
        let body = json!({ "agent": "mock", "prompt": word, "session_id": "sess_shared_name" });
        assert_eq!(api.post("/v1/runs", body).await.ok()["session_id"], "sess_shared_name");
    }
    let transcript = eve.get("/v1/sessions/sess_shared_name/transcript").await.ok().to_string();
    assert!(transcript.contains("other's word") && !transcript.contains("acme's word"), "{transcript}");
    server.stop().await;
}

#[tokio::test]
async fn a_member_acts_on_its_own_runs_an_operator_on_its_tenants_and_an_admin_on_all() {
    let server = server().await;
    let admin = server.api();
    let [ann, bob, ops] = [ANN, BOB, OPS].map(|token| admin.with_token(token));
    let run = ann.open("mock", "mine").await;
    for verb in verbs(&run) {
        call(&bob, &verb).await.refused(403, "permission_denied");
    }
    assert!(bob.residents("").await.is_empty(), "a member lists its own runs");
    for api in [&ann, &ops, &admin] {
        assert_eq!(api.get_run(&run).await["run_id"], run.as_str());
        assert_eq!(api.send(&run, "hello").await["output"], "hello");
        let listed = api.residents("").await;
        assert!(listed.iter().any(|row| row["child_run_id"] == run.as_str()), "{listed:?}");
    }
    let listed = |query: &'static str| {
        let admin = admin.clone();
        async move { admin.residents(query).await.len() }
    };
    assert_eq!((listed("tenant=acme").await, listed("tenant=other").await), (1, 0));
    assert_eq!(ops.close(&run).await["state"], "closed");
    server.stop().await;
}

#[tokio::test]
async fn without_a_good_token_there_is_nothing() {
    let server = server().await;
    let nobody = server.api().without_token();
    let liar = server.api().with_token("token-of-nobody-0123456789abcdef");
    for path in
        ["/v1/runs", "/v1/_resident", "/v1/agents", "/v1/_replicas", "/v1/runs/run_x", "/metrics", "/v1/nothing"]
    {
        for api in [&nobody, &liar] {
            api.get(path).await.refused(401, "unauthenticated");
        }
    }
    let body = json!({ "agent": "mock", "prompt": "x" });
    nobody.post("/v1/runs", body.clone()).await.refused(401, "unauthenticated");
    for header in ["", "Bearer", "Bearer ", "Basic YTpi", &format!("bearer{ANN}")] {
        let request = nobody.request("POST", "/v1/runs").header("authorization", header).json(&body);
        nobody.finish(request).await.refused(401, "unauthenticated");
    }
    for path in ["/livez", "/readyz", "/healthz", "/openapi.json"] {
        assert_eq!(nobody.get(path).await.status, 200, "{path}");
    }
    assert_eq!(server.api().get("/metrics").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn t37_an_empty_tenant_stops_the_start() {
    let (status, log) = Options::default().token(ANN, "", "ann", "member").start_in_vain().await;
    assert!(!status.success(), "{log}");
    assert!(log.contains("tenant"), "{log}");
}

#[tokio::test]
async fn t32_a_run_addresses_its_own_descendants_only() {
    let server = server().await;
    let ann = server.api().with_token(ANN);
    let (mine, other) = (ann.open("mock", "mine").await, ann.open("mock", "other").await);
    let childs = ann.open_below(&other, "mock", "the other's child").await;
    for target in [&childs, &other, &mine] {
        for (op, rest) in [
            ("poll", json!({})),
            ("send", json!({ "prompt": "do it for me" })),
            ("cancel", json!({})),
            ("close", json!({})),
        ] {
            let mut arguments = json!({ "op": op, "child_run_id": target });
            arguments.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
            let envelope = ann.send(&mine, &mock(json!({ "tool": { "name": "Agent", "arguments": arguments } }))).await;
            assert_eq!(envelope["outcome"], "finished", "a refusal is a tool error: {envelope}");
            assert!(envelope["output"].as_str().unwrap().contains("not_found"), "{op} {target}: {envelope}");
        }
    }
    assert_eq!(ann.poll(&childs).await["output"], "the other's child");
    assert_eq!(ann.get_run(&other).await["state"], "awaiting_input");
    server.stop().await;
}
