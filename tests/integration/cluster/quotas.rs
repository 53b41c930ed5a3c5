//! What a tenant may have, over all replicas.

use futures::future::join_all;
use hearth_tests::{Api, ClusterOptions, Reply, eventually};
use serde_json::json;

const ANN: &str = "token-of-ann-0123456789abcdef";
const EVE: &str = "token-of-eve-0123456789abcdef";

fn options() -> ClusterOptions {
    ClusterOptions::default()
        .token(ANN, "acme", "ann", "member")
        .token(EVE, "other", "eve", "member")
        .variable("HEARTH_MAX_RUNS_PER_TENANT", 5)
}

async fn open(api: &Api) -> Reply {
    api.post("/v1/_resident", json!({ "agent": "mock", "prompt": "x" })).await
}

fn refused(reply: Reply) -> serde_json::Value {
    assert!(reply.header("retry-after").is_some(), "{}", reply.text);
    let error = reply.refused(429, "quota_exceeded");
    assert_eq!((error["details"]["limit"].as_u64(), error["retryable"].as_bool()), (Some(5), Some(true)), "{error}");
    error
}

#[tokio::test]
async fn a_tenants_quota_is_exact_under_concurrent_opens_at_all_replicas() {
    let Some(cluster) = options().start().await else { return };
    let apis: Vec<Api> = cluster.apis().iter().map(|api| api.with_token(ANN)).collect();
    let replies = join_all((0..18).map(|n| open(&apis[n % 3]))).await;
    let (opened, others): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 200);
    assert_eq!(opened.len(), 5);
    others.into_iter().for_each(|reply| drop(refused(reply)));
    assert_eq!(apis[1].residents("").await.len(), 5, "a refused open leaves no trace");
    assert_eq!(open(&apis[0].with_token(EVE)).await.status, 200, "another tenant has its own");
    let ids: Vec<String> =
        opened.into_iter().map(|reply| reply.body["child_run_id"].as_str().unwrap().to_owned()).collect();
    let below = apis[2].post("/v1/_resident", json!({ "agent": "mock", "prompt": "x", "parent_run_id": ids[0] })).await;
    refused(below);
    assert_eq!(apis[2].send(&ids[4], "those that are there go on").await["state"], "awaiting_input");
    apis[2].close(&ids[4]).await;
    let next = eventually("a closed run gives its place back", async || {
        let reply = open(&apis[0]).await;
        (reply.status == 200).then_some(reply)
    })
    .await;
    assert!(next.body["child_run_id"].is_string());
    refused(open(&apis[1]).await);
    cluster.stop().await;
}

#[tokio::test]
async fn places_come_back_when_a_replica_dies_and_are_counted_again_when_redis_is_lost() {
    let Some(cluster) = options().start().await else { return };
    let apis: Vec<Api> = cluster.apis().iter().map(|api| api.with_token(ANN)).collect();
    let ids: Vec<String> = join_all((0..5).map(|_| open(&apis[0])))
        .await
        .into_iter()
        .map(|reply| reply.body["child_run_id"].as_str().unwrap().to_owned())
        .collect();
    // Closed while Redis is away: nobody there hears of it.
    cluster.kill("redis").await;
    refused(open(&apis[1]).await);
    apis[1].close(&ids[0]).await;
    assert_eq!(open(&apis[2]).await.status, 200, "without Redis each replica counts by its index");
    let told = refused(open(&apis[2]).await);
    assert_eq!(told["details"]["approximate"], true, "{told}");
    cluster.restart("redis").await;
    let error = eventually("it is counted in Redis again", async || {
        let error = refused(open(&apis[1]).await);
        let text = apis[1].get("/v1/_replicas").await;
        (text.body["partial"].is_null()).then_some(error)
    })
    .await;
    assert_eq!((error["details"]["taken"].as_u64(), error["details"]["approximate"].as_bool()), (Some(5), Some(true)));
    cluster.kill("replica-0").await;
    apis[1].close(&ids[1]).await;
    eventually("its place comes back", async || (open(&apis[2]).await.status == 200).then_some(())).await;
    refused(open(&apis[1]).await);
    cluster.restart("replica-0").await;
    cluster.stop().await;
}
