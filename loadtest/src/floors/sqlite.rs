//! Commits in SQLite: one thread that writes, as many appends in a commit as wait for one, synced.
//!
//! An append is a frame in a table with its unique place, and the run's row, found by its key. No
//! encoding, no checksum, no fence, no further index: what is left is what the disk and SQLite take.

use std::path::Path;
use std::thread::JoinHandle;

use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

use super::{Payload, filler};
use crate::Error;

/// Appends of one commit at the most.
const BATCH: usize = 256;

struct Job {
    log: u64,
    position: u64,
    frame: bool,
    done: oneshot::Sender<bool>,
}

/// The queue's end and the thread behind it.
#[derive(Debug)]
pub(crate) struct BareSqlite {
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl BareSqlite {
    pub(crate) fn open(file: &Path, payload: Payload) -> Result<Self, Error> {
        let connection = Connection::open(file)?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
             CREATE TABLE frames (log INTEGER NOT NULL, position INTEGER NOT NULL, frame BLOB NOT NULL) STRICT;
             CREATE UNIQUE INDEX frames_order ON frames (log, position);
             CREATE TABLE heads (log INTEGER PRIMARY KEY, body TEXT NOT NULL) STRICT;",
        )?;
        let (queue, jobs) = mpsc::channel(1_024);
        let thread = std::thread::spawn(move || commit_all(connection, jobs, payload));
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }

    /// The two appends of a `send`, one after the other, each answered after its commit. `turn` counts
    /// those of the log.
    pub(crate) async fn turn(&self, log: u64, turn: u64) -> Result<(), Error> {
        for (position, frame) in [(turn * 2, true), (turn * 2 + 1, false)] {
            let (done, committed) = oneshot::channel();
            let queue = self.queue.as_ref().ok_or_else(|| Error::program("the SQLite floor", "it is closed"))?;
            let sent = queue.send(Job { log, position, frame, done }).await;
            if sent.is_err() || !committed.await.unwrap_or(false) {
                return Err(Error::program("the SQLite floor", "a commit failed"));
            }
        }
        Ok(())
    }
}

impl Drop for BareSqlite {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn commit_all(mut connection: Connection, mut jobs: mpsc::Receiver<Job>, payload: Payload) {
    let (accept, end, row) = (filler(payload.accept), filler(payload.end), filler(payload.row));
    while let Some(first) = jobs.blocking_recv() {
        let mut batch = vec![first];
        while batch.len() < BATCH {
            let Ok(next) = jobs.try_recv() else { break };
            batch.push(next);
        }
        let texts = [accept.as_str(), end.as_str(), row.as_str()];
        let committed = commit(&mut connection, &batch, texts).is_ok();
        for job in batch {
            // Who asked may have gone.
            job.done.send(committed).ok();
        }
    }
}

fn commit(connection: &mut Connection, batch: &[Job], [accept, end, row]: [&str; 3]) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut frame = transaction.prepare_cached("INSERT INTO frames (log, position, frame) VALUES (?1, ?2, ?3)")?;
        let mut head = transaction.prepare_cached("INSERT OR REPLACE INTO heads (log, body) VALUES (?1, ?2)")?;
        for job in batch {
            let bytes = if job.frame { accept } else { end };
            let (log, position) = (i64::try_from(job.log), i64::try_from(job.position));
            let (log, position) = (log.unwrap_or(i64::MAX), position.unwrap_or(i64::MAX));
            frame.execute(params![log, position, bytes.as_bytes()])?;
            head.execute(params![log, row])?;
        }
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_of_the_floor_is_two_frames_and_a_row() {
        let folder = tempfile::tempdir().unwrap();
        let payload = Payload { request: 1, answer: 1, accept: 10, end: 20, row: 30 };
        let floor = BareSqlite::open(&folder.path().join("floor.db"), payload).unwrap();
        floor.turn(1, 0).await.unwrap();
        floor.turn(1, 1).await.unwrap();
        floor.turn(2, 0).await.unwrap();
        drop(floor);
        let file = Connection::open(folder.path().join("floor.db")).unwrap();
        let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM frames"), 6);
        assert_eq!(count("SELECT count(*) FROM heads"), 2);
        assert_eq!(count("SELECT sum(length(frame)) FROM frames"), 90);
    }
}
