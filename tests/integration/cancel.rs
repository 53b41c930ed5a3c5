//! Cancel: one outcome, for good.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use hearth_tests::{Api, Server, eventually, mock};
use serde_json::{Value, json};
use tokio::time::sleep;

async fn cancel(api: &Api, id: &str, body: Value) -> Value {
    api.post(&format!("/v1/_resident/{id}/cancel"), body).await.ok()
}

#[tokio::test]
async fn a_cancel_ends_the_turn_keeps_its_output_and_the_resident_goes_on() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let prompt = mock(json!({ "latency_ms": 40_000, "chunks": 400, "output": "x".repeat(400) }));
    let body = json!({ "prompt": prompt });
    let path = format!("/v1/_resident/{id}/send");
    let (blocked, stopped) = tokio::join!(api.post(&path, body), async {
        let turn = eventually("some output is there", async || {
            let envelope = api.poll(&id).await;
            envelope["output"].as_str().is_some_and(|output| output.starts_with('x')).then_some(envelope)
        })
        .await;
        let stopped = cancel(&api, &id, json!({ "reason": "enough" })).await;
        assert_eq!(stopped["turn_id"], turn["turn_id"]);
        stopped
    });
    assert_eq!(stopped["stopped"], true);
    assert_eq!((stopped["child_run_id"].as_str(), stopped["run_id"].as_str()), (Some(id.as_str()), Some(id.as_str())));
    let blocked = blocked.ok();
    assert_eq!((blocked["state"].as_str(), blocked["outcome"].as_str()), (Some("awaiting_input"), Some("cancelled")));
    let output = blocked["output"].as_str().unwrap();
    assert!((1..400).contains(&output.len()), "{} pieces", output.len());
    assert_eq!(api.send(&id, "usable").await["output"], "usable");
    let kept = api.poll_turn(&id, stopped["turn_id"].as_str().unwrap()).await;
    assert_eq!((kept["outcome"].as_str(), kept["output"].as_str()), (Some("cancelled"), Some(output)));
    server.stop().await;
}

#[tokio::test]
async fn a_turn_that_said_nothing_yet_has_no_output_of_an_earlier_one() {
    let server = Server::start().await;
    let api = server.api();
    for _ in 0..20 {
        let id = api.open("mock", "words of an earlier turn").await;
        let prompt = mock(json!({ "latency_ms": 60_000 }));
        let path = format!("/v1/_resident/{id}/send");
        let (running, cancelled) = tokio::join!(
            api.post(&path, json!({ "prompt": prompt, "timeout_ms": 1 })),
            eventually("the cancel met the turn", async || {
                let reply = cancel(&api, &id, json!({})).await;
                (reply["stopped"] == true).then_some(reply)
            })
        );
        for envelope in [running.ok(), cancelled] {
            assert_eq!(envelope["output"], "", "{envelope}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn prompts_behind_a_cancelled_turn_go_on() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let running = api.start(&id, &mock(json!({ "latency_ms": 60_000 }))).await;
    let queued = api.start(&id, "queued").await;
    assert_eq!(cancel(&api, &id, json!({})).await["turn_id"], running);
    assert_eq!(api.end_of(&id, &running).await["outcome"], "cancelled");
    let end = api.end_of(&id, &queued).await;
    assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some("queued")));
    server.stop().await;
}

#[tokio::test]
async fn a_cancel_of_another_turn_or_of_a_parked_or_final_run_stops_nothing() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    assert_eq!(cancel(&api, &id, json!({})).await["stopped"], false);
    let first = api.send(&id, "first").await;
    let running = api.start(&id, &mock(json!({ "latency_ms": 60_000 }))).await;
    assert_eq!(cancel(&api, &id, json!({ "turn_id": first["turn_id"] })).await["stopped"], false);
    assert_eq!(api.poll_turn(&id, &running).await["state"], "running");
    assert_eq!(cancel(&api, &id, json!({ "turn_id": running })).await["stopped"], true);
    api.close(&id).await;
    let last = cancel(&api, &id, json!({})).await;
    assert_eq!((&last["stopped"], last["state"].as_str()), (&json!(false), Some("closed")));

    let done = api.run("mock", "one").await["run_id"].as_str().unwrap().to_owned();
    let last = api.post(&format!("/v1/runs/{done}/cancel"), json!({})).await.ok();
    assert_eq!((&last["stopped"], last["state"].as_str()), (&json!(false), Some("completed")));
    assert!(last.get("child_run_id").is_none_or(Value::is_null), "{last}");
    server.stop().await;
}

#[tokio::test]
async fn t27_a_cancel_while_a_tool_waits_answers_the_call_and_leaves_a_usable_resident() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let open = json!({ "op": "open", "name": "mock", "prompt": mock(json!({ "latency_ms": 60_000 })) });
    let turn = api.start(&id, &mock(json!({ "tool": { "name": "Agent", "arguments": open } }))).await;
    eventually("the child is there", async || (api.residents("").await.len() == 2).then_some(())).await;
    assert_eq!(cancel(&api, &id, json!({})).await["stopped"], true);
    assert_eq!(api.end_of(&id, &turn).await["outcome"], "cancelled");
    assert_eq!(api.send(&id, "usable").await["output"], "usable");
    server.stop().await;
}

#[tokio::test]
async fn t30_a_child_whose_open_was_abandoned_is_in_the_list_and_nothing_leaks() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let open =
        json!({ "op": "open", "name": "mock", "prompt": mock(json!({ "latency_ms": 1_500, "output": "kept" })) });
    let turn = api.start(&id, &mock(json!({ "tool": { "name": "Agent", "arguments": open } }))).await;
    eventually("the child is there", async || (api.residents("").await.len() == 2).then_some(())).await;
    cancel(&api, &id, json!({ "turn_id": turn })).await;
    let list = api.send(&id, &mock(json!({ "tool": { "name": "Agent", "arguments": { "op": "list" } } }))).await;
    let children = api.residents(&format!("parent_run_id={id}")).await;
    let child = children.first().expect("the child is listed")["child_run_id"].as_str().unwrap().to_owned();
    assert!(list["output"].as_str().unwrap().contains(&child), "{list}");
    let polled = api.get(&format!("/v1/_resident/{child}?timeout_ms=30000")).await.ok();
    assert_eq!((polled["outcome"].as_str(), polled["output"].as_str()), (Some("finished"), Some("kept")), "{polled}");
    assert_eq!(api.close(&id).await["closed_descendants"], 1);
    assert!(api.residents("").await.is_empty());
    server.stop().await;
}

/// One race: a turn of a few milliseconds and a cancel near its end. Returns the turn's envelope.
async fn race(api: &Api, id: &str, round: u64) -> Value {
    let latency = 5 + round % 20;
    let output = format!("whole {round}");
    let prompt = mock(json!({ "latency_ms": latency, "chunks": 3, "output": output }));
    // From well before the end to well after it, in steps that do not repeat with the latencies.
    let delay = Duration::from_micros((round * 1_337) % 45_000);
    let (sent, stopped) = tokio::join!(api.send(id, &prompt), async {
        sleep(delay).await;
        cancel(api, id, json!({})).await
    });
    let outcome = sent["outcome"].as_str().unwrap();
    match outcome {
        "finished" => assert_eq!(sent["output"], output.as_str(), "{sent}"),
        "cancelled" => assert!(output.starts_with(sent["output"].as_str().unwrap()), "{sent}"),
        other => panic!("outcome {other}: {sent}"),
    }
    if stopped["stopped"] == true {
        assert_eq!((&stopped["turn_id"], stopped["outcome"].as_str()), (&sent["turn_id"], Some("cancelled")), "{sent}");
    }
    assert_eq!(outcome == "cancelled", stopped["stopped"] == true, "{sent} {stopped}");
    sent
}

#[tokio::test]
async fn t26_of_a_thousand_cancels_near_completion_each_turn_has_one_outcome_for_good() {
    let mut server = Server::start().await;
    let api = server.api();
    let ids = join_all((0..20).map(|_| api.open("mock", "one"))).await;
    let races = ids.iter().enumerate().map(async |(resident, id)| {
        let mut ends = Vec::new();
        for round in 0..50 {
            ends.push(race(&api, id, resident as u64 * 50 + round).await);
        }
        (id.clone(), ends)
    });
    let ends: Vec<(String, Vec<Value>)> = join_all(races).await;

    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    server.crash().await;
    for (id, turns) in &ends {
        for turn in turns {
            *outcomes.entry(turn["outcome"].as_str().unwrap().to_owned()).or_default() += 1;
            assert_eq!(&api.poll_turn(id, turn["turn_id"].as_str().unwrap()).await, turn, "an end was overwritten");
        }
    }
    assert_eq!(outcomes.values().sum::<usize>(), 1_000);
    assert!(outcomes.len() == 2, "the race was never won by one side: {outcomes:?}");
    server.stop().await;
}
