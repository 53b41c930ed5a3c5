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

pub(super) async fn waking_runs_are_listed_page_by_page(store: &Store) {
    let mut lasts = Vec::new();
    for n in [5, 1, 4, 2, 3] {
        let name = format!("w{n}");
        let tenant = if n % 2 == 0 { "even" } else { "odd" };
        let row = RunHead { wake: true, tenant: tenant.into(), ..head(&name, i64::from(n % 3)) };
        let last = store.first().append(append_head(Position(0), "up", row.clone())).await.unwrap();
        lasts.push((name, last, row));
    }
    store.first().append(append_head(Position(0), "asleep", head("w0", 9))).await.unwrap();
    let runs = |names: &[&str]| names.iter().map(|name| run(name)).collect::<Vec<RunId>>();
    let journal = store.second();
    for size in [1, 2, 3, 5, 10] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = journal.waking(after.as_ref(), size).await.unwrap();
            assert!(page.len() <= size);
            after = page.last().cloned();
            listed.extend(page);
            if after.is_none() {
                break;
            }
        }
        listed.sort();
        assert_eq!(listed, runs(&["w1", "w2", "w3", "w4", "w5"]), "in pages of {size}");
    }
    // A page goes on behind a run that sleeps by now.
    let all = journal.waking(None, 10).await.unwrap();
    let (name, last, row) = lasts.into_iter().find(|(name, ..)| run(name) == all[2]).unwrap();
    let asleep = RunHead { wake: false, ..row };
    store.first().append(append_head(last, &format!("down {name}"), asleep)).await.unwrap();
    assert_eq!(journal.waking(Some(&all[2]), 10).await.unwrap(), all[3..]);
    assert_eq!(journal.waking(None, 10).await.unwrap(), [&all[..2], &all[3..]].concat());
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

/// What was due soon and is not any more, or later, or sooner after all: each as its newest row says.
pub(super) async fn the_newest_row_says_when_a_run_is_due(store: &Store) {
    let at = Timestamp::from_millis;
    let changes: [(&str, &[Option<i64>]); 6] = [
        ("never", &[Some(100), None]),
        ("later", &[Some(100), None, Some(500)]),
        ("sooner", &[None, Some(500), Some(200)]),
        ("back", &[Some(100), Some(900), Some(100)]),
        ("final", &[Some(100), None, Some(50), None]),
        ("again", &[Some(300), None, Some(300)]),
    ];
    let runs = |names: &[&str]| names.iter().map(|name| run(name)).collect::<Vec<RunId>>();
    let journal = store.second();
    let mut ends = Vec::new();
    for (name, dues) in changes {
        let mut last = Position(0);
        for (n, due) in dues.iter().enumerate() {
            let state = if name == "final" && n == 3 { RunState::Closed } else { head(name, 1).state };
            let row = RunHead { due_at: due.map(at), state, wake: n % 2 == 0, ..head(name, 1) };
            last = store.first().append(append_head(last, &n.to_string(), row)).await.unwrap();
        }
        ends.push((name, last));
    }
    for _ in 0..2 {
        assert_eq!(journal.due(at(99), 10).await.unwrap(), runs(&[]));
        assert_eq!(journal.due(at(250), 10).await.unwrap(), runs(&["back", "sooner"]));
        assert_eq!(journal.due(at(1_000), 10).await.unwrap(), runs(&["back", "sooner", "again", "later"]));
        assert_eq!(journal.due(at(1_000), 1).await.unwrap(), runs(&["back"]));
    }
    let (name, last) = ends.swap_remove(1);
    let row = RunHead { due_at: Some(at(60)), ..head(name, 1) };
    store.first().append(append_head(last, "sooner again", row)).await.unwrap();
    assert_eq!(journal.due(at(99), 10).await.unwrap(), runs(&["later"]));
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
