//! The event stream: each journaled event once, in order, from anywhere.

use hearth_tests::{Event, Events, Server, eventually, mock};
use serde_json::json;

/// What every stream keeps: numbers that grow, data that names them, and one end per turn after
/// which nothing of that turn comes.
fn check(events: &[Event]) {
    let mut last = 0;
    let mut ended: Vec<String> = Vec::new();
    for event in events {
        if let Some(id) = event.id {
            assert!(id > last, "{id} after {last}");
            last = id;
            assert_eq!(event.data["seq"], id, "{event:?}");
        }
        assert!(event.data["run_id"].is_string(), "{event:?}");
        if event.id.is_some() {
            assert!(event.data["at"].is_string(), "{event:?}");
        }
        let turn = event.data["turn_id"].as_str().map(str::to_owned);
        if let Some(turn) = &turn {
            assert!(!ended.contains(turn), "after the end of its turn: {event:?}");
        }
        if event.ends_turn() && turn.is_some() {
            assert!(event.data["outcome"].is_string() && event.data["output"].is_string(), "{event:?}");
            ended.extend(turn);
        }
    }
}

fn journaled(events: &[Event]) -> Vec<Event> {
    events.iter().filter(|event| event.id.is_some()).cloned().collect()
}

fn names(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

#[tokio::test]
async fn a_run_can_be_streamed_as_it_is_created() {
    let server = Server::start().await;
    let api = server.api();
    let prompt = mock(json!({ "latency_ms": 300, "chunks": 3, "output": "abcdef" }));
    let request = api.request("POST", "/v1/runs").header("accept", "text/event-stream");
    let mut stream = Events::open(request.json(&json!({ "agent": "mock", "prompt": prompt }))).await;
    let events = stream.to_end().await;
    check(&events);
    let done = events.last().unwrap();
    assert_eq!((done.name.as_str(), done.data["outcome"].as_str()), ("done", Some("finished")), "{events:#?}");
    assert_eq!(done.data["output"], "abcdef");
    assert_eq!(journaled(&events)[0].id, Some(1), "numbers start at 1");
    for name in ["session", "started", "text"] {
        assert!(names(&events).contains(&name), "no `{name}` in {:?}", names(&events));
    }
    assert!(events.iter().any(|event| event.name == "text" && event.id.is_none()), "live pieces: {events:#?}");
    let run = done.data["run_id"].as_str().unwrap();
    let replayed = api.stream(run, None).await.to_end().await;
    assert_eq!(replayed, journaled(&events), "a later reader gets what was journaled");
    server.stop().await;
}

#[tokio::test]
async fn every_turn_ends_with_exactly_one_event() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    api.send(&id, "two").await;
    api.send(&id, &mock(json!({ "fail": "no" }))).await;
    let cancelled = api.start(&id, &mock(json!({ "latency_ms": 60_000 }))).await;
    api.post(&format!("/v1/_resident/{id}/cancel"), json!({})).await.ok();
    api.end_of(&id, &cancelled).await;
    api.close(&id).await;
    let events = api.stream(&id, None).await.to_end().await;
    check(&events);
    let ends: Vec<&Event> =
        events.iter().filter(|event| event.ends_turn() && event.data["turn_id"].is_string()).collect();
    let outcomes: Vec<&str> = ends.iter().map(|event| event.data["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["finished", "finished", "failed", "cancelled"], "{events:#?}");
    let mark = events.iter().position(|event| event.name == "turn_cancelled").expect("a cancel is told");
    assert_eq!(events[mark].data["turn_id"], cancelled.as_str());
    assert_eq!(events.iter().filter(|event| event.name == "done").count(), 1);
    assert_eq!(events.last().unwrap().name, "done", "the stream closes after it");
    server.stop().await;
}

#[tokio::test]
async fn a_turn_that_is_running_when_its_run_is_closed_ends_with_done() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let turn = api.start(&id, &mock(json!({ "latency_ms": 60_000 }))).await;
    api.close(&id).await;
    let events = api.stream(&id, None).await.to_end().await;
    check(&events);
    let last = events.last().unwrap();
    assert_eq!((last.name.as_str(), last.data["turn_id"].as_str()), ("done", Some(turn.as_str())), "{events:#?}");
    assert!(last.data["outcome"].is_string() && last.data["output"].is_string(), "{last:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_reader_that_resumes_misses_and_repeats_nothing_also_across_a_restart() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    for number in 0..5 {
        api.send(&id, &format!("turn {number}")).await;
    }
    api.close(&id).await;
    let all = api.stream(&id, None).await.to_end().await;
    check(&all);
    for restart in [false, true] {
        if restart {
            server.crash().await;
        }
        for seen in all.iter().map(|event| event.id.unwrap()) {
            let expected: Vec<Event> = all.iter().filter(|event| event.id > Some(seen)).cloned().collect();
            assert_eq!(api.stream(&id, Some(seen)).await.to_end().await, expected, "Last-Event-ID is exclusive");
            let from = api.request("GET", &format!("/v1/runs/{id}/stream?from_seq={seen}"));
            let rest = Events::open(from).await.to_end().await;
            assert_eq!(rest.first().unwrap().id, Some(seen), "from_seq is inclusive");
            assert_eq!(rest[1..], expected);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn readers_across_a_crash_see_each_event_once() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let turn = api.start(&id, &mock(json!({ "latency_ms": 1_000, "output": "after all" }))).await;
    let mut stream = api.stream(&id, None).await;
    let started = |event: &Event| event.name == "started" && event.data["turn_id"] == turn.as_str();
    let mut seen = journaled(&stream.until(started).await);
    server.kill().await;
    seen.extend(journaled(&stream.to_end().await));
    server.restart().await;
    let last = seen.last().unwrap().id;
    let ends = |event: &Event| event.ends_turn() && event.data["turn_id"] == turn.as_str();
    seen.extend(journaled(&api.stream(&id, last).await.until(ends).await));
    check(&seen);
    assert_eq!(seen.last().unwrap().data["output"], "after all");
    api.close(&id).await;
    let all = api.stream(&id, None).await.to_end().await;
    assert_eq!(all[..seen.len()], seen, "what was read in pieces is what is there");
    server.stop().await;
}

#[tokio::test]
async fn a_live_reader_sees_turns_as_they_come() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let mut stream = api.stream(&id, None).await;
    stream.until(Event::ends_turn).await;
    for number in 0..3 {
        let text = format!("live {number}");
        let (events, envelope) = tokio::join!(stream.until(Event::ends_turn), api.send(&id, &text));
        let end = events.last().unwrap();
        assert_eq!((&end.data["turn_id"], end.data["output"].as_str()), (&envelope["turn_id"], Some(text.as_str())));
    }
    server.stop().await;
}

#[tokio::test]
async fn tool_calls_and_children_are_told() {
    let server = Server::start().await;
    let api = server.api();
    let spawn = json!({ "name": "mock", "prompt": "from below" });
    let run = api.run("mock", &mock(json!({ "tool": { "name": "Agent", "arguments": spawn } }))).await;
    assert_eq!(run["output"], "from below");
    let events = api.stream(run["run_id"].as_str().unwrap(), None).await.to_end().await;
    check(&events);
    let place = |name: &str| {
        names(&events).iter().position(|seen| *seen == name).unwrap_or_else(|| panic!("no {name}: {events:#?}"))
    };
    for order in [
        ["tool_call", "spawn_child_started", "spawn_child_result", "done"],
        ["started", "tool_call", "tool_result", "done"],
    ] {
        assert!(order.map(place).is_sorted(), "{:?}", names(&events));
    }
    server.stop().await;
}

#[tokio::test]
async fn nothing_comes_after_done_although_children_are_still_being_closed() {
    let server = Server::start().await;
    let api = server.api();
    let open = json!({ "op": "open", "name": "mock", "prompt": "left open" });
    let prompt = mock(json!({ "tool": { "name": "Agent", "arguments": open } }));
    let request = api.request("POST", "/v1/runs").header("accept", "text/event-stream");
    let live = Events::open(request.json(&json!({ "agent": "mock", "prompt": prompt }))).await.to_end().await;
    let run = live[0].data["run_id"].as_str().unwrap().to_owned();
    eventually("the child is closed", async || api.residents("").await.is_empty().then_some(())).await;
    let later = api.stream(&run, None).await.to_end().await;
    for events in [live, later] {
        check(&events);
        assert_eq!(events.last().unwrap().name, "done", "{:?}", names(&events));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_bad_place_to_start_is_refused() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    for query in ["from_seq=-1", "from_seq=x", "from_seq=99999999999999999999999"] {
        api.get(&format!("/v1/runs/{id}/stream?{query}")).await.refused(400, "invalid_argument");
    }
    for header in ["-1", "x", "1.5"] {
        let request = api.request("GET", &format!("/v1/runs/{id}/stream")).header("last-event-id", header);
        api.finish(request).await.refused(400, "invalid_argument");
    }
    server.stop().await;
}
