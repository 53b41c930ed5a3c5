//! Members of two versions in one cluster. The next version is this one, told to write what this one does not know; see
//! `HEARTH_NEXT_VERSION`, which debug builds have.

use hearth_tests::{Cluster, ClusterOptions, eventually};
use serde_json::json;

use super::under_load::{Load, under_load};
use super::{owner_other_than, start_at};

const NEXT: &str = "HEARTH_NEXT_VERSION";

#[tokio::test]
async fn members_of_two_minor_versions_serve_one_cluster_through_a_rolling_upgrade_under_load() {
    let Some(cluster) = Cluster::start().await else { return };
    let mut apis = cluster.apis();
    apis.push(cluster.join("next-0", &[(NEXT, "minor")]).await);
    let upgrade = async |load: &Load| {
        // Runs go to the next version and come back.
        for replica in ["replica-0", "next-0", "replica-1"] {
            assert_eq!(cluster.terminate(replica).await, 0, "{replica}");
            load.goes_on().await;
            if replica.starts_with("replica") {
                cluster.restart(replica).await;
            }
        }
    };
    under_load(&apis, upgrade).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_run_of_the_next_major_version_is_left_to_members_that_can_read_it() {
    let options = ClusterOptions::default().replicas(2).variable("HEARTH_PASSIVATE_AFTER_MS", 300);
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    let next = [(NEXT, "major"), ("HEARTH_PASSIVATE_AFTER_MS", "300")];
    let newer = cluster.join("next-0", &next).await;
    let (own, theirs) = (apis[0].open("mock", "own").await, newer.open("mock", "theirs").await);
    // Whoever is asked passes it on; nobody who cannot read it takes it.
    for api in apis.iter().chain([&newer]) {
        assert_eq!(api.send(&theirs, "sent").await["output"], "sent");
    }
    assert_eq!(apis[1].send(&own, "sent").await["output"], "sent");
    let epoch = newer.get_run(&theirs).await["epoch"].as_u64().unwrap();
    let again = cluster.join("next-1", &next).await;
    let turn = start_at(&newer, &theirs, 3_000, "went on").await;
    cluster.kill("next-0").await;
    assert_eq!(owner_other_than(&again, &theirs, Some("next-0")).await, "next-1");
    let end = again.end_of(&theirs, &turn).await;
    assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some("went on")));
    assert!(again.get_run(&theirs).await["epoch"].as_u64().unwrap() > epoch);
    // Without any member of that version it waits, unharmed, and says what is missing.
    cluster.kill("next-1").await;
    let told = eventually("it is nobody's", async || {
        let told = apis[0].post(&format!("/v1/_resident/{theirs}/send"), json!({ "prompt": "in vain" })).await;
        told.text.contains("newer version").then_some(told)
    })
    .await;
    assert!(told.header("retry-after").is_some(), "{}", told.text);
    told.refused(503, "unavailable");
    assert_eq!(apis[1].send(&own, "goes on").await["output"], "goes on", "others are served");
    let back = cluster.join("next-2", &next).await;
    assert_eq!(back.send(&theirs, "back").await["output"], "back");
    for id in [&theirs, &own] {
        back.close(id).await;
    }
    cluster.stop().await;
}
