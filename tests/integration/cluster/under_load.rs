//! A change of the cluster's members while a dozen residents are sent to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::future::join_all;
use hearth_tests::{Api, Persistent, eventually, mock};
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
