//! Heads: written with their frames, found by what is to happen next.

use hearth_types::{RunId, RunState, Timestamp};
use serde_json::json;

use super::{Store, append, append_head, head, log, run, texts};
use crate::{Append, Error, LogKey, Position, RunHead};

pub(super) async fn a_head_comes_with_its_frame(store: &Store) {
    let one = RunHead { body: json!({"n": 1}).into(), ..head("h", 5) };
    let first = store.first().append(append_head(Position(0), "1", one.clone())).await.unwrap();
    for journal in &store.handles {
        assert_eq!(journal.head(&run("h")).await.unwrap(), Some(one.clone()));
    }
    let two = RunHead {
        state: RunState::AwaitingInput,
        wake: true,
        due_at: Some(Timestamp::from_millis(77)),
        body: json!({"n": 2, "deep": [null, 1.5, {"x": "y"}]}).into(),
        ..one
    };
    store.second().append(append_head(first, "2", two.clone())).await.unwrap();
    for journal in &store.handles {
        assert_eq!(journal.head(&run("h")).await.unwrap(), Some(two.clone()));
    }
}

pub(super) async fn a_fenced_append_leaves_the_head(store: &Store) {
    let good = RunHead { body: json!("good").into(), ..head("f", 5) };
    store.first().append(append_head(Position(0), "good", good.clone())).await.unwrap();
    let bad =
        RunHead { body: json!("bad").into(), wake: true, due_at: Some(Timestamp::from_millis(1)), ..good.clone() };
    let fenced = store.second().append(append_head(Position(0), "bad", bad.clone())).await.unwrap_err();
    assert!(matches!(fenced, Error::Fenced { .. }), "{fenced}");
    assert_eq!(store.first().head(&run("f")).await.unwrap(), Some(good));
    assert!(store.first().waking(None, 10).await.unwrap().is_empty());
    assert!(store.first().due(Timestamp::from_millis(100), 10).await.unwrap().is_empty());
    // And the first append of a log that is not empty, by a run that was never there.
    let unborn = RunHead { body: json!("unborn").into(), ..head("unborn", 6) };
    store.first().append(append_head(Position(9), "x", unborn)).await.unwrap_err();
    assert_eq!(store.first().head(&run("unborn")).await.unwrap(), None);
}

pub(super) async fn an_append_without_a_head_leaves_it(store: &Store) {
    let one = head("keep", 5);
    let first = store.first().append(append_head(Position(0), "1", one.clone())).await.unwrap();
    store.first().append(append(&log("keep"), first, "2")).await.unwrap();
    assert_eq!(store.second().head(&run("keep")).await.unwrap(), Some(one));
    let session = LogKey::Session("t".into(), "keep".parse().unwrap());
    store.first().append(append(&session, Position(0), "1")).await.unwrap();
    let all = store.second().heads(&crate::HeadQuery { limit: 10, ..Default::default() }).await.unwrap();
    assert_eq!(all.heads.len(), 1, "a session's log has no head");
}

pub(super) async fn a_head_of_another_run_is_refused(store: &Store) {
    let wrong = Append { head: Some(head("other", 5)), ..append(&log("mine"), Position(0), "x") };
    assert!(store.first().append(wrong).await.is_err());
    assert_eq!(store.first().last(&log("mine")).await.unwrap(), Position(0));
    assert_eq!(store.first().head(&run("other")).await.unwrap(), None);
}

pub(super) async fn a_reader_never_sees_a_head_apart_from_its_frame(store: &Store) {
    const FRAMES: u64 = 150;
    let writer = store.handles[0].clone();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut last = Position(0);
        for n in 1..=FRAMES {
            let row = RunHead { body: json!(n).into(), ..head("together", 5) };
            last = writer.append(append_head(last, &n.to_string(), row)).await.unwrap();
        }
    });
    let shown = async || {
        let head = store.second().head(&run("together")).await.unwrap();
        head.and_then(|head| head.body.read().ok()).unwrap_or(0)
    };
    let mut seen = 0;
    while seen < FRAMES {
        let before = shown().await;
        let frames = texts(store.second(), &log("together")).await.len() as u64;
        let after = shown().await;
        assert!(before <= frames, "the head shows frame {before}, the log has {frames}");
        assert!(frames <= after, "the log has {frames} frames, the head shows {after}");
        assert!(seen <= before, "the head went back from {seen} to {before}");
        seen = after;
        if tasks.is_empty() {
            break;
        }
    }
    tasks.join_next().await.unwrap().unwrap();
}

pub(super) async fn waking_runs_are_listed_in_order(store: &Store) {
    let mut lasts = Vec::new();
    for n in [5, 1, 4, 2, 3] {
        let name = format!("w{n}");
        let row = RunHead { wake: true, ..head(&name, i64::from(n)) };
        lasts.push((name, store.first().append(append_head(Position(0), "up", row)).await.unwrap()));
    }
    store.first().append(append_head(Position(0), "asleep", head("w0", 9))).await.unwrap();
    let runs = |names: &[&str]| names.iter().map(|name| run(name)).collect::<Vec<RunId>>();
    let journal = store.second();
    assert_eq!(journal.waking(None, 10).await.unwrap(), runs(&["w1", "w2", "w3", "w4", "w5"]));
    assert_eq!(journal.waking(None, 2).await.unwrap(), runs(&["w1", "w2"]));
    assert_eq!(journal.waking(Some(&run("w2")), 2).await.unwrap(), runs(&["w3", "w4"]));
    assert_eq!(journal.waking(Some(&run("w25")), 9).await.unwrap(), runs(&["w3", "w4", "w5"]));
    assert_eq!(journal.waking(Some(&run("w5")), 9).await.unwrap(), runs(&[]));
    for (name, last) in lasts.into_iter().filter(|(name, _)| name == "w1" || name == "w4") {
        store.first().append(append_head(last, "down", head(&name, 1))).await.unwrap();
    }
    assert_eq!(journal.waking(None, 10).await.unwrap(), runs(&["w2", "w3", "w5"]));
}

pub(super) async fn due_runs_are_listed_soonest_first(store: &Store) {
    let at = Timestamp::from_millis;
    let mut first = Position(0);
    for (name, due) in [("d1", Some(300)), ("d2", Some(100)), ("d3", None), ("d4", Some(200)), ("d5", Some(200))] {
        let row = RunHead { due_at: due.map(at), ..head(name, 1) };
        let position = store.first().append(append_head(Position(0), "set", row)).await.unwrap();
        if name == "d2" {
            first = position;
        }
    }
    let runs = |names: &[&str]| names.iter().map(|name| run(name)).collect::<Vec<RunId>>();
    let journal = store.second();
    assert_eq!(journal.due(at(99), 10).await.unwrap(), runs(&[]));
    assert_eq!(journal.due(at(100), 10).await.unwrap(), runs(&["d2"]));
    assert_eq!(journal.due(at(299), 10).await.unwrap(), runs(&["d2", "d4", "d5"]));
    assert_eq!(journal.due(at(1_000), 2).await.unwrap(), runs(&["d2", "d4"]));
    let later = RunHead { due_at: Some(at(900)), ..head("d2", 1) };
    store.first().append(append_head(first, "later", later)).await.unwrap();
    assert_eq!(journal.due(at(1_000), 10).await.unwrap(), runs(&["d4", "d5", "d1", "d2"]));
}

pub(super) async fn any_text_survives(store: &Store) {
    let deep = (0..140).fold(json!(1), |inner, _| json!([inner]));
    let odd = RunHead {
        subject: "Jürgen \u{1F600} 'quoted' \"; DROP TABLE heads; --".into(),
        agent: "chat/mittel-größe".into(),
        tenant: "tenant_é".into(),
        body:
            json!({"text": "\u{0}\u{1}\n\t ünï \u{10FFFF}", "": null, "big": u64::MAX, "small": i64::MIN, "deep": deep})
                .into(),
        ..head("odd", -5)
    };
    store.first().append(append_head(Position(0), "ü", odd.clone())).await.unwrap();
    assert_eq!(store.second().head(&run("odd")).await.unwrap(), Some(odd.clone()));
    let query = crate::HeadQuery {
        tenant: Some(odd.tenant.clone()),
        subject: Some(odd.subject.clone()),
        agent: Some(odd.agent.clone()),
        limit: 5,
        ..Default::default()
    };
    assert_eq!(store.second().heads(&query).await.unwrap().heads, vec![odd]);
}
