//! Admission, batches, and who may hold the file.

use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::task::JoinSet;

use super::{key, open, put};
use crate::{Error, Journal, Position, SqliteJournal, SqliteOptions, metrics};

#[tokio::test]
async fn fenced_appends_spoil_no_other_of_their_batch() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let mut appends = JoinSet::new();
    for n in 0..200u64 {
        let journal = journal.clone();
        // Every second one expects what is not.
        let expected = Position(n % 2 * 7);
        appends.spawn(async move { (expected, put(&journal, &format!("run_{n}"), expected, b"x").await) });
    }
    let mut stored = 0;
    while let Some(joined) = appends.join_next().await {
        match joined.unwrap() {
            (Position(0), Ok(Position(1))) => stored += 1,
            (Position(7), Err(Error::Fenced { last: Position(0) })) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stored, 100);
    assert_eq!(journal.check().await.unwrap().frames, 100);
}

#[tokio::test]
async fn a_full_queue_refuses_after_a_bounded_wait() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions {
        queue_bytes: NonZeroUsize::MIN,
        admission: Duration::from_millis(5),
        ..SqliteOptions::at(folder.path().join("journal.db"))
    };
    let journal = SqliteJournal::open(options).unwrap();
    // A lock that another connection holds keeps the writer busy.
    let other = rusqlite::Connection::open(folder.path().join("journal.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut blocked = Box::pin(put(&journal, "run_a", Position(0), b"x"));
    tokio::time::timeout(Duration::ZERO, &mut blocked).await.expect_err("the writer waits for the lock");
    let refused = put(&journal, "run_b", Position(0), b"y").await.unwrap_err();
    assert!(matches!(&refused, Error::Unavailable { reason } if reason == "the queue of appends is full"), "{refused}");
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(blocked.await.unwrap(), Position(1));
    assert_eq!(journal.last(&key("run_b")).await.unwrap(), Position(0));
}

#[tokio::test]
async fn a_file_has_one_holder_who_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    let error = SqliteJournal::open(SqliteOptions::at(folder.path().join("journal.db"))).err().expect("refused");
    let message = error.to_string();
    assert!(message.contains(&format!("in use by process {}", std::process::id())), "{message}");
    put(&journal, "run_a", Position(0), b"x").await.unwrap();
    let clone = journal.clone();
    drop(journal);
    assert!(SqliteJournal::open(SqliteOptions::at(folder.path().join("journal.db"))).is_err());
    drop(clone);
    assert_eq!(open(folder.path()).last(&key("run_a")).await.unwrap(), Position(1));
}

#[tokio::test]
async fn what_is_queued_is_committed_before_the_last_handle_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path());
    // Each append is queued by its first poll and then abandoned.
    for n in 0..50 {
        let name = format!("run_{n}");
        drop(tokio::time::timeout(Duration::ZERO, put(&journal, &name, Position(0), b"x")).await);
    }
    drop(journal);
    let report = open(folder.path()).check().await.unwrap();
    assert_eq!((report.frames, report.findings), (50, vec![]));
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_an_error_that_names_it() {
    let error = SqliteJournal::open(SqliteOptions::at("/nowhere/journal.db")).err().expect("refused").to_string();
    assert!(error.contains("/nowhere/journal.db"), "{error}");
}

/// Where a commit is quick and nobody else waits it is done at once, else by the thread: whatever comes of
/// it, each append is there once and in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn appends_alone_and_in_crowds_are_committed_alike() {
    const LOGS: usize = 16;
    const EACH: u64 = 40;
    let folder = tempfile::tempdir().unwrap();
    let slow = Duration::from_secs(3_600);
    let options = SqliteOptions { in_place_below: slow, ..SqliteOptions::at(folder.path().join("journal.db")) };
    let journal = SqliteJournal::open(options).unwrap();
    for crowd in [1, LOGS, 1, LOGS] {
        let before = metrics::in_place();
        let mut tasks = tokio::task::JoinSet::new();
        for log in 0..crowd {
            let (journal, name) = (journal.clone(), format!("run_{crowd}_{log}"));
            tasks.spawn(async move {
                let from = journal.last(&key(&name)).await.unwrap().0;
                for n in from..from + EACH {
                    assert_eq!(put(&journal, &name, Position(n), b"x").await.unwrap(), Position(n + 1));
                }
                let fenced = put(&journal, &name, Position(0), b"y").await.unwrap_err();
                assert!(matches!(fenced, Error::Fenced { .. }), "{fenced}");
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        // The thread's first one, and one after a crowd, say how it stands.
        let in_place = metrics::in_place() - before;
        assert!(crowd > 1 || in_place >= EACH - 2, "{in_place} of {EACH} that came alone");
    }
    drop(journal);
    let journal = open(folder.path());
    assert!(journal.check().await.unwrap().is_clean());
    for (crowd, frames) in [(1, EACH * 2), (LOGS, EACH * 2)] {
        assert_eq!(journal.last(&key(&format!("run_{crowd}_0"))).await.unwrap(), Position(frames));
    }
}
