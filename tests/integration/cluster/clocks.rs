//! Clocks that disagree.

use std::path::Path;
use std::time::Duration;

use hearth_tests::{ClusterOptions, mock};
use serde_json::json;

use super::owner;

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

#[tokio::test]
async fn t38_a_clock_five_minutes_off_steals_no_lease_and_loses_none() {
    if !Path::new(LIBRARY).exists() {
        return println!("skipped: there is no libfaketime");
    }
    let options = ClusterOptions::default().replicas(2).variable("HEARTH_REPLICA_LEASE_MS", 1_500);
    let Some(cluster) = options.start().await else { return };
    let off = |by| [("LD_PRELOAD", LIBRARY), ("FAKETIME", by), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
    let ahead = cluster.join("ahead", &off("+300s")).await;
    let behind = cluster.join("behind", &off("-300s")).await;
    let right = cluster.api(0);
    let mut turns = Vec::new();
    for (name, api) in [("ahead", &ahead), ("behind", &behind), ("replica-0", &right)] {
        let id = api.open("mock", "one").await;
        let turn = right.start(&id, &mock(json!({ "latency_ms": 5_000, "output": name }))).await;
        turns.push((name, id, turn));
    }
    // More than three leases, in which nobody may take anything from anybody.
    let watched = tokio::time::Instant::now() + Duration::from_millis(4_600);
    while tokio::time::Instant::now() < watched {
        for api in [&ahead, &behind, &right] {
            let members = api.get("/v1/_replicas").await.ok();
            assert_eq!(members["replicas"].as_array().unwrap().len(), 4, "{members}");
            for (name, id, _) in &turns {
                assert_eq!(owner(api, id).await.as_deref(), Some(*name));
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for (name, id, turn) in &turns {
        for api in [&behind, &ahead, &right] {
            let end = api.end_of(id, turn).await;
            assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some(*name)));
        }
        assert_eq!(right.get_run(id).await["epoch"], 1, "nobody took over");
    }
    // Idle times are those of the stores too: a run used by one is not overdue for another.
    let id = behind.open("mock", "one").await;
    for api in [&ahead, &behind, &right] {
        assert_eq!(api.send(&id, "hello").await["output"], "hello");
    }
    cluster.stop().await;
}
