//! A change of the cluster's members while a dozen residents are sent to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use hearth_tests::{Api, ClusterOptions, Persistent, eventually, mock};
use serde_json::json;

use super::{ends, lineage};

const RESIDENTS: usize = 12;

/// What the change sees of the load beside it.
#[derive(Default)]
pub(super) struct Load {
    over: AtomicBool,
    sent: AtomicUsize,
}

impl Load {
    /// Waits until each resident has answered once more, on the average.
    pub(super) async fn goes_on(&self) {
        let before = self.sent.load(Ordering::Relaxed);
        let more = async || (self.sent.load(Ordering::Relaxed) > before + RESIDENTS).then_some(());
        eventually("the load goes on", more).await;
    }

    async fn send(&self, client: &Persistent, id: &str) -> Vec<String> {
        let mut turns = Vec::new();
        while !self.over.load(Ordering::Relaxed) {
            let output = format!("{id} {}", turns.len());
            let prompt = mock(json!({ "latency_ms": 150, "output": output }));
            let answer = client.send(id, &output, &prompt).await;
            assert_eq!((answer["outcome"].as_str(), answer["output"].as_str()), (Some("finished"), Some(&*output)));
            turns.push(answer["turn_id"].as_str().unwrap().to_owned());
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        turns
    }
}

/// Sends until `change` is through. No send may fail, and each acknowledged turn is in its run's journal once,
/// with no other.
pub(super) async fn under_load(apis: &[Api], change: impl AsyncFnOnce(&Load)) {
    let client = Persistent::new(apis.to_vec());
    let residents = join_all((0..RESIDENTS).map(|n| apis[n % apis.len()].open("mock", "one"))).await;
    let load = Load::default();
    let changed = async {
        change(&load).await;
        load.over.store(true, Ordering::Relaxed);
    };
    let (sent, ()) = tokio::join!(join_all(residents.iter().map(|id| load.send(&client, id))), changed);
    for (id, turns) in residents.iter().zip(&sent) {
        let mut ended = ends(&lineage(&apis[1], id).await);
        ended.remove(0);
        assert_eq!(&ended, turns, "each acknowledged turn once, and no other");
    }
}

/// Who waits at another replica hears of the end by an event, or asks again when many more turns have ended: neither
/// may cost a look through the run's whole history.
#[tokio::test]
async fn a_busy_resident_is_answered_for_by_every_replica_from_memory() {
    let Some(cluster) = ClusterOptions::default().start().await else { return };
    let apis = cluster.apis();
    let id = apis[0].open("mock", "first").await;
    // Turns that end all at once, about when those who wait for them ask again.
    for latency in (80..130).step_by(2) {
        apis[0].start(&id, &mock(json!({ "latency_ms": latency, "output": "o" }))).await;
        let sends = (0..15).map(|number| {
            let (api, id) = (&apis[number % apis.len()], &id);
            async move {
                let output = format!("{latency}-{number}");
                assert_eq!(api.send(id, &mock(json!({ "output": output }))).await["output"], output.as_str());
            }
        });
        join_all(sends).await;
    }
    let mut lookups = 0.0;
    for api in &apis {
        lookups += api.metric("hearth_turn_lookups_total").await;
    }
    assert_eq!(lookups, 0.0);
    cluster.stop().await;
}
