//! Replicas that are to end.

use hearth_tests::{Cluster, ClusterOptions, mock};
use serde_json::json;

use super::owner_other_than;
use super::under_load::{Load, under_load};

const ANN: &str = "token-of-ann-0123456789abcdef";
const OPS: &str = "token-of-ops-0123456789abcdef";

#[tokio::test]
async fn a_drain_by_any_replica_hands_turns_over_and_the_process_ends_well() {
    let options = ClusterOptions::default().token(ANN, "acme", "ann", "member").token(OPS, "acme", "ops", "operator");
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    apis[0].with_token(ANN).post("/v1/_replicas/replica-1/drain", json!({})).await.refused(403, "permission_denied");
    apis[0].post("/v1/_replicas/replica-9/drain", json!({})).await.refused(404, "not_found");
    apis[0].post("/v1/_replicas/replica-1/drain", json!({ "force": true })).await.refused(400, "invalid_argument");
    let parked = apis[1].open("mock", "parked").await;
    let id = apis[1].open("mock", "one").await;
    // A step of three seconds, and a turn behind it: the hand-over is between the two.
    let first = apis[1].start(&id, &mock(json!({ "latency_ms": 3_000, "output": "first" }))).await;
    let turn = apis[1].input(&id, &mock(json!({ "latency_ms": 3_000, "output": "second" }))).await;
    let operator = apis[2].with_token(OPS);
    let drain = || operator.post("/v1/_replicas/replica-1/drain", json!({}));
    let row = drain().await.ok();
    assert_eq!((row["replica_id"].as_str(), row["draining"].as_bool()), (Some("replica-1"), Some(true)), "{row}");
    assert_eq!(apis[1].get("/readyz").await.refused(503, "draining")["retryable"], true);
    let listed = apis[0].get("/v1/_replicas").await.ok();
    assert_eq!(listed["replicas"][1]["draining"], true, "{listed}");
    assert_eq!(drain().await.ok()["draining"], true, "again changes nothing");
    // It passes on what it is asked meanwhile, and takes nothing new.
    let opened = apis[1].open("mock", "elsewhere").await;
    assert_ne!(apis[0].get_run(&opened).await["owner_replica"], "replica-1");
    assert_eq!(cluster.ended("replica-1").await, 0);
    let members = apis[0].get("/v1/_replicas").await.ok();
    assert_eq!(members["replicas"].as_array().unwrap().len(), 2, "it has taken its leave: {members}");
    owner_other_than(&apis[0], &id, Some("replica-1")).await;
    assert_eq!(apis[0].poll_turn(&id, &first).await["output"], "first", "the step that ran was waited for");
    assert_eq!(apis[0].end_of(&id, &turn).await["output"], "second");
    assert_eq!(apis[0].get_run(&id).await["epoch"], 2);
    assert_eq!(apis[2].send(&parked, "still there").await["output"], "still there");
    cluster.restart("replica-1").await;
    assert_eq!(apis[1].get("/readyz").await.status, 200);
    cluster.stop().await;
}

#[tokio::test]
async fn a_rolling_restart_under_load_loses_nothing_and_shows_no_error() {
    let Some(cluster) = Cluster::start().await else { return };
    let restarts = async |load: &Load| {
        for replica in ["replica-0", "replica-1", "replica-2"] {
            assert_eq!(cluster.terminate(replica).await, 0, "{replica}");
            cluster.restart(replica).await;
            load.goes_on().await;
        }
    };
    under_load(&cluster.apis(), restarts).await;
    cluster.stop().await;
}
