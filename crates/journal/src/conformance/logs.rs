//! Order, durability and idempotence of logs.

use bytes::Bytes;
use hearth_types::SessionId;

use super::{Store, append, frame, log, run, texts};
use crate::{Append, LogKey, Position};

pub(super) async fn an_empty_log_reads_as_nothing(store: &Store) {
    let key = log("empty");
    assert_eq!(store.first().last(&key).await.unwrap(), Position(0));
    assert_eq!(store.first().read(&key, Position(0), 10).await.unwrap(), vec![]);
    assert_eq!(store.first().head(&run("empty")).await.unwrap(), None);
    assert!(store.first().heads(&crate::HeadQuery { limit: 10, ..Default::default() }).await.unwrap().heads.is_empty());
    assert!(store.first().waking(None, 10).await.unwrap().is_empty());
}

pub(super) async fn frames_come_back_whole_and_in_order(store: &Store) {
    let key = log("order");
    let mut positions = vec![Position(0)];
    for n in 0..30 {
        let last = positions[n];
        let position = store.first().append(append(&key, last, &format!("frame {n}"))).await.unwrap();
        assert!(position > last, "{position} is not after {last}");
        positions.push(position);
    }
    assert_eq!(store.first().last(&key).await.unwrap(), positions[30]);
    let all = store.first().read(&key, Position(0), 100).await.unwrap();
    assert_eq!(all.iter().map(|stored| stored.position).collect::<Vec<_>>(), positions[1..]);
    for (n, stored) in all.iter().enumerate() {
        assert_eq!(stored.frame, frame(&format!("frame {n}")));
    }
    let some = store.first().read(&key, positions[7], 5).await.unwrap();
    assert_eq!(some, all[7..12], "the page after the seventh frame");
    assert_eq!(store.first().read(&key, positions[28], 5).await.unwrap(), all[28..]);
    assert_eq!(store.first().read(&key, positions[30], 5).await.unwrap(), vec![]);
    assert_eq!(store.first().read(&key, Position(0), 0).await.unwrap(), vec![]);
}

pub(super) async fn an_acknowledged_frame_is_read_by_everybody(store: &Store) {
    let key = log("everybody");
    let mut last = Position(0);
    for n in 0..40 {
        let writer = &store.handles[n % store.handles.len()];
        last = writer.append(append(&key, last, &n.to_string())).await.unwrap();
        for reader in &store.handles {
            assert_eq!(reader.last(&key).await.unwrap(), last, "after append {n}");
            let read = texts(&**reader, &key).await;
            assert_eq!(read.len(), n + 1);
            assert_eq!(read[n], n.to_string());
        }
    }
}

pub(super) async fn a_repeated_append_has_no_second_effect(store: &Store) {
    let key = log("repeat");
    let one = append(&key, Position(0), "one");
    let first = store.first().append(one.clone()).await.unwrap();
    for journal in &store.handles {
        assert_eq!(journal.append(one.clone()).await.unwrap(), first, "the same append again");
    }
    let two = append(&key, first, "two");
    let second = store.first().append(two.clone()).await.unwrap();
    assert_eq!(store.second().append(two.clone()).await.unwrap(), second);
    let again = Append { frame: frame("changed"), ..two };
    assert_eq!(store.first().append(again).await.unwrap(), second, "the id says that it is the same append");
    assert_eq!(texts(store.first(), &key).await, ["one", "two"]);
}

pub(super) async fn logs_do_not_mix(store: &Store) {
    let session = |text: &str| SessionId::parse(text).unwrap();
    let keys = [
        LogKey::Run(run("a")),
        LogKey::Run(run("A")),
        LogKey::Run(run("a-b")),
        LogKey::Run(run("a_b")),
        LogKey::Session("t".into(), session("a")),
        LogKey::Session("t".into(), session("run_a")),
        LogKey::Session("u".into(), session("a")),
        LogKey::Session("t-u".into(), session("a")),
        LogKey::Session("t".into(), session("u-a")),
        LogKey::Catalog("t".into()),
        LogKey::Catalog("u".into()),
        LogKey::History(run("a")),
        LogKey::History(run("A")),
    ];
    for key in &keys {
        let first = store.first().append(append(key, Position(0), &key.to_string())).await.unwrap();
        store.first().append(append(key, first, "more")).await.unwrap();
    }
    for key in &keys {
        assert_eq!(texts(store.second(), key).await, [key.to_string(), "more".into()], "{key}");
    }
}

pub(super) async fn big_and_odd_frames_come_back_whole(store: &Store) {
    let key = log("big");
    let frames: Vec<Bytes> = vec![
        Bytes::new(),
        (0..=255u8).collect(),
        (0..6_000_000u32).map(|n| (n % 251) as u8).collect(),
        Bytes::from_static(b"\0"),
        vec![0u8; 70_000].into(),
        frame("ünïcödé \u{1F600}\r\n"),
    ];
    let mut last = Position(0);
    for (n, frame) in frames.iter().enumerate() {
        let append = Append {
            key: key.clone(),
            expected: last,
            append_id: format!("big-{n}"),
            frame: frame.clone(),
            head: None,
            floor: Position(0),
        };
        last = store.first().append(append).await.unwrap();
    }
    let read = store.second().read(&key, Position(0), 100).await.unwrap();
    assert_eq!(read.len(), frames.len());
    for (n, (stored, frame)) in read.iter().zip(&frames).enumerate() {
        assert!(stored.frame == *frame, "frame {n} of {} bytes came back with {}", frame.len(), stored.frame.len());
    }
}

pub(super) async fn a_store_that_takes_appends_is_ready(store: &Store) {
    for journal in &store.handles {
        journal.ready().await.unwrap();
    }
    store.first().append(append(&log("ready"), Position(0), "x")).await.unwrap();
    store.first().ready().await.unwrap();
}
