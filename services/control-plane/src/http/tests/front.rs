//! What a request meets before a use case: the trace, the token, the path, the body.

use reqwest::Method;
use serde_json::json;

use super::*;

#[tokio::test]
async fn who_is_not_known_is_told_nothing_about_what_is_there() {
    let server = Server::start().await;
    for path in ["/v1/runs", "/v1/runs/run_x", "/v1/nothing", "/nothing", "/metrics", "/v1/runs/a%2Fb?x=y"] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let response = server.anonymous(method, path).send().await.unwrap();
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            let (status, code, _) = refusal(response).await;
            assert_eq!((status, code.as_str()), (401, "unauthenticated"), "{path}");
        }
    }
    let wrong = server.anonymous(Method::GET, "/v1/runs").bearer_auth("wrong").send().await.unwrap();
    assert_eq!(wrong.status(), 401);
}

#[tokio::test]
async fn two_tokens_at_once_are_no_token() {
    let server = Server::start().await;
    let twice = server.request(Method::GET, "/metrics").header("authorization", "Bearer wrong");
    assert_eq!(twice.send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn unknown_paths_and_wrong_methods_are_typed_errors() {
    let server = Server::start().await;
    for path in ["/nothing", "/v1", "/v1/runs/", "//v1/runs", "/v1/runs/x/nothing", "/v1/agents/a/b"] {
        let (status, code, _) = refusal(server.get(path).await).await;
        assert_eq!((status, code.as_str()), (404, "not_found"), "{path}");
    }
    let response = server.request(Method::DELETE, "/v1/runs").send().await.unwrap();
    let allowed = response.headers()["allow"].to_str().unwrap().to_owned();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
    let (status, code, _) = refusal(response).await;
    assert_eq!((status, code.as_str()), (405, "invalid_argument"));
    let (status, ..) = refusal(server.post("/livez", "").await).await;
    assert_eq!(status, 405);
}

#[tokio::test]
async fn probes_and_the_description_need_no_token() {
    let server = Server::start().await;
    for path in ["/livez", "/readyz", "/healthz", "/openapi.json"] {
        let response = server.anonymous(Method::GET, path).send().await.unwrap();
        assert!(matches!(response.status().as_u16(), 200 | 503), "{path}: {}", response.status());
    }
    let metrics = server.get("/metrics").await;
    assert!(metrics.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
    assert!(metrics.text().await.unwrap().contains("hearth_http_request_seconds_count"));
    let wrong = server.anonymous(Method::GET, "/healthz").bearer_auth("wrong").send().await.unwrap();
    assert_eq!(wrong.status(), 401);
}

#[tokio::test]
async fn every_answer_carries_its_trace_and_joins_that_of_its_caller() {
    let server = Server::start().await;
    let trace_id = "0af7651916cd43dd8448eb211c80319c";
    for path in ["/livez", "/nothing", "/openapi.json"] {
        let traced =
            server.request(Method::GET, path).header("traceparent", format!("00-{trace_id}-b7ad6b7169203331-01"));
        let headers = traced.send().await.unwrap().headers().clone();
        assert_eq!(headers["x-trace-id"], trace_id, "{path}");
        assert_eq!(&headers["traceresponse"].to_str().unwrap()[3..35], trace_id);
        let fresh = server.anonymous(Method::GET, path).header("traceparent", "nonsense").send().await.unwrap();
        let other = server.anonymous(Method::GET, path).send().await.unwrap();
        assert_ne!(fresh.headers()["x-trace-id"], other.headers()["x-trace-id"]);
    }
}

#[tokio::test]
async fn an_unknown_id_answers_the_same_bytes_whoever_asks_and_whatever_the_path() {
    let server = Server::start().await;
    let one = server.get("/nothing/one").await.bytes().await.unwrap();
    let two = server.request(Method::PUT, "/nothing/two").send().await.unwrap().bytes().await.unwrap();
    assert_eq!(one, two);
}

#[tokio::test]
async fn an_id_of_another_form_is_refused_however_it_is_written() {
    let server = Server::start().await;
    let long = "x".repeat(129);
    for id in ["a%2Fb", "a%00b", "%20", "a.b", "%C3%A4", "%ff", "..%2f..", &long] {
        for (method, path) in [
            (Method::GET, format!("/v1/runs/{id}")),
            (Method::GET, format!("/v1/runs/{id}/stream")),
            (Method::POST, format!("/v1/runs/{id}/cancel")),
            (Method::POST, format!("/v1/_resident/{id}/close")),
            (Method::GET, format!("/v1/_resident/{id}")),
            (Method::GET, format!("/v1/sessions/{id}/transcript")),
            (Method::POST, format!("/v1/_sandboxes/{id}/close")),
        ] {
            let (status, code, _) = refusal(server.request(method, &path).send().await.unwrap()).await;
            assert_eq!((status, code.as_str()), (400, "invalid_argument"), "{path}");
        }
    }
    let (status, _, body) = refusal(server.post("/v1/_sandboxes/close_run", r#"{"root_run_id":""}"#).await).await;
    assert_eq!((status, &body["error"]["details"]["field"]), (400, &json!("root_run_id")));
}

#[tokio::test]
async fn a_body_that_is_wrong_is_refused_with_its_field() {
    let server = Server::start().await;
    for (path, body, field) in [
        ("/v1/runs", "", "agent"),
        ("/v1/runs", "{", "body"),
        ("/v1/runs", "[\"mock\"]", "body"),
        ("/v1/runs", r#"{"agent":"mock","colour":1}"#, "colour"),
        ("/v1/runs", r#"{"agent":""}"#, "agent"),
        ("/v1/runs", r#"{"agent":"mock","session_id":"a b"}"#, "session_id"),
        ("/v1/_resident", r#"{"agent":"mock","prompt":"x","parent_run_id":"a/b"}"#, "parent_run_id"),
        ("/v1/_resident", r#"{"agent":"mock"}"#, "prompt"),
        ("/v1/_resident/run_x/send", r#"{"prompt":7}"#, "prompt"),
        ("/v1/runs/run_x/input", r#"{"text":"x","mode":"push"}"#, "mode"),
        ("/v1/runs/run_x/cancel", r#"{"turn_id":"a/b"}"#, "turn_id"),
        ("/v1/runs/run_x/close", "7", "body"),
    ] {
        let (status, code, answer) = refusal(server.post(path, body).await).await;
        assert_eq!((status, code.as_str()), (400, "invalid_argument"), "{path} {body}");
        assert_eq!(answer["error"]["details"]["field"], field, "{path} {body}: {answer}");
    }
}

#[tokio::test]
async fn parameters_that_are_wrong_unknown_or_doubled_are_refused() {
    let server = Server::start().await;
    for path in [
        "/v1/runs?limit=0",
        "/v1/runs?limit=501",
        "/v1/runs?limit=5&limit=5",
        "/v1/runs?colour=red",
        "/v1/runs?state=asleep",
        "/v1/runs?tenant=a%2Fb",
        "/v1/runs/run_x?verbose=1",
        "/v1/runs/run_x/stream?from_seq=-1",
        "/v1/runs/run_x/stream?from_seq=x",
        "/v1/_resident/run_x?timeout_ms=1.5",
        "/v1/_resident?limit=1000000000000",
        "/v1/agents?state=running",
        "/v1/_replicas?limit=no",
        "/v1/sessions/sess_x/transcript?limit=0",
    ] {
        let (status, code, body) = refusal(server.get(path).await).await;
        assert_eq!((status, code.as_str()), (400, "invalid_argument"), "{path}");
        assert!(body["error"]["details"]["field"].is_string(), "{path}: {body}");
    }
    assert_eq!(server.post("/v1/runs/run_x/cancel?now=1", "").await.status(), 400);
}

#[tokio::test]
async fn headers_that_are_wrong_are_refused() {
    let server = Server::start().await;
    let cancel = || server.request(Method::POST, "/v1/runs/run_x/cancel");
    let (status, code, _) = refusal(cancel().header("idempotency-key", "x".repeat(129)).send().await.unwrap()).await;
    assert_eq!((status, code.as_str()), (400, "invalid_argument"));
    assert_eq!(cancel().header("content-encoding", "gzip").body("x").send().await.unwrap().status(), 400);
    let stream = server.request(Method::GET, "/v1/runs/run_x/stream").header("last-event-id", "seven");
    assert_eq!(stream.send().await.unwrap().status(), 400);
}

#[tokio::test]
async fn without_tokens_only_loopback_names_and_origins_get_in() {
    let auth = Auth::loopback("127.0.0.1:1".parse().unwrap()).unwrap();
    let server = Server::with(auth, HttpOptions::default(), |table| table).await;
    let get = |path: &str| server.anonymous(Method::GET, path);
    assert_eq!(get("/metrics").send().await.unwrap().status(), 200);
    assert_eq!(get("/metrics").header("origin", server.url("")).send().await.unwrap().status(), 200);
    for (name, value) in [("host", "rebound.example"), ("origin", "http://evil.example"), ("origin", "null")] {
        for path in ["/metrics", "/livez", "/v1/runs", "/nothing"] {
            let (status, code, _) = refusal(get(path).header(name, value).send().await.unwrap()).await;
            assert_eq!((status, code.as_str()), (403, "permission_denied"), "{name} {path}");
        }
    }
}

#[tokio::test]
async fn where_tokens_protect_any_name_will_do() {
    let server = Server::start().await;
    let named = server.request(Method::GET, "/metrics").header("host", "hearth.example").header("origin", "http://a.b");
    assert_eq!(named.send().await.unwrap().status(), 200);
}

#[tokio::test]
async fn the_console_needs_no_token_and_lets_nothing_foreign_in() {
    let server = Server::start().await;
    for (path, kind) in
        [("/", "text/html"), ("/console/main.js", "text/javascript"), ("/console/console.css", "text/css")]
    {
        let response = server.anonymous(Method::GET, path).send().await.unwrap();
        assert_eq!(response.status(), 200, "{path}");
        let headers = response.headers();
        assert!(headers["content-type"].to_str().unwrap().starts_with(kind), "{path}");
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    }
    assert_eq!(server.anonymous(Method::GET, "/console/nothing.js").send().await.unwrap().status(), 401);
}
