//! The contract on several replicas, with their stores, all real processes; and what happens when any of them dies.

mod anywhere;
mod clocks;
mod drain;
mod failover;
mod leaks;
mod nodes;
mod quotas;
mod repartition;
mod restarts;
mod stale;
mod stores;
mod trace;
mod trees;
mod under_load;
mod versions;

use hearth_tests::{Api, eventually, mock};
use serde_json::json;

/// The replica that has the run's activation.
async fn owner(api: &Api, id: &str) -> Option<String> {
    api.get_run(id).await["owner_replica"].as_str().map(str::to_owned)
}

/// Waits until somebody has it, or somebody else than before.
async fn owner_other_than(api: &Api, id: &str, before: Option<&str>) -> String {
    eventually(&format!("{id} has an owner other than {before:?}"), async || {
        owner(api, id).await.filter(|now| before != Some(now.as_str()))
    })
    .await
}

/// Begins a long turn of a parked resident where `api` is, which makes that replica its owner. Needs residents that are
/// soon passivated.
async fn start_at(api: &Api, id: &str, latency_ms: u64, output: &str) -> String {
    eventually(&format!("{id} is in no memory"), async || owner(api, id).await.is_none().then_some(())).await;
    api.start(id, &mock(json!({ "latency_ms": latency_ms, "output": output }))).await
}

/// Everything that the run's journal holds, each event once and in order, up to the end of the newest turn.
async fn lineage(api: &Api, id: &str) -> Vec<hearth_tests::Event> {
    let newest = api.poll(id).await["turn_id"].clone();
    let mut events = api.stream(id, None).await;
    let seen = events.until(|event| event.ends_turn() && event.data["turn_id"] == newest).await;
    let ids: Vec<u64> = seen.iter().filter_map(|event| event.id).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "an event twice, or out of order: {ids:?}");
    seen
}

/// How often each turn ended.
fn ends(events: &[hearth_tests::Event]) -> Vec<String> {
    let turns = events.iter().filter(|event| event.ends_turn());
    turns.map(|event| event.data["turn_id"].as_str().unwrap_or_default().to_owned()).collect()
}
