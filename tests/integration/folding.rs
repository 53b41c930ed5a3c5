//! Long runs: what a snapshot made superfluous is removed, and nothing that is asked for is lost.

use std::collections::BTreeSet;

use hearth_tests::{Api, Event, Options, SlowReader, eventually, mock, program};
use serde_json::{Value, json};

const TURNS: usize = 150;
const KEPT: &str = "100";

/// A resident with so many turns that its first ones were folded away; the turns' ids.
async fn long_resident(api: &Api) -> (String, Vec<String>) {
    let id = api.open("mock", "turn 0").await;
    let mut turns = vec![api.poll(&id).await["turn_id"].as_str().unwrap().to_owned()];
    for number in 1..TURNS {
        let (path, body) = (format!("/v1/_resident/{id}/send"), json!({ "prompt": format!("turn {number}") }));
        let envelope = api.post_with_key(&path, &format!("key-{number}"), body).await.ok();
        turns.push(envelope["turn_id"].as_str().unwrap().to_owned());
    }
    (id, turns)
}

async fn folded_frames(api: &Api) -> f64 {
    api.metric("hearth_folded_frames_total").await
}

/// Every message of the session, page by page.
async fn transcript(api: &Api, id: &str) -> Vec<Value> {
    let session = api.get_run(id).await["session_id"].as_str().unwrap().to_owned();
    let mut messages = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = api.get(&format!("/v1/sessions/{session}/transcript?limit=70{cursor}")).await.ok();
        messages.extend(page["messages"].as_array().unwrap().iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return messages,
        }
    }
}

async fn check(api: &Api, id: &str, turns: &[String]) {
    let messages = transcript(api, id).await;
    assert_eq!(messages.len(), 2 * TURNS, "a prompt and an answer of each turn");
    for (number, pair) in messages.chunks(2).enumerate() {
        for (message, role) in pair.iter().zip(["user", "assistant"]) {
            assert_eq!((message["role"].as_str(), &message["turn_id"]), (Some(role), &json!(turns[number])));
            assert_eq!(message["content"], format!("turn {number}"));
        }
    }
    for number in [0, 1, 2, TURNS / 2, TURNS - 1] {
        let envelope = api.poll_turn(id, &turns[number]).await;
        let (outcome, output) = (envelope["outcome"].as_str(), envelope["output"].as_str());
        assert_eq!((outcome, output), (Some("finished"), Some(format!("turn {number}").as_str())), "turn {number}");
    }
    for number in [1, TURNS / 2] {
        let (path, body) = (format!("/v1/_resident/{id}/send"), json!({ "prompt": format!("turn {number}") }));
        let again = api.post_with_key(&path, &format!("key-{number}"), body).await;
        assert!(again.is_replay());
        assert_eq!(again.ok()["turn_id"], json!(turns[number]));
        let other = api.post_with_key(&path, &format!("key-{number}"), json!({ "prompt": "other" })).await;
        other.refused(409, "conflict");
    }
    let run = api.get_run(id).await;
    assert_eq!((run["state"].as_str(), run["turns"].as_u64()), (Some("awaiting_input"), Some(TURNS as u64)));
}

fn ids(events: &[Event]) -> Vec<u64> {
    events.iter().filter_map(|event| event.id).collect()
}

#[tokio::test]
async fn a_long_run_is_folded_and_nothing_that_is_asked_for_is_lost() {
    let mut server = Options::default().variable("HEARTH_JOURNAL_KEEP_EVENTS", KEPT).start().await;
    let api = server.api();
    let (id, turns) = long_resident(&api).await;
    eventually("frames are removed", async || (folded_frames(&api).await > 100.0).then_some(())).await;
    check(&api, &id, &turns).await;

    let last = |event: &Event| event.ends_turn() && event.data["turn_id"] == turns[TURNS - 1].as_str();
    let events = api.stream(&id, None).await.until(last).await;
    let resync = &events[0];
    assert_eq!(resync.name, "resync", "{resync:?}");
    let (seq, state) = (resync.id.unwrap(), &resync.data["run"]);
    assert_eq!((resync.data["seq"].as_u64(), resync.data["run_id"].as_str()), (Some(seq), Some(id.as_str())));
    assert!(seq > 100 && state["turns"].as_u64().unwrap() > 10 && state["state"].is_string(), "{resync:?}");
    assert_eq!(events.iter().filter(|event| event.name == "resync").count(), 1);
    let all = ids(&events);
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "{all:?}");
    // The turns that the state counts and those that follow are all there are.
    let ended: BTreeSet<&str> =
        events.iter().filter(|event| event.ends_turn()).map(|event| event.data["turn_id"].as_str().unwrap()).collect();
    let running = usize::from(!state["turn"].is_null());
    let told = ended.len() + usize::try_from(state["turns"].as_u64().unwrap()).unwrap() - running;
    assert_eq!(told, TURNS, "{resync:?}");

    for seen in [1, seq - 2] {
        let again = api.stream(&id, Some(seen)).await.until(last).await;
        assert_eq!(again, events, "an id older than what is kept");
    }
    let resumed = api.stream(&id, Some(seq)).await.until(last).await;
    assert_eq!(resumed, events[1..], "nothing is told twice to who has the state");

    server.crash().await;
    check(&api, &id, &turns).await;
    assert_eq!(api.stream(&id, Some(1)).await.until(last).await[0].name, "resync");
    assert_eq!(api.send(&id, "goes on").await["output"], "goes on");
    api.close(&id).await;
    let closed = api.stream(&id, Some(1)).await.to_end().await;
    assert_eq!((closed[0].name.as_str(), closed.last().unwrap().name.as_str()), ("resync", "done"));

    server.terminate().await;
    let doctor = program().args(["doctor", "--data"]).arg(server.data()).output().unwrap();
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
}

#[tokio::test]
async fn a_reader_that_stands_still_is_cut_counted_and_can_resume() {
    let server = Options::default().variable("HEARTH_STREAM_STALL", "1s").start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let mut slow = SlowReader::open(server.address(), &id).await;
    // More than the sockets between hold.
    let big = "x".repeat(1 << 20);
    let mut sent = 0;
    // It is cut because its socket takes nothing, or because what is ready for it is too much.
    let cut = async || {
        let stalled = api.metric("hearth_http_connections_stalled_total").await;
        stalled + api.metric("hearth_http_streams_cut_total").await
    };
    while cut().await < 1.0 {
        assert!(sent < 100, "it is never cut");
        assert_eq!(api.send(&id, &mock(json!({ "output": big }))).await["outcome"], "finished");
        sent += 1;
    }
    assert_eq!(api.send(&id, "others go on").await["output"], "others go on");
    let mut seen = slow.ids(usize::MAX).await;
    let ends = |event: &Event| event.ends_turn() && event.data["output"] == "others go on";
    let whole = ids(&api.stream(&id, None).await.until(ends).await);
    assert!(seen.len() < whole.len(), "the slow reader missed nothing");
    seen.extend(ids(&api.stream(&id, seen.last().copied()).await.until(ends).await));
    assert_eq!(seen, whole, "what it missed comes when it resumes");
    server.stop().await;
}
