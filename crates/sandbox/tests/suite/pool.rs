//! Sessions that are ready before anybody asks.

use std::collections::BTreeSet;

use futures::future::join_all;
use hearth_sandbox::{Caller, OpenArgs};
use hearth_types::SandboxId;

use super::bench::{Bench, Place, caller, run, until};

/// The members once there are so many.
async fn filled(bench: &Bench, size: usize) -> BTreeSet<SandboxId> {
    until("the pool is full", || async { bench.node().pooled().len() == size }).await;
    bench.node().pooled().into_iter().collect()
}

/// What is written down of the pool.
fn records(bench: &Bench) -> usize {
    std::fs::read_dir(bench.options.state_dir.join("pool")).unwrap().count()
}

async fn with_pool(place: Place, size: usize) -> Bench {
    Bench::with(place, |options| options.pool_size = size).await
}

fn own() -> OpenArgs {
    OpenArgs { own: Some(true), ..OpenArgs::default() }
}

pub async fn t13_a_crowd_drains_the_pool_and_the_rest_starts_cold(place: Place) {
    let bench = with_pool(place, 3).await;
    let ready = filled(&bench, 3).await;
    let hand = bench.hand(caller("acme"));
    let opened = join_all((0..8).map(|_| hand.open())).await;
    let ids: BTreeSet<SandboxId> = opened.iter().map(|opened| opened.session_id.clone()).collect();
    assert_eq!(ids.len(), 8, "each open has a session of its own");
    let warm: BTreeSet<SandboxId> =
        opened.iter().filter(|opened| opened.warm).map(|opened| opened.session_id.clone()).collect();
    assert!(warm.is_superset(&ready), "{warm:?} {ready:?}");
    assert!(warm.len() < 8, "an empty pool is a cold start, not a wait");
    for id in &ids {
        assert_eq!(hand.sh(id, "pwd > f; cat f").await.exit_code, Some(0));
    }
    let next = filled(&bench, 3).await;
    assert!(next.is_disjoint(&ids), "it is filled again");
    bench.node().close_all().await.unwrap();
    assert_eq!(records(&bench), 0, "and drained at the end");
    bench.finish().await;
}

pub async fn a_pooled_session_is_as_any_other(place: Place) {
    let mut bench = with_pool(place, 1).await;
    filled(&bench, 1).await;
    let call = || Caller { call: Some("call_1".into()), ..run("run_root", "run_root") };
    let first = bench.hand(call()).try_open(own()).await.unwrap();
    assert!(first.warm && !first.persistent);
    let again = bench.hand(call()).try_open(own()).await.unwrap();
    assert_eq!((&again.session_id, again.warm), (&first.session_id, true), "the same call, the same answer");
    bench.hand(call()).sh(&first.session_id, "echo kept > f").await;
    bench.restart().await;
    let hand = bench.hand(call());
    assert_eq!(hand.sh(&first.session_id, "cat f").await.output, "kept\n", "it outlives its node");
    let again = hand.try_open(own()).await.unwrap();
    assert_eq!((&again.session_id, again.warm), (&first.session_id, true));
    hand.close(&first.session_id).await.unwrap();
    let durable = hand.workspace("build").await;
    assert!(!durable.warm, "a workspace is not mounted into what runs already");
    bench.finish().await;
}

pub async fn t1_a_node_that_is_killed_finds_its_pool_again(place: Place) {
    let mut bench = with_pool(place, 2).await;
    let ready = filled(&bench, 2).await;
    bench.restart().await;
    assert!(filled(&bench, 2).await.iter().any(|id| ready.contains(id)), "they are not made anew");
    assert!(bench.hand(caller("acme")).open().await.warm);
    bench.kill();
    bench.options.pool_size = 0;
    bench.restart().await;
    until("a pool that is not wanted any more is removed", || async { records(&bench) == 0 }).await;
    bench.finish().await;
}
