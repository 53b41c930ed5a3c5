//! Compares what the clients were told with what the journals hold, once everything is mended.

use std::collections::BTreeMap;
use std::time::Duration;

use hearth_tests::{Api, Event, within};
use serde_json::json;

use crate::load::Record;

/// All of it; what was counted.
pub async fn all(apis: &[Api], records: &[Record]) -> String {
    within(Duration::from_secs(30), "nothing says running when nobody runs it", async || {
        let page = apis[0].get("/v1/runs?state=running&limit=500").await;
        (page.status == 200 && page.body["runs"].as_array()?.is_empty()).then_some(())
    })
    .await;
    let (mut turns, mut cancelled, mut epochs) = (0, 0, 0);
    for record in records {
        let lineages = [history(&apis[0], &record.resident).await, history(&apis[2], &record.resident).await];
        assert_eq!(lineages[0], lineages[1], "every replica tells the same history of {}", record.resident);
        let numbers: Vec<u64> = lineages[0].iter().filter_map(|event| event.id).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "one lineage: {numbers:?}");
        cancelled += ends_match(record, &lineages[0]);
        turns += record.acknowledged.len();
        let row = apis[1].get_run(&record.resident).await;
        assert_eq!(row["turns"].as_u64(), Some(record.acknowledged.len() as u64 + 1), "each key one turn: {row}");
        epochs += row["epoch"].as_u64().unwrap_or_default();
    }
    nothing_is_left(apis, records).await;
    let slowest = records.iter().map(|record| record.slowest).max().unwrap_or_default();
    let refusals: usize = records.iter().map(|record| record.refusals).sum();
    format!(
        "{turns} turns acknowledged, {cancelled} of them cancelled, each once; {epochs} activations of {} residents; \
         {refusals} answers asked to come back; the slowest send took {slowest:?}",
        records.len()
    )
}

async fn history(api: &Api, id: &str) -> Vec<Event> {
    let newest = api.poll(id).await["turn_id"].clone();
    let mut events = api.stream(id, None).await;
    let mut seen = events.until(|event| event.ends_turn() && event.data["turn_id"] == newest).await;
    seen.retain(|event| event.id.is_some());
    seen
}

/// Every acknowledged turn ended once, as its client was told, and no other turn is there.
fn ends_match(record: &Record, history: &[Event]) -> usize {
    let mut ended: BTreeMap<String, Vec<&Event>> = BTreeMap::new();
    for event in history.iter().filter(|event| event.ends_turn()) {
        ended.entry(event.data["turn_id"].as_str().unwrap_or_default().to_owned()).or_default().push(event);
    }
    let mut cancelled = 0;
    for told in &record.acknowledged {
        let turn = told.answer["turn_id"].as_str().expect("a turn").to_owned();
        let ends = ended.remove(&turn).unwrap_or_default();
        assert_eq!(ends.len(), 1, "{}: {turn} ended {} times", told.key, ends.len());
        for field in ["outcome", "output"] {
            assert_eq!(ends[0].data[field], told.answer[field], "{}: {}", told.key, told.answer);
        }
        let output = told.answer["output"].as_str().unwrap_or_default();
        match told.answer["outcome"].as_str() {
            Some("finished") => assert_eq!(output, told.output, "{}: {}", told.key, told.answer),
            Some("cancelled") => {
                assert!(told.output.starts_with(output), "{}: {}", told.key, told.answer);
                cancelled += 1;
            }
            // A turn whose hosts were killed three times in a row is given up, and says so.
            Some("failed") => {
                let message = told.answer["error"]["message"].as_str().unwrap_or_default();
                assert!(message.contains("without progress"), "{}: {}", told.key, told.answer);
            }
            other => panic!("{}: {other:?}: {}", told.key, told.answer),
        }
    }
    assert_eq!(ended.len(), 1, "besides them only the turn of the open: {ended:?}");
    cancelled
}

/// A tree that is closed leaves nothing, and nobody waits for anything.
async fn nothing_is_left(apis: &[Api], records: &[Record]) {
    for (number, record) in records.iter().enumerate() {
        let closed = apis[number % apis.len()].close(&record.root).await;
        assert_eq!(closed["state"], "closed", "{closed}");
    }
    for api in apis {
        let live = api.residents("").await;
        assert!(live.is_empty(), "{live:?}");
        within(Duration::from_secs(20), "nothing is held", async || {
            let text = api.get("/metrics").await.text;
            let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
            let requests = value("hearth_http_requests_in_flight ")?;
            let turns = value("hearth_turns_running ").unwrap_or(0);
            (requests <= 1 && turns == 0).then_some(())
        })
        .await;
    }
    let running = apis[0].get("/v1/runs?state=running").await.ok();
    assert_eq!(running["runs"], json!([]));
}
