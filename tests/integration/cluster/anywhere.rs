//! Any replica serves everything.

use std::time::Duration;

use futures::future::join_all;
use hearth_tests::{Cluster, ClusterOptions, eventually, mock, program};
use serde_json::{Value, json};

use super::{ends, lineage, owner, start_at};
use crate::tenants::{call, verbs};

#[tokio::test]
async fn any_replica_serves_every_command_and_every_list() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let root = apis[0].open("mock", "root").await;
    let child = apis[1].open_below(&root, "mock", "child").await;
    for (number, api) in apis.iter().enumerate() {
        assert_eq!(api.send(&child, &format!("to {number}")).await["output"], format!("to {number}").as_str());
        assert_eq!(api.poll(&child).await["output"], format!("to {number}").as_str());
        assert_eq!(api.get_run(&root).await["state"], "awaiting_input");
        let rows = api.residents(&format!("parent_run_id={root}")).await;
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0]["owner_replica"], "replica-0", "where it was begun: {rows:?}");
        let replicas = api.get("/v1/_replicas").await.ok();
        let ids: Vec<&str> =
            replicas["replicas"].as_array().unwrap().iter().map(|row| row["replica_id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["replica-0", "replica-1", "replica-2"]);
    }

    let turn =
        apis[1].start(&child, &mock(json!({ "latency_ms": 30_000, "chunks": 300, "output": "x".repeat(3_000) }))).await;
    eventually("another replica shows the output so far", async || {
        let envelope = apis[2].poll_turn(&child, &turn).await;
        envelope["output"].as_str().is_some_and(|text| !text.is_empty()).then_some(())
    })
    .await;
    let blocked = apis[2].end_of(&child, &turn);
    let path = format!("/v1/_resident/{child}/cancel");
    let cancelled = apis[1].post(&path, json!({ "turn_id": turn }));
    let (blocked, cancelled) = tokio::join!(blocked, cancelled);
    let cancelled = cancelled.ok();
    assert_eq!(cancelled["stopped"], true, "{cancelled} {blocked}");
    assert_eq!(blocked["outcome"], "cancelled", "{blocked}");
    assert!(!blocked["output"].as_str().unwrap().is_empty(), "the partial output is kept");

    let open = json!({ "op": "open", "name": "mock", "prompt": "by the tool" });
    let prompt = mock(json!({ "tool": { "name": "Agent", "arguments": open } }));
    let answer = apis[2].send(&child, &prompt).await;
    let grandchild = apis[1].residents(&format!("parent_run_id={child}")).await;
    assert!(answer["output"].as_str().unwrap().contains(grandchild[0]["child_run_id"].as_str().unwrap()), "{answer}");

    assert_eq!(apis[2].close(&root).await["closed_descendants"], 2);
    for api in &apis {
        assert_eq!(api.get_run(&child).await["state"], "closed");
        let late = api.post(&format!("/v1/_resident/{child}/send"), json!({ "prompt": "late" })).await;
        late.refused(409, "run_ended");
        assert!(api.residents("").await.is_empty());
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_stream_is_taken_up_on_another_replica_and_each_event_comes_once() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let id = apis[0].open("mock", "one").await;
    let spawn =
        json!({ "op": "spawn", "name": "mock", "prompt": mock(json!({ "latency_ms": 300, "output": "child" })) });
    let tool = mock(json!({ "tool": { "name": "Agent", "arguments": spawn } }));
    let turns: Vec<String> = vec![apis[1].start(&id, &tool).await, apis[2].start(&id, &tool).await];
    // Three events here, three there, each stream cut by its reader.
    let mut seen: Vec<hearth_tests::Event> = Vec::new();
    'reading: for number in 1.. {
        let after = seen.iter().rev().find_map(|event| event.id);
        let mut stream = apis[number % 3].stream(&id, after).await;
        for _ in 0..3 {
            let event = stream.next().await.expect("the stream goes on");
            let last = event.ends_turn() && event.data["turn_id"] == turns[1].as_str();
            seen.push(event);
            if last {
                break 'reading;
            }
        }
    }
    let ids = |events: &[hearth_tests::Event]| -> Vec<u64> { events.iter().filter_map(|event| event.id).collect() };
    let whole = lineage(&apis[0], &id).await;
    assert_eq!(ids(&seen), ids(&whole));
    assert_eq!(ends(&whole).len(), 3, "the first turn and the two that were watched");
    cluster.stop().await;
}

#[tokio::test]
async fn a_key_counts_on_every_replica_and_after_all_were_restarted() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let open = json!({ "agent": "mock", "prompt": "one" });
    let opened = join_all(apis.iter().map(|api| api.post_with_key("/v1/_resident", "open", open.clone()))).await;
    let ids: Vec<Value> = opened.into_iter().map(|reply| reply.ok()["child_run_id"].clone()).collect();
    assert!(ids.iter().all(|id| id == &ids[0]), "one key, one resident: {ids:?}");
    let id = ids[0].as_str().unwrap().to_owned();
    let path = format!("/v1/_resident/{id}/send");
    let body = json!({ "prompt": mock(json!({ "latency_ms": 300, "output": "once" })) });
    let sent = join_all((0..9).map(|n| apis[n % 3].post_with_key(&path, "send", body.clone()))).await;
    assert_eq!(sent.iter().filter(|reply| !reply.is_replay()).count(), 1, "one of them was the first");
    let turns: Vec<Value> = sent.into_iter().map(|reply| reply.ok()["turn_id"].clone()).collect();
    assert!(turns.iter().all(|turn| turn == &turns[0]), "{turns:?}");
    for replica in 0..3 {
        cluster.kill(&format!("replica-{replica}")).await;
    }
    for replica in 0..3 {
        cluster.restart(&format!("replica-{replica}")).await;
    }
    for api in &apis {
        let again = api.post_with_key(&path, "send", body.clone()).await;
        assert!(again.is_replay(), "{}", again.text);
        assert_eq!((&again.body["turn_id"], again.body["output"].as_str()), (&turns[0], Some("once")));
        api.post_with_key(&path, "send", json!({ "prompt": "another" })).await.refused(409, "conflict");
    }
    let row = apis[0].residents("").await;
    assert_eq!((row.len(), row[0]["turns"].as_u64()), (1, Some(2)));
    cluster.stop().await;
}

#[tokio::test]
async fn t26_cancel_and_completion_race_across_replicas_and_one_wins_for_good() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let residents = join_all((0..10).map(|n| apis[n % 3].open("mock", "one"))).await;
    let races = residents.iter().enumerate().map(|(resident, id)| {
        let apis = &apis;
        async move {
            let mut outcomes = Vec::new();
            for round in 0..12_u64 {
                let output = format!("{id} {round}");
                let prompt = mock(json!({ "latency_ms": 60, "chunks": 3, "output": output }));
                let (sender, canceller) = (&apis[(resident + 1) % 3], &apis[(resident + round as usize) % 3]);
                let turn = sender.input(id, &prompt).await;
                // Around the end of the turn: from 20 ms before it to 20 ms after it.
                tokio::time::sleep(Duration::from_millis(40 + (round * 7) % 40)).await;
                let answer =
                    canceller.post(&format!("/v1/_resident/{id}/cancel"), json!({ "turn_id": turn })).await.ok();
                let end = sender.end_of(id, &turn).await;
                let cancelled = end["outcome"] == "cancelled";
                assert_eq!(answer["stopped"] == true, cancelled, "{answer} {end}");
                let text = end["output"].as_str().unwrap();
                assert!(if cancelled { output.starts_with(text) } else { output == text }, "{end}");
                for api in apis {
                    let seen = api.poll_turn(id, &turn).await;
                    assert_eq!((&seen["outcome"], &seen["output"]), (&end["outcome"], &end["output"]));
                }
                outcomes.push(turn);
            }
            let mut ended = ends(&lineage(&apis[resident % 3], id).await);
            ended.remove(0);
            assert_eq!(ended, outcomes, "each turn ended once");
        }
    });
    join_all(races).await;
    cluster.stop().await;
}

#[tokio::test]
async fn t30_a_child_whose_opener_went_away_on_another_replica_is_in_the_list() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let root = apis[0].open("mock", "root").await;
    let prompt = mock(json!({ "latency_ms": 1_000, "output": "late" }));
    let body = json!({ "agent": "mock", "prompt": prompt, "parent_run_id": root });
    let opening = apis[2].try_finish(apis[2].request("POST", "/v1/_resident").json(&body));
    let listed = || async {
        let rows = apis[1].residents(&format!("parent_run_id={root}")).await;
        rows.first().map(|row| row["child_run_id"].as_str().unwrap().to_owned())
    };
    let child = tokio::select! {
        _ = opening => panic!("the open was answered before its turn ended"),
        child = eventually("the child is in the list", listed) => child,
    };
    // The connection is gone with the future.
    let envelope = apis[1].get(&format!("/v1/_resident/{child}?timeout_ms=20000")).await.ok();
    assert_eq!((envelope["outcome"].as_str(), envelope["output"].as_str()), (Some("finished"), Some("late")));
    assert_eq!(apis[0].close(&root).await["closed_descendants"], 1);
    assert!(apis[2].residents("").await.is_empty(), "nothing leaks");
    cluster.stop().await;
}

#[tokio::test]
async fn t33_prompts_up_to_the_largest_body_reach_a_child_on_another_replica() {
    let options = ClusterOptions::default().variable("HEARTH_PASSIVATE_AFTER_MS", 200);
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    let root = apis[0].open("mock", "root").await;
    let child = apis[0].open_below(&root, "mock", "child").await;
    let busy = start_at(&apis[1], &child, 1_000, "busy").await;
    assert_eq!(owner(&apis[0], &child).await.as_deref(), Some("replica-1"));
    let mib = "m".repeat(1 << 20);
    assert_eq!(apis[2].send(&child, &mib).await["output"], mib.as_str(), "1 MiB, over another replica");
    apis[0].end_of(&child, &busy).await;
    start_at(&apis[1], &child, 500, "busy").await;
    let most = "g".repeat((16 << 20) - 100);
    let sent = apis[2].send(&child, &most).await;
    assert!(sent["output"] == most.as_str(), "the largest body that is taken");
    assert!(apis[0].poll(&child).await["output"] == most.as_str());
    let over = apis[2].post(&format!("/v1/_resident/{child}/send"), json!({ "prompt": "g".repeat(16 << 20) })).await;
    let error = over.refused(413, "payload_too_large");
    assert!(error["message"].as_str().unwrap().contains("16777216"), "the limit is told: {error}");
    assert_eq!(apis[2].send(&child, "next").await["output"], "next");
    cluster.stop().await;
}

#[tokio::test]
async fn t37_anothers_id_answers_as_an_unknown_one_on_every_replica() {
    const ANN: &str = "token-of-ann-0123456789abcdef";
    const EVE: &str = "token-of-eve-0123456789abcdef";
    let options = ClusterOptions::default().token(ANN, "acme", "ann", "member").token(EVE, "other", "eve", "operator");
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    let foreign = apis[0].with_token(ANN).open("mock", "secret").await;
    let running =
        apis[0].with_token(ANN).start(&foreign, &mock(json!({ "latency_ms": 2_000, "output": "mine" }))).await;
    for api in &apis {
        let eve = api.with_token(EVE);
        for (of_foreign, of_unknown) in verbs(&foreign).iter().zip(&verbs("run_unknown")) {
            let (foreign, unknown) = (call(&eve, of_foreign).await, call(&eve, of_unknown).await);
            assert_eq!(foreign.text.as_bytes(), unknown.text.as_bytes(), "{of_foreign:?}");
            foreign.refused(404, "not_found");
        }
        assert!(eve.residents("").await.is_empty());
    }
    assert_eq!(apis[2].with_token(ANN).end_of(&foreign, &running).await["output"], "mine");
    cluster.stop().await;
}

#[tokio::test]
async fn t39_a_turn_goes_on_when_its_client_at_another_replica_goes_away() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let id = apis[0].open("mock", "one").await;
    let body = json!({ "prompt": mock(json!({ "latency_ms": 1_000, "output": "went on" })) });
    let sending = apis[1].request("POST", &format!("/v1/_resident/{id}/send")).json(&body);
    let running = || async {
        let envelope = apis[2].poll(&id).await;
        (envelope["state"] == "running").then(|| envelope["turn_id"].as_str().unwrap().to_owned())
    };
    let turn = tokio::select! {
        _ = apis[1].try_finish(sending) => panic!("the send was answered before its turn ended"),
        turn = eventually("the turn runs", running) => turn,
    };
    let end = apis[2].end_of(&id, &turn).await;
    assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some("went on")));
    for api in &apis {
        let text = api.get("/metrics").await.text;
        let in_flight = |name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
        eventually("no request is held", async || {
            let text = api.get("/metrics").await.text;
            text.lines().any(|line| line == "hearth_http_requests_in_flight 1").then_some(())
        })
        .await;
        assert!(in_flight("hearth_turns_running").is_some_and(|line| line.ends_with(" 0")), "{text}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_second_cluster_on_the_same_folder_is_refused_and_the_first_goes_on() {
    let Some(cluster) = Cluster::start().await else { return };
    let data = cluster.folder().join("data");
    let mut second = program();
    second.args(["cluster", "up", "--base-port", "1024", "--data"]).arg(&data);
    let refused = tokio::task::spawn_blocking(move || second.output().unwrap()).await.unwrap();
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("a cluster is up"), "{told}");
    cluster.kill("replica-0").await;
    cluster.restart("replica-0").await;
    assert_eq!(cluster.api(0).run("mock", "still here").await["output"], "still here");
    cluster.stop().await;
}

#[tokio::test]
async fn a_conversation_is_replayed_by_any_replica() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let id = apis[0].open("mock", "one").await;
    apis[1].send(&id, "two").await;
    let source = apis[2].get_run(&id).await["session_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{source}/replay");
    let body = json!({ "agent": "mock" });
    let replays = join_all(apis.iter().map(|api| api.post_with_key(&path, "one", body.clone()))).await;
    let sessions: Vec<Value> = replays.into_iter().map(|reply| reply.ok()["session_id"].clone()).collect();
    assert!(sessions.iter().all(|session| session == &sessions[0]), "one key, one session: {sessions:?}");
    let session = sessions[0].as_str().unwrap();
    for (number, api) in apis.iter().enumerate() {
        let prompt = format!("by {number}");
        let said = api.post(&format!("/v1/sessions/{session}/messages"), json!({ "prompt": prompt })).await.ok();
        assert_eq!(said["output"], prompt.as_str());
    }
    let page = apis[1].get(&format!("/v1/sessions/{session}/transcript")).await.ok();
    let contents: Vec<&str> =
        page["messages"].as_array().unwrap().iter().filter_map(|message| message["content"].as_str()).collect();
    assert_eq!(contents, ["one", "one", "two", "two", "by 0", "by 0", "by 1", "by 1", "by 2", "by 2"]);
    cluster.stop().await;
}

#[tokio::test]
async fn the_agent_tool_over_mcp_needs_no_stickiness() {
    let Some(cluster) = Cluster::start().await else { return };
    let clients: Vec<hearth_tests::Mcp> = cluster.apis().iter().map(hearth_tests::Api::mcp).collect();
    // The handshake here, the calls there: nothing of it is kept.
    let began = clients[0].initialize().await;
    assert_eq!(began.status(), 200);
    assert!(began.headers().get("mcp-session-id").is_none());
    let opened = clients[1].call("Agent", json!({ "op": "open", "name": "mock", "prompt": "one" })).await.ok();
    let child = opened["child_run_id"].clone();
    for (number, mcp) in clients.iter().cycle().take(6).enumerate() {
        let prompt = format!("to {number}");
        let sent = mcp.call("Agent", json!({ "op": "send", "child_run_id": child, "prompt": prompt })).await.ok();
        assert_eq!(sent["output"], prompt.as_str());
        let rows = mcp.call("Agent", json!({ "op": "list" })).await.ok()["resident"].clone();
        assert_eq!(rows[0]["child_run_id"], child, "{rows}");
    }
    let closed = clients[2].call("Agent", json!({ "op": "close", "child_run_id": child })).await.ok();
    assert_eq!(closed["state"], "closed");
    cluster.stop().await;
}

#[tokio::test]
async fn a_snapshot_is_taken_listed_exported_and_resumed_by_any_replica() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let root = apis[0].open("mock", "root").await;
    let child = apis[1].open_below(&root, "mock", "child").await;
    // More than one message of the store takes.
    let large = "x".repeat(3_000_000);
    apis[2].send(&child, &large).await;
    let snapshot = apis[1].post(&format!("/v1/runs/{root}/snapshot"), json!({})).await.ok();
    let id = snapshot["snapshot_id"].as_str().unwrap();
    for api in &apis {
        let listed = api.get("/v1/snapshots").await.ok();
        assert_eq!(listed["snapshots"], json!([snapshot]));
    }
    let file = apis[2].get(&format!("/v1/snapshots/{id}/export")).await;
    assert_eq!((file.status, file.text.len() as u64), (200, snapshot["size_bytes"].as_u64().unwrap()));
    let import = apis[0].request("POST", "/v1/snapshots/import").body(file.text);
    let brought = apis[0].finish(import).await.ok();
    for (number, snapshot) in [&snapshot, &brought].into_iter().enumerate() {
        let path = format!("/v1/snapshots/{}/resume", snapshot["snapshot_id"].as_str().unwrap());
        let resumes = join_all(apis.iter().map(|api| api.post_with_key(&path, "one", json!({})))).await;
        let resumed: Vec<Value> = resumes.into_iter().map(hearth_tests::Reply::ok).collect();
        assert!(resumed.iter().all(|answer| answer["runs"] == resumed[0]["runs"]), "one key, one tree: {resumed:?}");
        let runs = resumed[0]["runs"].as_array().unwrap();
        let new = runs.iter().find(|run| run["from"] == child.as_str()).unwrap()["run_id"].as_str().unwrap();
        let below = format!("root_run_id={}", resumed[0]["run_id"].as_str().unwrap());
        eventually("both are listed everywhere", async || {
            (apis[number].residents(&below).await.len() == 2).then_some(())
        })
        .await;
        for (number, api) in apis.iter().enumerate() {
            assert_eq!(api.send(new, &format!("to {number}")).await["output"], format!("to {number}").as_str());
        }
        assert_eq!(apis[2].close(resumed[0]["run_id"].as_str().unwrap()).await["closed_descendants"], 1);
    }
    assert_eq!(apis[0].send(&child, "still here").await["output"], "still here");
    cluster.stop().await;
}
