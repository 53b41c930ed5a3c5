//! Stores that fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use hearth_tests::{Api, Cluster, ClusterOptions, Event, Persistent, SlowReader, eventually, mock};
use serde_json::json;
use tokio::time::Instant;

use super::{ends, lineage, owner, start_at};

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
        let mut texts = String::new();
        for api in &apis {
            texts += &api.get("/metrics").await.text;
        }
        texts.lines().any(|line| line == "hearth_stepped_down_total{reason=\"journal\"} 1").then_some(())
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

/// Long turns of parked residents, each begun where `at` says.
async fn begin(cluster: &Cluster, residents: &[String], at: impl Fn(usize) -> usize, latency_ms: u64) -> Vec<String> {
    let mut turns = Vec::new();
    for (n, id) in residents.iter().enumerate() {
        turns.push(start_at(&cluster.api(at(n)), id, latency_ms, id).await);
    }
    turns
}

#[tokio::test]
async fn redis_fails_over_to_a_stale_copy_and_a_replica_dies_and_nothing_is_forgotten_or_run_twice() {
    let options = ClusterOptions::default().variable("HEARTH_PASSIVATE_AFTER_MS", 300);
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    let residents = join_all((0..6).map(|n| apis[n % 3].open("mock", "one"))).await;
    // What the copy says: every run is at replica-0.
    begin(&cluster, &residents, |_| 0, 1_500).await;
    for id in &residents {
        assert_eq!(owner(&apis[1], id).await.as_deref(), Some("replica-0"));
    }
    cluster.save_redis().await;
    // What is so later: each is at one of the others, half of them at one that dies with Redis.
    let turns = begin(&cluster, &residents, |n| 1 + n % 2, 3_000).await;
    let mut epochs = Vec::new();
    for id in &residents {
        epochs.push(apis[0].get_run(id).await["epoch"].as_u64().unwrap());
    }
    tokio::join!(cluster.kill("redis"), cluster.kill("replica-2"));
    cluster.restart("redis").await;
    for (n, (id, turn)) in residents.iter().zip(&turns).enumerate() {
        let end = apis[n % 2].end_of(id, turn).await;
        assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some(id.as_str())));
        assert_eq!(ends(&lineage(&apis[1], id).await).len(), 3, "each turn ended once");
        let now = apis[0].get_run(id).await["epoch"].as_u64().unwrap();
        if n % 2 == 0 {
            assert_eq!(now, epochs[n], "nobody took a turn from an owner that lives");
        } else {
            assert!(now > epochs[n], "somebody took the turn of the one that died");
        }
    }
    for api in &apis[..2] {
        eventually("the registry is rebuilt", async || {
            let members = api.get("/v1/_replicas").await.ok();
            (members["replicas"].as_array().unwrap().len() == 2 && members["partial"].is_null()).then_some(())
        })
        .await;
        for id in &residents {
            assert_eq!(api.send(id, "after").await["output"], "after", "it is found wherever it is");
        }
    }
    cluster.restart("replica-2").await;
    cluster.stop().await;
}

#[tokio::test]
async fn t22_a_reader_that_stands_still_is_cut_and_counted_and_resumes_at_another_replica() {
    let options = ClusterOptions::default().variable("HEARTH_STREAM_STALL", "1s");
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    let id = apis[0].open("mock", "one").await;
    let mut slow = SlowReader::open(cluster.address("replica-1"), &id).await;
    let mut other = apis[2].stream(&id, None).await;
    let stalled = async |api: &Api| {
        api.metric("hearth_http_connections_stalled_total").await + api.metric("hearth_http_streams_cut_total").await
    };
    let last = |event: &Event| event.ends_turn() && event.data["output"] == "others go on";
    let numbers = |events: &[Event]| events.iter().filter_map(|event| event.id).collect::<Vec<u64>>();
    let load = async {
        // More than the sockets between hold.
        let big = "x".repeat(1 << 20);
        let mut sent = 0;
        while stalled(&apis[1]).await < 1.0 {
            assert!(sent < 100, "it is never cut");
            assert_eq!(apis[0].send(&id, &mock(json!({ "output": big }))).await["outcome"], "finished");
            sent += 1;
        }
        assert_eq!(apis[0].send(&id, "others go on").await["output"], "others go on");
    };
    let (whole, ()) = tokio::join!(other.until(last), load);
    let whole = numbers(&whole);
    assert_eq!(stalled(&apis[2]).await, 0.0, "whoever reads is not cut");
    let mut seen = slow.ids(usize::MAX).await;
    assert!(seen.len() < whole.len(), "the slow reader missed nothing");
    seen.extend(numbers(&apis[2].stream(&id, seen.last().copied()).await.until(last).await));
    assert_eq!(seen, whole, "what it missed comes when it resumes elsewhere, each event once");
    assert_eq!(apis[0].get_run(&id).await["epoch"], 1, "its run was not disturbed");
    cluster.stop().await;
}
