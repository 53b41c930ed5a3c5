//! One trace over all members.

use std::collections::BTreeSet;

use hearth_tests::{ClusterOptions, Receiver, eventually, mock};
use serde_json::{Value, json};

use super::owner;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn text<'v>(span: &'v Value, field: &str) -> &'v str {
    span[field].as_str().unwrap_or_default()
}

#[tokio::test]
async fn t36_one_trace_leads_over_replicas_a_node_and_a_fail_over() {
    let Some(receiver) = Receiver::start().await else { return };
    let options = ClusterOptions::default()
        .nodes(1)
        .variable("HEARTH_PASSIVATE_AFTER_MS", 200)
        .variable("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url());
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    let commands = |command: &str| json!({ "commands": [command], "keep_open": true }).to_string();
    let root = apis[0].open("mock", "root").await;
    let child = apis[1].open_below(&root, "dev/exec", &commands("true")).await;
    eventually("the child is in no memory", async || owner(&apis[2], &child).await.is_none().then_some(())).await;
    apis[1].start(&child, &commands("sleep 1")).await;
    assert_eq!(owner(&apis[0], &child).await.as_deref(), Some("replica-1"));
    let send = json!({ "op": "send", "child_run_id": child, "prompt": commands("sleep 3; echo done") });
    let body = json!({ "text": mock(json!({ "tool": { "name": "Agent", "arguments": send } })) });
    let request = apis[0].request("POST", &format!("/v1/runs/{root}/input"));
    let request = request.header("traceparent", format!("00-{TRACE}-{CALLER}-01")).json(&body);
    let accepted = apis[0].finish(request).await.with_status(202);
    eventually("the child's second command runs", async || {
        let row = apis[0].get_run(&child).await;
        (row["turns"] == 3 && row["state"] == "running").then_some(())
    })
    .await;
    cluster.kill("replica-1").await;
    let end = apis[0].end_of(&root, accepted["turn_id"].as_str().unwrap()).await;
    assert!(end["output"].as_str().unwrap().contains("done"), "{end}");
    // The one that took over tells of the command again, with what it found.
    let spans = eventually("the spans have arrived", async || {
        let spans = receiver.spans(TRACE);
        let has = |name: &str| spans.iter().any(|span| text(span, "name") == name);
        let turns = spans.iter().filter(|span| text(span, "name") == "turn").count();
        (turns >= 2 && has("sandbox_exec") && has("node.call") && has("tool.call")).then_some(spans)
    })
    .await;
    let known: BTreeSet<&str> = spans.iter().map(|span| text(span, "spanId")).collect();
    let named = |name: &'static str| spans.iter().filter(move |span| text(span, "name") == name);
    let request = named("POST /v1/runs/{id}/input").next().expect("the request's span");
    assert_eq!(text(request, "parentSpanId"), CALLER);
    // Those that the killed replica had open were never told: only what hung below them has no parent here.
    let orphans: Vec<&Value> = spans
        .iter()
        .filter(|span| text(span, "parentSpanId") != CALLER && !known.contains(text(span, "parentSpanId")))
        .collect();
    assert!(
        orphans.iter().all(|span| ["model.step", "tool.call", "node.call"].contains(&text(span, "name"))),
        "{orphans:?}"
    );
    for turn in named("turn") {
        assert!(
            known.contains(text(turn, "parentSpanId")),
            "a turn, also one taken over, hangs below what asked for it"
        );
    }
    for exec in named("sandbox_exec") {
        let call = spans.iter().find(|span| text(span, "spanId") == text(exec, "parentSpanId"));
        assert_eq!(call.map(|span| text(span, "name")), Some("node.call"), "the node's span hangs below the call");
    }
    cluster.restart("replica-1").await;
    cluster.stop().await;
}
