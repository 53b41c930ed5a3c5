//! Replicas that die.

use std::time::Duration;

use futures::future::join_all;
use hearth_tests::{Cluster, ClusterOptions, Persistent, eventually, mock, within};
use serde_json::json;
use tokio::time::Instant;

use super::{ends, lineage, owner, owner_other_than};

/// What the contract allows for a turn to be resumed, and what a busy machine adds.
const RESUMED_WITHIN: Duration = Duration::from_secs(5);

#[tokio::test]
async fn t24_turns_go_on_elsewhere_after_kill_9_and_blocked_sends_return_their_results() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let residents = join_all((0..12).map(|_| apis[0].open("mock", "one"))).await;
    let parked = residents[0].clone();
    let blocked = residents.iter().skip(1).enumerate().map(|(n, id)| {
        let client = Persistent::new(vec![apis[1 + n % 2].clone()]);
        async move { client.send(id, &format!("key-{n}"), &mock(json!({ "latency_ms": 2_000, "output": id }))).await }
    });
    let (answers, ()) = tokio::join!(join_all(blocked), async {
        eventually("all turns run on replica-0", async || {
            let rows = apis[1].residents("state=running").await;
            (rows.len() == 11).then_some(())
        })
        .await;
        cluster.kill("replica-0").await;
        let died = Instant::now();
        eventually("all turns have another owner", async || {
            let rows = apis[1].residents("state=running").await;
            rows.iter().all(|row| row["owner_replica"] != "replica-0" && row["owner_replica"].is_string()).then_some(())
        })
        .await;
        let took = died.elapsed();
        assert!(took < RESUMED_WITHIN, "resumed after {took:?}");
    });
    for (id, answer) in residents.iter().skip(1).zip(&answers) {
        assert_eq!((answer["outcome"].as_str(), answer["output"].as_str()), (Some("finished"), Some(id.as_str())));
        assert_eq!(ends(&lineage(&apis[2], id).await).len(), 2, "the first turn and this one, each once");
    }
    let row = apis[1].get_run(&parked).await;
    assert_eq!((row["state"].as_str(), row["epoch"].as_u64()), (Some("awaiting_input"), Some(1)), "{row}");
    assert_eq!(apis[2].send(&parked, "still there").await["output"], "still there");
    cluster.restart("replica-0").await;
    assert_eq!(apis[0].send(&parked, "here again").await["output"], "here again");
    cluster.stop().await;
}

#[tokio::test]
async fn t24_after_all_replicas_died_the_first_that_is_back_goes_on_with_everything() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let residents = join_all((0..9).map(|n| apis[n % 3].open("mock", "one"))).await;
    let turns = join_all(residents.iter().enumerate().map(|(n, id)| {
        let prompt = mock(json!({ "latency_ms": 1_500, "output": id }));
        let api = &apis[(n + 1) % 3];
        async move { api.start(id, &prompt).await }
    }))
    .await;
    join_all(["replica-0", "replica-1", "replica-2"].map(|id| cluster.kill(id))).await;
    cluster.restart("replica-1").await;
    let api = &apis[1];
    eventually("nobody calls, and every turn has ended", async || {
        let page = api.get("/v1/runs?state=running").await.ok();
        page["runs"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    for (id, turn) in residents.iter().zip(&turns) {
        let end = api.poll_turn(id, turn).await;
        assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some(id.as_str())));
        assert_eq!(api.send(id, "next").await["output"], "next");
    }
    let page = api.residents("").await;
    assert!(page.iter().all(|row| row["turns"] == 3), "{page:?}");
    cluster.restart("replica-0").await;
    cluster.stop().await;
}

#[tokio::test]
async fn t20_an_owner_that_was_stopped_past_its_lease_loses_and_is_a_good_member_again() {
    let Some(cluster) = Cluster::start().await else { return };
    let apis = cluster.apis();
    let id = apis[0].open("mock", "one").await;
    let idle = apis[0].open("mock", "idle").await;
    let first = apis[1].start(&id, &mock(json!({ "latency_ms": 6_000, "output": "first" }))).await;
    cluster.pause("replica-0");
    let second = apis[1].send(&id, "second").await;
    assert_eq!((second["outcome"].as_str(), second["output"].as_str()), (Some("finished"), Some("second")));
    assert_eq!(apis[2].poll_turn(&id, &first).await["output"], "first");
    assert_eq!(apis[2].send(&idle, "elsewhere").await["output"], "elsewhere");
    let (epoch, now) = (apis[1].get_run(&id).await["epoch"].clone(), owner(&apis[1], &id).await);
    assert_ne!(now.as_deref(), Some("replica-0"));
    cluster.resume("replica-0");
    eventually("the stale activations have stepped down", async || {
        let text = apis[0].get("/metrics").await.text;
        let active =
            text.lines().find_map(|line| line.strip_prefix("hearth_residents_active "))?.parse::<u64>().ok()?;
        let turns = text.lines().find_map(|line| line.strip_prefix("hearth_turns_running "))?.parse::<u64>().ok()?;
        (active == 0 && turns == 0).then_some(())
    })
    .await;
    assert_eq!(apis[0].send(&id, "third").await["output"], "third");
    assert_eq!(apis[0].get_run(&id).await["epoch"], epoch, "the stale one has taken nothing back");
    assert_eq!(ends(&lineage(&apis[0], &id).await).len(), 4, "one lineage: three turns and that of the open");
    let fresh = apis[0].open("mock", "fresh").await;
    assert_eq!(owner(&apis[2], &fresh).await.as_deref(), Some("replica-0"), "it serves again as a good member");
    cluster.stop().await;
}

#[tokio::test]
async fn t43_a_turn_whose_owner_dies_each_time_ends_failed_and_the_cluster_lives() {
    let options = ClusterOptions::default().variable("HEARTH_REPLICA_LEASE_MS", 1_000);
    let Some(cluster) = options.start().await else { return };
    let id = cluster.api(0).open("mock", "one").await;
    let turn = cluster.api(0).start(&id, &mock(json!({ "latency_ms": 120_000 }))).await;
    let mut dead = "replica-0".to_owned();
    let mut kills = 0;
    loop {
        cluster.kill(&dead).await;
        kills += 1;
        assert!(kills <= 4, "it kills its host again and again");
        let witness = cluster.api(usize::from(dead == "replica-0"));
        let next = within(Duration::from_secs(20), "another owner, or the end", async || {
            // In this order: the activation that gives the turn up does so in its first act.
            let now = owner(&witness, &id).await.filter(|now| now != &dead);
            if witness.poll_turn(&id, &turn).await["outcome"] == "failed" {
                return Some(None);
            }
            now.map(Some)
        })
        .await;
        cluster.restart(&dead).await;
        let Some(next) = next else { break };
        dead = next;
    }
    assert_eq!(kills, 4, "three activations after the one that began the turn are tried");
    let end = cluster.api(1).poll_turn(&id, &turn).await;
    assert!(end["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{end}");
    for api in cluster.apis() {
        assert_eq!(api.send(&id, "usable").await["output"], "usable");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn parked_residents_of_a_dead_replica_cost_nothing_until_they_are_called() {
    let options = ClusterOptions::default().replicas(2);
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    let residents = join_all((0..60).map(|_| apis[0].open("mock", "one"))).await;
    let runner = apis[0].open("mock", "runner").await;
    apis[0].start(&runner, &mock(json!({ "latency_ms": 2_000 }))).await;
    cluster.kill("replica-0").await;
    owner_other_than(&apis[1], &runner, Some("replica-0")).await;
    let text = apis[1].get("/metrics").await.text;
    assert!(text.lines().any(|line| line == "hearth_residents_active 1"), "only the running one was woken: {text}");
    for id in residents.iter().take(5) {
        assert_eq!(apis[1].send(id, "called").await["output"], "called");
    }
    cluster.restart("replica-0").await;
    cluster.stop().await;
}
