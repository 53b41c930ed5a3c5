//! No room: refused whole, read as ever, and well again once there is room.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{key, open, put};
use crate::{Error, Journal, Position, SqliteJournal, SqliteOptions};

#[tokio::test]
async fn a_frame_over_the_limit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteOptions { max_frame_bytes: 100, ..SqliteOptions::at(folder.path().join("journal.db")) };
    let journal = SqliteJournal::open(options).unwrap();
    let error = put(&journal, "run_a", Position(0), &[0; 101]).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { bytes: 101, limit: 100 }), "{error}");
    assert_eq!(put(&journal, "run_a", Position(0), &[0; 100]).await.unwrap(), Position(1));
}

/// Appends until there is no room, and returns how many were acknowledged.
async fn fill(journal: &SqliteJournal) -> u64 {
    for n in 0.. {
        match put(journal, "run_a", Position(n), &[b'x'; 20_000]).await {
            Ok(position) => assert_eq!(position, Position(n + 1)),
            Err(Error::Full { .. }) => return n,
            Err(error) => panic!("append {n}: {error}"),
        }
    }
    unreachable!("the journal never ran full")
}

async fn assert_full_and_sound(journal: &SqliteJournal, acknowledged: u64) {
    assert!(acknowledged > 3, "only {acknowledged} appends found room");
    let error = journal.ready().await.unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(error.retryable());
    let frames = journal.read(&key("run_a"), Position(0), usize::MAX).await.unwrap();
    assert_eq!(frames.len() as u64, acknowledged, "what was refused is not there, what was acknowledged is");
    assert_eq!(journal.last(&key("run_a")).await.unwrap(), Position(acknowledged));
}

#[tokio::test]
async fn a_file_at_its_bound_is_full() {
    let folder = tempfile::tempdir().unwrap();
    let bounded =
        SqliteOptions { max_file_bytes: Some(1 << 20), ..SqliteOptions::at(folder.path().join("journal.db")) };
    let journal = SqliteJournal::open(bounded).unwrap();
    let acknowledged = fill(&journal).await;
    assert_full_and_sound(&journal, acknowledged).await;
    drop(journal);
    let journal = open(folder.path());
    journal.ready().await.unwrap();
    put(&journal, "run_a", Position(acknowledged), b"more").await.unwrap();
    assert!(journal.check().await.unwrap().is_clean());
}

#[tokio::test]
async fn an_append_that_finds_no_room_spoils_no_other_of_its_batch() {
    let folder = tempfile::tempdir().unwrap();
    let bounded =
        SqliteOptions { max_file_bytes: Some(1 << 20), ..SqliteOptions::at(folder.path().join("journal.db")) };
    let journal = SqliteJournal::open(bounded).unwrap();
    let mut appends = tokio::task::JoinSet::new();
    for n in 0..60usize {
        let journal = journal.clone();
        let bytes = if n % 3 == 0 { 2 << 20 } else { 10 };
        appends.spawn(async move { (n, put(&journal, &format!("run_{n}"), Position(0), &vec![1; bytes]).await) });
    }
    while let Some(joined) = appends.join_next().await {
        match joined.unwrap() {
            (n, Err(Error::Full { .. })) if n % 3 == 0 => {}
            (n, Ok(_)) if n % 3 > 0 => {}
            (n, other) => panic!("append {n}: {other:?}"),
        }
    }
    assert_eq!(journal.check().await.unwrap().logs, 40);
}

/// A small file system in memory, where the kernel lets this process mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.display());
    }
}

#[tokio::test]
async fn a_full_disk_is_full_until_there_is_room_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(folder.path()) else {
        return println!("skipped: mounting a small file system is not allowed here");
    };
    let ballast = folder.path().join("ballast");
    std::fs::write(&ballast, vec![1u8; 1 << 20]).unwrap();
    let journal = open(folder.path());
    let acknowledged = fill(&journal).await;
    assert_full_and_sound(&journal, acknowledged).await;
    std::fs::remove_file(&ballast).unwrap();
    journal.ready().await.unwrap();
    for n in acknowledged..acknowledged + 5 {
        put(&journal, "run_a", Position(n), &[b'x'; 20_000]).await.unwrap();
    }
    drop(journal);
    let journal = open(folder.path());
    assert_eq!(journal.last(&key("run_a")).await.unwrap(), Position(acknowledged + 5));
    assert!(journal.check().await.unwrap().is_clean());
}
