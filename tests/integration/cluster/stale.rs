//! Members that can reach one store and not the other, and answers that are lost on the way.

use std::time::Duration;

use hearth_tests::{ClusterOptions, Persistent, Proxy, eventually, mock};
use serde_json::json;

use super::{ends, lineage, owner, owner_other_than};

#[tokio::test]
async fn t42_an_owner_cut_off_from_nats_loses_its_turn_to_another_and_serves_again_later() {
    let Some(cluster) = ClusterOptions::default().replicas(2).start().await else { return };
    let way = Proxy::to(cluster.nats_url()).await;
    let cut_off = cluster.join("cut-off", &[("HEARTH_NATS_URL", &format!("nats://{}", way.address()))]).await;
    let api = cluster.api(0);
    let id = cut_off.open("mock", "one").await;
    let turn = cut_off.start(&id, &mock(json!({ "latency_ms": 4_000, "output": "went on" }))).await;
    way.hold();
    let now = owner_other_than(&api, &id, Some("cut-off")).await;
    assert!(now.starts_with("replica-"), "{now}");
    let asked = cut_off.request("POST", &format!("/v1/_resident/{id}/send")).json(&json!({ "prompt": "in vain" }));
    let told = cut_off.finish(asked).await;
    let error = told.clone().refused(503, "unavailable");
    assert!(told.header("retry-after").is_some(), "{error}");
    let ready = cut_off.get("/readyz").await;
    assert_eq!(ready.status, 503, "it says that it cannot serve: {}", ready.text);
    let end = api.end_of(&id, &turn).await;
    assert_eq!((end["outcome"].as_str(), end["output"].as_str()), (Some("finished"), Some("went on")));
    way.open();
    eventually("it is a member again", async || {
        let members = api.get("/v1/_replicas").await.ok();
        let rows = members["replicas"].as_array().unwrap();
        rows.iter().any(|row| row["replica_id"] == "cut-off").then_some(())
    })
    .await;
    let sent = Persistent::new(vec![cut_off.clone()]).send(&id, "after", "back").await;
    assert_eq!(sent["output"], "back");
    assert_eq!(ends(&lineage(&api, &id).await).len(), 3, "each turn ended once");
    let fresh = cut_off.open("mock", "fresh").await;
    assert_eq!(owner(&api, &fresh).await.as_deref(), Some("cut-off"));
    cluster.stop().await;
}

#[tokio::test]
async fn t41_when_the_acknowledgement_of_a_turns_end_is_lost_cancel_and_completion_agree() {
    // A long lease: nobody may take the run over while its owner waits.
    let options = ClusterOptions::default().replicas(2).variable("HEARTH_REPLICA_LEASE_MS", 20_000);
    let Some(cluster) = options.start().await else { return };
    let way = Proxy::to(cluster.nats_url()).await;
    let url = format!("nats://{}", way.address());
    let owner = cluster.join("owner", &[("HEARTH_NATS_URL", &url)]).await;
    let id = owner.open("mock", "one").await;
    for round in 0..4_u64 {
        let output = format!("round {round}");
        let client = Persistent::new(vec![owner.clone()]);
        let prompt = json!({ "text": mock(json!({ "latency_ms": 700, "output": output })) });
        let accepted = client.post(&format!("/v1/runs/{id}/input"), &output, &prompt).await;
        let turn = accepted["turn_id"].as_str().unwrap().to_owned();
        let epoch = owner.get_run(&id).await["epoch"].clone();
        way.lose_answers();
        let path = format!("/v1/_resident/{id}/cancel");
        // The turn's end is stored and not acknowledged; the cancel comes while that is open.
        let (cancelled, ()) = tokio::join!(owner.post(&path, json!({ "turn_id": turn })), async {
            tokio::time::sleep(Duration::from_millis(500 + 400 * round)).await;
            way.open();
        });
        let end = client.get(&format!("/v1/_resident/{id}?turn_id={turn}&timeout_ms=20000")).await;
        let outcome = end["outcome"].as_str().unwrap_or_default().to_owned();
        if cancelled.status == 200 {
            assert_eq!(cancelled.body["stopped"] == true, outcome == "cancelled", "{} {end}", cancelled.text);
        } else {
            assert!(matches!(cancelled.status, 503 | 504), "{}", cancelled.text);
        }
        assert!(matches!(outcome.as_str(), "finished" | "cancelled"), "{end}");
        let other = cluster.api(0).poll_turn(&id, &turn).await;
        assert_eq!((&other["outcome"], &other["output"]), (&end["outcome"], &end["output"]), "one decision");
        assert_eq!(client.get(&format!("/v1/runs/{id}")).await["epoch"], epoch, "it did not take itself for fenced");
    }
    assert_eq!(ends(&lineage(&cluster.api(1), &id).await).len(), 5, "each turn ended once");
    cluster.stop().await;
}
