//! Another number of partitions, also when it is interrupted wherever it may be.

use std::num::NonZeroU16;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{RunId, SessionId};
use serde_json::json;
use tokio::time::timeout;

use super::server::Server;
use super::{JetStreamJournal, JetStreamOptions, append, eventually, head, key, options};
use crate::{
    Append, Error, HeadQuery, Journal, LogKey, Position, Progress, Repartitioned, RunHead, StoredFrame,
    cancel_repartition, repartition,
};

fn with(server: &Server, folder: &Path, partitions: u16) -> JetStreamOptions {
    JetStreamOptions {
        partitions: NonZeroU16::new(partitions).unwrap(),
        start_within: Duration::ZERO,
        name: format!("with {partitions}"),
        ..options(server.url(), folder, "p")
    }
}

/// A frame of these tests says where the one before it is.
fn relocate(frame: &[u8], place: &dyn Fn(u64) -> Option<u64>) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(frame).map_err(|error| error.to_string())?;
    let (prev, rest) = text.split_once(' ').ok_or("it names no frame before it")?;
    let prev: u64 = prev.parse().map_err(|_| "it names no frame before it")?;
    Ok(format!("{} {rest}", place(prev).unwrap_or_default()).into_bytes())
}

async fn change(server: &Server, folder: &Path, from: u16, to: u16) -> Result<Repartitioned, Error> {
    repartition(&with(server, folder, to), from, &relocate, &|_: Progress| {}).await
}

const LARGE: usize = 2_000_000;

/// Logs of every kind: some with a floor, with frames that were removed, with what is too large for a message.
async fn fill(journal: &JetStreamJournal) -> Vec<LogKey> {
    let mut keys = Vec::new();
    for n in 0..40u64 {
        let name = format!("run_{n}");
        let mut last = Position(0);
        for frame in 0..=n % 7 {
            let text = if n == 5 && frame == 3 { "x".repeat(LARGE) } else { format!("{name} {frame}") };
            let floor = if n == 13 && frame == 6 { last } else { Position(0) };
            let body = if n == 6 { json!("y".repeat(100_000)) } else { json!(frame) };
            let head = RunHead { body: body.into(), ..head(&name, frame) };
            let frame = Append { floor, head: Some(head), ..append(&name, last, format!("{last} {text}")) };
            last = journal.append(frame).await.unwrap();
        }
        keys.push(key(&name));
    }
    assert_eq!(journal.trim(&key("run_13"), 3).await.unwrap(), 3, "one from before the floor is still there");
    let run = RunId::parse("run_1").unwrap();
    let others = [
        LogKey::Session("a tenant".into(), SessionId::of_run(&run)),
        LogKey::Catalog("ü.".into()),
        LogKey::History(run),
    ];
    for key in others {
        let mut last = Position(0);
        for n in 0..3 {
            let frame = Append {
                key: key.clone(),
                append_id: format!("of.{n}"),
                head: None,
                ..append("run_1", last, format!("not rewritten {n}"))
            };
            last = journal.append(frame).await.unwrap();
        }
        keys.push(key);
    }
    keys
}

/// What every log says, without the positions, which have to chain.
async fn told(journal: &JetStreamJournal, keys: &[LogKey]) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for key in keys {
        let frames = journal.read(key, Position(0), usize::MAX).await.unwrap();
        let mut before = 0;
        let mut texts = Vec::new();
        for StoredFrame { position, frame } in frames {
            let text = String::from_utf8(frame.to_vec()).unwrap();
            let (prev, rest) = text.split_once(' ').unwrap();
            if matches!(key, LogKey::Run(_)) {
                // The first may follow one that was removed.
                assert!(prev == before.to_string() || texts.is_empty(), "{key}: {prev} is not {before}");
            }
            before = position.0;
            texts.push(rest.to_owned());
        }
        all.push(texts);
    }
    all
}

async fn rows(journal: &JetStreamJournal) -> Vec<RunHead> {
    let all = HeadQuery { limit: 99, ..HeadQuery::default() };
    eventually(async || journal.heads(&all).await).await.heads
}

#[tokio::test]
async fn partitions_change_and_every_log_goes_on_wherever_the_change_is_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let journal = JetStreamJournal::connect(with(&server, folder.path(), 4)).await.unwrap();
    let keys = fill(&journal).await;
    let (before, heads) = (told(&journal, &keys).await, rows(&journal).await);

    let error = change(&server, folder.path(), 4, 7).await.unwrap_err().to_string();
    assert!(error.contains("with 4") && error.contains("stop all"), "who uses the journal is named: {error}");
    drop(journal);
    for (from, to) in [(4, 7), (7, 1), (1, 3)] {
        let error = change(&server, folder.path(), from + 1, to).await.unwrap_err().to_string();
        assert!(error.contains(&format!("has {from} partitions")), "{error}");
        // Each is let go on for longer than the one before, until one comes to its end.
        let mut tries = 0;
        let done = loop {
            tries += 1;
            let cut = Duration::from_millis(tries * tries * 3);
            if let Ok(done) = timeout(cut, change(&server, folder.path(), from, to)).await {
                break done.unwrap();
            }
            // What stands does not serve in the middle of a change; before it and after it it does.
            if let Err(error) = JetStreamJournal::connect(with(&server, folder.path(), from)).await {
                assert!(error.to_string().contains("hearth journal repartition"), "{error}");
            }
        };
        println!("{from} to {to}: {done:?} after {tries} tries");
        let error = JetStreamJournal::connect(with(&server, folder.path(), from)).await.err().unwrap().to_string();
        assert!(error.contains(&format!("--from {to} --to {from}")), "{error}");
        let journal = JetStreamJournal::connect(with(&server, folder.path(), to)).await.unwrap();
        assert_eq!(told(&journal, &keys).await, before);
        assert_eq!(rows(&journal).await, heads);
        drop(journal);
        assert!(change(&server, folder.path(), from, to).await.unwrap().already);
    }
    // Logs go on, the fence with them, and a repeat of the last append is known.
    let journal = JetStreamJournal::connect(with(&server, folder.path(), 3)).await.unwrap();
    let last = journal.last(&key("run_9")).await.unwrap();
    assert!(matches!(journal.append(append("run_9", Position(0), "0 x")).await, Err(Error::Fenced { .. })));
    let next = append("run_9", last, format!("{last} next"));
    let position = journal.append(next.clone()).await.unwrap();
    assert_eq!(journal.append(next).await.unwrap(), position);
    assert_eq!(journal.trim(&key("run_13"), 99).await.unwrap(), 0, "what was folded away was not copied");
}

#[tokio::test]
async fn a_change_that_is_given_up_leaves_the_journal_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let journal = JetStreamJournal::connect(with(&server, folder.path(), 4)).await.unwrap();
    let keys = fill(&journal).await;
    let before = told(&journal, &keys).await;
    assert!(!cancel_repartition(&with(&server, folder.path(), 4)).await.unwrap(), "none was begun");
    // A frame that cannot be read stops it in the middle; the journal stays closed.
    let bad = Append { head: None, ..append("run_bad", Position(0), Bytes::from_static(b"bad")) };
    journal.append(bad).await.unwrap();
    drop(journal);
    let error = change(&server, folder.path(), 4, 7).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { place, .. } if place.starts_with("run/run_bad")), "{error}");
    let error = JetStreamJournal::connect(with(&server, folder.path(), 4)).await.err().unwrap().to_string();
    assert!(error.contains("--cancel"), "{error}");
    assert!(cancel_repartition(&with(&server, folder.path(), 4)).await.unwrap());
    let journal = JetStreamJournal::connect(with(&server, folder.path(), 4)).await.unwrap();
    assert_eq!(told(&journal, &keys).await, before);
    journal.append(append("run_new", Position(0), "0 new")).await.unwrap();
}

#[tokio::test]
async fn who_was_stopped_during_the_change_can_append_nothing_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let options = |partitions| with(&server, folder.path(), partitions);
    let stale = JetStreamJournal::connect(options(2)).await.unwrap();
    let last = stale.append(append("run_a", Position(0), "0 one")).await.unwrap();
    // As one that answers nothing: its question is not heard.
    stale.shared.user.abort();
    eventually(async || change(&server, folder.path(), 2, 3).await).await;
    let error = stale.append(append("run_a", last, format!("{last} two"))).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(stale.ready().await.is_err(), "it does not serve");
    let journal = JetStreamJournal::connect(options(3)).await.unwrap();
    assert_eq!(told(&journal, &[key("run_a")]).await, [["one"]]);
}
