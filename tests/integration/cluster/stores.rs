//! Stores that fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use hearth_tests::{Cluster, Persistent, eventually, mock};
use serde_json::json;
use tokio::time::Instant;

use super::{ends, lineage};

#[tokio::test]
async fn t22_nats_restarts_in_the_middle_of_100_sends_and_each_is_there_once() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let client = Persistent::new(apis.clone());
    let residents = join_all((0..10).map(|n| apis[n % 3].open("mock", "one"))).await;
    let done = AtomicUsize::new(0);
    let senders = residents.iter().map(|id| {
        let (client, done) = (&client, &done);
        async move {
            for round in 0..10 {
                let output = format!("{id} {round}");
                let prompt = mock(json!({ "latency_ms": 100, "output": output }));
                let answer = client.send(id, &format!("{id}-{round}"), &prompt).await;
                assert_eq!((answer["outcome"].as_str(), answer["output"].as_str()), (Some("finished"), Some(&*output)));
                done.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let ((), _) = tokio::join!(
        async {
            eventually("thirty are done", async || (done.load(Ordering::Relaxed) >= 30).then_some(())).await;
            cluster.kill("nats-0").await;
            // While it is away, callers are told so and when to come back.
            let told = apis[0].post("/v1/_resident", json!({ "agent": "mock", "prompt": "x" })).await;
            assert!(told.header("retry-after").is_some(), "{}", told.text);
            told.refused(503, "unavailable");
            cluster.restart("nats-0").await;
            let (back, before) = (Instant::now(), done.load(Ordering::Relaxed));
            eventually("it goes on", async || (done.load(Ordering::Relaxed) > before + 1).then_some(())).await;
            let took = back.elapsed();
            assert!(took < Duration::from_secs(5), "it went on after {took:?}");
        },
        join_all(senders)
    );
    for id in &residents {
        assert_eq!(ends(&lineage(&apis[1], id).await).len(), 11, "ten sends and the open, each once");
    }
    // Subscriptions live again: a wait at one replica hears of the end at another.
    let answer = apis[1].send(&residents[0], &mock(json!({ "latency_ms": 300, "output": "heard" }))).await;
    assert_eq!(answer["output"], "heard");
    cluster.stop().await;
}

#[tokio::test]
async fn t23_redis_dies_and_comes_back_empty_in_the_middle_of_turns_and_each_has_one_executor() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let residents = join_all((0..6).map(|n| apis[n % 3].open("mock", "one"))).await;
    let turns = join_all(residents.iter().enumerate().map(|(n, id)| {
        let prompt = mock(json!({ "latency_ms": 6_000, "output": id }));
        let api = &apis[(n + 1) % 3];
        async move { api.start(id, &prompt).await }
    }))
    .await;
    cluster.kill("redis").await;
    for (id, api) in residents.iter().zip(&apis) {
        assert_eq!(api.get_run(id).await["state"], "running", "reads go on without Redis");
    }
    let opened = apis[2].open("mock", "without Redis").await;
    assert_eq!(apis[1].send(&opened, "too").await["output"], "too", "so do writes");
    cluster.restart("redis").await;
    for (id, turn) in residents.iter().zip(&turns) {
        for api in &apis {
            assert_eq!(api.end_of(id, turn).await["output"], id.as_str());
        }
        assert_eq!(apis[0].get_run(id).await["epoch"], 1, "one executor from its beginning to its end");
    }
    for api in &apis {
        eventually("the registry is rebuilt", async || {
            let members = api.get("/v1/_replicas").await.ok();
            (members["replicas"].as_array().unwrap().len() == 3 && members["partial"].is_null()).then_some(())
        })
        .await;
        for id in &residents {
            assert_eq!(api.send(id, "after").await["output"], "after");
        }
    }
    cluster.stop().await;
}

#[tokio::test]
async fn redis_comes_back_empty_while_a_replica_dies_and_nothing_is_forgotten_or_run_twice() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let residents = join_all((0..8).map(|n| apis[n % 2].open("mock", "one"))).await;
    let turns = join_all(residents.iter().map(|id| {
        let prompt = mock(json!({ "latency_ms": 2_500, "output": id }));
        let api = &apis[2];
        async move { api.start(id, &prompt).await }
    }))
    .await;
    tokio::join!(cluster.kill("redis"), cluster.kill("replica-0"));
    cluster.restart("redis").await;
    for (id, turn) in residents.iter().zip(&turns) {
        let end = apis[2].end_of(id, turn).await;
        assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some(id.as_str())));
        assert_eq!(ends(&lineage(&apis[1], id).await).len(), 2, "each turn ended once");
    }
    let of_the_living: Vec<_> = residents.iter().skip(1).step_by(2).collect();
    for id in of_the_living {
        assert_eq!(apis[1].get_run(id).await["epoch"], 1, "nobody took a turn from an owner that lives");
    }
    cluster.restart("replica-0").await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_journal_without_room_refuses_writes_clearly_and_reads_go_on() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let id = apis[0].open("mock", "one").await;
    let turn = apis[1].start(&id, &mock(json!({ "latency_ms": 1_500, "output": "waited for room" }))).await;
    cluster.fill_journal(true).await;
    for api in &apis {
        let told = api.post("/v1/_resident", json!({ "agent": "mock", "prompt": "x" })).await;
        assert!(told.header("retry-after").is_some(), "{}", told.text);
        let error = told.refused(503, "unavailable");
        assert!(error["message"].as_str().unwrap().contains("no room"), "{error}");
        assert_eq!(api.get_run(&id).await["run_id"], id.as_str(), "reads go on");
        assert_eq!(api.residents("").await.len(), 1, "lists too");
        assert_eq!(api.get("/readyz").await.status, 200, "it can serve what needs no room");
    }
    // The turn comes to its end, which there is no room for.
    eventually("its activation has given up", async || {
        let text = apis[0].get("/metrics").await.text;
        text.lines().any(|line| line == "hearth_stepped_down_total{reason=\"journal\"} 1").then_some(())
    })
    .await;
    assert_eq!(apis[2].poll_turn(&id, &turn).await["state"], "running");
    cluster.fill_journal(false).await;
    let end = apis[1].end_of(&id, &turn).await;
    assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some("waited for room")));
    assert_eq!(Persistent::new(apis.clone()).send(&id, "after", "room again").await["output"], "room again");
    assert_eq!(ends(&lineage(&apis[0], &id).await).len(), 3, "each turn ended once");
    cluster.stop().await;
}
