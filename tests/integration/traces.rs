//! One trace from the caller's request on.

use hearth_tests::{Server, mock};
use serde_json::json;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[tokio::test]
async fn t36_a_trace_is_taken_up_returned_and_kept_with_the_run() {
    let mut server = Server::start().await;
    let api = server.api();
    let spawn = json!({ "op": "open", "name": "mock", "prompt": "child" });
    let body = json!({ "agent": "mock", "prompt": mock(json!({ "tool": { "name": "Agent", "arguments": spawn } })),
                       "interactive": true });
    let request = api.request("POST", "/v1/runs").header("traceparent", format!("00-{TRACE}-00f067aa0ba902b7-01"));
    let reply = api.finish(request.json(&body)).await;
    let response = reply.header("traceresponse").expect("a traceresponse").to_owned();
    assert!(response.starts_with(&format!("00-{TRACE}-")), "{response}");
    let run = reply.ok()["run_id"].as_str().unwrap().to_owned();
    let child = api.residents(&format!("parent_run_id={run}")).await[0]["child_run_id"].as_str().unwrap().to_owned();
    for id in [&run, &child] {
        assert_eq!(api.get_run(id).await["trace_id"], TRACE, "{id}");
    }
    server.crash().await;
    assert_eq!(api.get_run(&child).await["trace_id"], TRACE, "after a crash");
    server.stop().await;
}

#[tokio::test]
async fn every_answer_has_a_trace_and_a_bad_header_starts_a_new_one() {
    let server = Server::start().await;
    let api = server.api();
    for header in ["", "00-zz-zz-01", "00-00000000000000000000000000000000-00f067aa0ba902b7-01"] {
        let request = api.request("GET", "/v1/runs").header("traceparent", header);
        let reply = api.finish(request).await;
        let response = reply.header("traceresponse").expect("a traceresponse").to_owned();
        let trace = response.split('-').nth(1).unwrap().to_owned();
        assert!(trace.len() == 32 && trace.chars().any(|digit| digit != '0'), "{response}");
    }
    let refused = api.get("/v1/runs/run_unknown").await;
    assert!(refused.header("traceresponse").is_some());
    server.stop().await;
}
