//! The fence, and what a call that nobody waits for leaves behind.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::task::JoinSet;

use super::{Store, append, append_head, head, log, texts};
use crate::{Error, LogKey, Position};

pub(super) async fn a_wrong_expectation_is_fenced_and_changes_nothing(store: &Store) {
    let key = log("fence");
    let fenced = store.first().append(append(&key, Position(5), "early")).await.unwrap_err();
    assert!(matches!(fenced, Error::Fenced { last: Position(0) }), "{fenced}");
    let one = store.first().append(append(&key, Position(0), "one")).await.unwrap();
    let two = store.second().append(append(&key, one, "two")).await.unwrap();
    for (expected, text) in [(Position(0), "stale"), (one, "staler"), (Position(two.0 + 1), "ahead")] {
        let fenced = store.first().append(append(&key, expected, text)).await.unwrap_err();
        assert!(matches!(fenced, Error::Fenced { last } if last == two), "{fenced}");
        assert!(!fenced.retryable());
    }
    // Not the id of the last frame, so not a repeat but a stale append.
    let stale = store.first().append(append(&key, Position(0), "one")).await.unwrap_err();
    assert!(matches!(stale, Error::Fenced { last } if last == two), "{stale}");
    assert_eq!(texts(store.first(), &key).await, ["one", "two"]);
}

pub(super) async fn of_racing_appends_exactly_one_wins(store: &Store) {
    const ROUNDS: usize = 300;
    const RACERS: usize = 4;
    let key = log("race");
    let mut last = Position(0);
    let mut winners = Vec::new();
    for round in 0..ROUNDS {
        let mut racers = JoinSet::new();
        for racer in 0..RACERS {
            let journal = store.handles[racer % store.handles.len()].clone();
            let mine = append(&key, last, &format!("round {round} racer {racer}"));
            racers.spawn(async move { (racer, journal.append(mine).await) });
        }
        let mut won = Vec::new();
        while let Some(joined) = racers.join_next().await {
            match joined.unwrap() {
                (racer, Ok(position)) => won.push((racer, position)),
                (_, Err(Error::Fenced { last: seen })) => assert!(seen > last, "fenced at {seen}, expected {last}"),
                (racer, Err(error)) => panic!("round {round}: racer {racer} got {error}"),
            }
        }
        assert_eq!(won.len(), 1, "round {round}: {won:?}");
        let (racer, position) = won[0];
        winners.push(format!("round {round} racer {racer}"));
        last = position;
    }
    assert_eq!(texts(store.first(), &key).await, winners);
}

/// Polls a call some times, then drops it. By polls rather than by time, since a timer is too coarse
/// to hit the moments in between.
async fn abandon<T>(call: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut call = pin!(call);
    for _ in 0..=polls {
        if let Poll::Ready(result) = poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await {
            return Some(result);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// Drops the append at a different moment in each round, then repeats it until it is answered.
pub(super) async fn an_abandoned_append_can_be_repeated(store: &Store) {
    let key = log("abandoned");
    let mut last = Position(0);
    let mut abandoned = 0;
    let rounds = 80;
    for round in 0..rounds {
        let text = round.to_string();
        let head = crate::RunHead { body: serde_json::json!({ "round": round }).into(), ..head("abandoned", 1) };
        let mine = append_head(last, &text, head);
        if abandon(store.first().append(mine.clone()), round * round).await.is_none() {
            abandoned += 1;
        }
        last = store.second().append(mine).await.unwrap();
        let shown = store.second().head(&super::run("abandoned")).await.unwrap().unwrap();
        assert_eq!(shown.body, serde_json::json!({ "round": round }).into());
    }
    assert!(abandoned > 0, "no append was abandoned");
    let expected: Vec<String> = (0..rounds).map(|n| n.to_string()).collect();
    assert_eq!(texts(store.first(), &key).await, expected);
}

/// A writer gives up on an append; another one takes the log over. The first one's append stands
/// before the take-over or never.
pub(super) async fn an_abandoned_append_does_not_slip_in_behind_a_successor(store: &Store) {
    for round in 0..40u64 {
        let key = log(&format!("successor{round}"));
        let first = store.first().append(append(&key, Position(0), "start")).await.unwrap();
        let old = append(&key, first, "old");
        let answered = abandon(store.first().append(old.clone()), round * round * 4).await;
        let taken = take_over(store, &key).await;
        let repeated = store.first().append(old).await;
        match repeated {
            Err(Error::Fenced { last }) => assert_eq!(last, taken),
            other => panic!("round {round}: the old writer was not fenced: {other:?} (first: {answered:?})"),
        }
        let read = texts(store.second(), &key).await;
        assert!(
            read == ["start", "new"] || read == ["start", "old", "new"],
            "round {round}: {read:?} (first: {answered:?})"
        );
    }
}

async fn take_over(store: &Store, key: &LogKey) -> Position {
    loop {
        let last = store.second().last(key).await.unwrap();
        match store.second().append(append(key, last, "new")).await {
            Ok(position) => return position,
            Err(Error::Fenced { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

pub(super) async fn independent_logs_progress_side_by_side(store: &Store) {
    let mut writers = JoinSet::new();
    for writer in 0..32usize {
        let journal = store.handles[writer % store.handles.len()].clone();
        writers.spawn(async move {
            let key = log(&format!("side{writer}"));
            let mut last = Position(0);
            for n in 0..20 {
                last = journal.append(append(&key, last, &format!("{writer}.{n}"))).await.unwrap();
            }
        });
    }
    while let Some(joined) = writers.join_next().await {
        joined.unwrap();
    }
    for writer in 0..32 {
        let expected: Vec<String> = (0..20).map(|n| format!("{writer}.{n}")).collect();
        assert_eq!(texts(store.second(), &log(&format!("side{writer}"))).await, expected);
    }
}
