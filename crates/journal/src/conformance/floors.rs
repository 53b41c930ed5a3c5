//! Floors, and what is removed below them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::JoinSet;

use super::{Store, append, append_head, head, log, run, texts};
use crate::{Append, Error, Journal, LogKey, Position};

/// Frames `0` to `count - 1`; their positions.
async fn filled(store: &Store, key: &LogKey, count: usize) -> Vec<Position> {
    let mut positions = Vec::new();
    for n in 0..count {
        let last = positions.last().copied().unwrap_or_default();
        positions.push(store.first().append(append(key, last, &n.to_string())).await.unwrap());
    }
    positions
}

async fn raise(journal: &dyn Journal, key: &LogKey, last: Position, floor: Position) -> Result<Position, Error> {
    journal.append(Append { floor, ..append(key, last, &format!("floor {floor}")) }).await
}

/// Trims to the end; how many frames that removed.
async fn trim_all(journal: &dyn Journal, key: &LogKey) -> u64 {
    let mut removed = 0;
    loop {
        match journal.trim(key, 4).await.unwrap() {
            4 => removed += 4,
            rest => return removed + rest,
        }
    }
}

pub(super) async fn reads_begin_at_the_floor_whether_or_not_frames_were_removed(store: &Store) {
    let key = log("floor");
    let other = log("floor-other");
    let positions = filled(store, &key, 10).await;
    filled(store, &other, 3).await;
    let last = raise(store.first(), &key, positions[9], positions[6]).await.unwrap();
    let kept = ["6".to_owned(), "7".into(), "8".into(), "9".into(), format!("floor {}", positions[6])];
    for to_remove in [6, 0] {
        assert_eq!(texts(store.second(), &key).await, kept, "{to_remove} are still there");
        for after in [Position(0), positions[0], positions[4], Position(positions[6].0 - 1)] {
            let page = store.first().read(&key, after, 2).await.unwrap();
            assert_eq!(page.iter().map(|stored| stored.position).collect::<Vec<_>>(), positions[6..8], "after {after}");
        }
        let rest = store.first().read(&key, positions[8], 9).await.unwrap();
        assert_eq!(rest.iter().map(|stored| stored.position).collect::<Vec<_>>(), [positions[9], last]);
        assert_eq!(store.second().last(&key).await.unwrap(), last);
        assert_eq!(store.first().trim(&key, 0).await.unwrap(), 0);
        assert_eq!(trim_all(store.second(), &key).await, to_remove);
    }
    assert_eq!(texts(store.first(), &other).await, ["0", "1", "2"], "other logs are left alone");
}

pub(super) async fn without_a_floor_nothing_is_removed(store: &Store) {
    let key = log("no-floor");
    assert_eq!(store.first().trim(&key, 100).await.unwrap(), 0, "an empty log");
    filled(store, &key, 5).await;
    assert_eq!(store.first().trim(&key, 100).await.unwrap(), 0);
    assert_eq!(texts(store.first(), &key).await.len(), 5);
}

pub(super) async fn a_floor_that_would_empty_the_log_is_refused(store: &Store) {
    let key = log("floor-after-end");
    let positions = filled(store, &key, 2).await;
    let error = raise(store.first(), &key, positions[1], Position(positions[1].0 + 1)).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(store.first().last(&key).await.unwrap(), positions[1]);
    // The highest that may be: the last frame before this one.
    let last = raise(store.first(), &key, positions[1], positions[1]).await.unwrap();
    assert_eq!(trim_all(store.first(), &key).await, 1);
    assert_eq!(store.second().last(&key).await.unwrap(), last);
    assert_eq!(texts(store.second(), &key).await.len(), 2);
}

pub(super) async fn a_trim_is_bounded_and_goes_on_where_it_stopped(store: &Store) {
    let key = log("bounded");
    let positions = filled(store, &key, 12).await;
    raise(store.first(), &key, positions[11], positions[10]).await.unwrap();
    let mut removed = Vec::new();
    for journal in store.handles.iter().cycle().take(5) {
        removed.push(journal.trim(&key, 3).await.unwrap());
        assert_eq!(texts(store.first(), &key).await.len(), 3, "after {removed:?}");
    }
    assert_eq!(removed, [3, 3, 3, 1, 0]);
}

pub(super) async fn a_trimmed_log_keeps_its_fence_its_head_and_its_last_append(store: &Store) {
    let key = log("fenced");
    let mut last = Position(0);
    for n in 0..4 {
        last = store.first().append(append_head(last, &n.to_string(), head("fenced", 7))).await.unwrap();
    }
    let raising = Append { floor: last, ..append_head(last, "raise", head("fenced", 7)) };
    let newest = store.first().append(raising.clone()).await.unwrap();
    assert_eq!(trim_all(store.first(), &key).await, 3);
    assert_eq!(store.second().append(raising).await.unwrap(), newest, "a repeat is recognised");
    for expected in [Position(0), last] {
        let fenced = store.second().append(append(&key, expected, "stale")).await.unwrap_err();
        assert!(matches!(fenced, Error::Fenced { last } if last == newest), "{fenced}");
    }
    assert_eq!(store.second().head(&run("fenced")).await.unwrap(), Some(head("fenced", 7)));
    let listed = store.second().heads(&crate::HeadQuery { limit: 5, ..Default::default() }).await.unwrap();
    assert_eq!(listed.heads, [head("fenced", 7)]);
    let more = Append { floor: last, ..append(&key, newest, "more") };
    store.second().append(more).await.unwrap();
    assert_eq!(texts(store.first(), &key).await, ["3", "raise", "more"]);
}

pub(super) async fn a_fenced_append_raises_no_floor(store: &Store) {
    let key = log("stale-floor");
    let positions = filled(store, &key, 5).await;
    let fenced = raise(store.second(), &key, positions[3], positions[2]).await.unwrap_err();
    assert!(matches!(fenced, Error::Fenced { .. }), "{fenced}");
    assert_eq!(store.first().trim(&key, 100).await.unwrap(), 0);
    assert_eq!(texts(store.first(), &key).await.len(), 5);
}

/// Reads begin at some floor, miss nothing after it, and never fail.
pub(super) async fn a_log_is_read_while_it_is_trimmed(store: &Store) {
    const FRAMES: usize = 120;
    let key = log("busy");
    let over = Arc::new(AtomicBool::new(false));
    let mut reading = JoinSet::new();
    {
        let (journal, key, over) = (store.handles[1].clone(), key.clone(), over.clone());
        reading.spawn(async move {
            let mut reads = 0;
            while !over.load(Ordering::Relaxed) {
                let frames = journal.read(&key, Position(0), FRAMES).await.unwrap();
                let numbers: Vec<usize> =
                    frames.iter().map(|stored| std::str::from_utf8(&stored.frame).unwrap().parse().unwrap()).collect();
                assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
                reads += 1;
                tokio::task::yield_now().await;
            }
            reads
        });
    }
    let mut positions: Vec<Position> = Vec::new();
    for n in 0..FRAMES {
        let expected = positions.last().copied().unwrap_or_default();
        let floor = if n > 10 { positions[n - 10] } else { Position(0) };
        let appended = Append { floor, ..append(&key, expected, &n.to_string()) };
        positions.push(store.first().append(appended).await.unwrap());
        if n % 3 == 0 {
            store.first().trim(&key, 5).await.unwrap();
        }
    }
    over.store(true, Ordering::Relaxed);
    assert!(reading.join_next().await.unwrap().unwrap() > 0);
    trim_all(store.first(), &key).await;
    let left: Vec<String> = (FRAMES - 11..FRAMES).map(|n| n.to_string()).collect();
    assert_eq!(texts(store.second(), &key).await, left);
}

pub(super) async fn big_frames_are_removed_and_those_that_stay_are_whole(store: &Store) {
    const BYTES: usize = 1_500_000;
    let key = LogKey::History(run("big"));
    let mut positions: Vec<Position> = Vec::new();
    for n in 0..6u8 {
        let appended = Append {
            key: key.clone(),
            expected: positions.last().copied().unwrap_or_default(),
            append_id: format!("big-{n}"),
            frame: vec![n; BYTES].into(),
            head: None,
            floor: if n == 5 { positions[3] } else { Position(0) },
        };
        positions.push(store.first().append(appended).await.unwrap());
    }
    assert_eq!(trim_all(store.first(), &key).await, 3);
    let read = store.second().read(&key, Position(0), 9).await.unwrap();
    assert_eq!(read.len(), 3);
    for (stored, n) in read.iter().zip(3u8..) {
        assert!(stored.frame.len() == BYTES && stored.frame.iter().all(|byte| *byte == n), "frame {n}");
    }
}
