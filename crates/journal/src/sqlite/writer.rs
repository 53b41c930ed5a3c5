//! The one connection that writes: it commits in groups, on a thread of its own.
//!
//! An append that finds nobody else at work is committed where it is asked for, as long as commits are
//! quick: to wake a thread, and to be woken by it, would take about as long as the commit itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use hearth_types::Timestamp;
use rusqlite::Connection;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::draft::Draft;
use super::{failure, frames, heads};
use crate::Error;
use crate::metrics;

/// What the writer is asked to do.
#[derive(Debug)]
pub(super) enum Work {
    Append(Box<Draft>),
    /// Removes frames before a log's floor.
    Trim {
        key: String,
        limit: usize,
    },
    /// Puts rows where they belong in the order in which runs are due.
    Settle {
        now: Timestamp,
        limit: usize,
    },
    /// Takes room and gives it back, to see whether an append would find any.
    Probe,
}

impl Work {
    fn bytes(&self) -> usize {
        match self {
            Self::Append(draft) => draft.bytes(),
            Self::Trim { .. } | Self::Settle { .. } | Self::Probe => 0,
        }
    }

    fn place(&self) -> &str {
        match self {
            Self::Append(draft) => &draft.key,
            Self::Trim { key, .. } => key,
            Self::Settle { .. } | Self::Probe => "the journal's file",
        }
    }
}

#[derive(Debug)]
struct Job {
    work: Work,
    /// A position, or how many frames or rows were concerned.
    answer: oneshot::Sender<Result<u64, Error>>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct BatchBounds {
    pub(super) appends: usize,
    pub(super) bytes: usize,
    pub(super) in_place_below: Duration,
}

/// A larger append is not committed by a thread that has other tasks.
const SMALL: usize = 64 * 1024;

/// The queue's end, the thread behind it, and what that works with.
pub(super) struct Writer {
    queue: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    committer: Arc<Mutex<Committer>>,
    pace: Arc<Pace>,
    in_place_below: Duration,
}

/// By which an append knows whether to wait for the thread.
#[derive(Debug)]
struct Pace {
    /// What a commit usually takes, in nanoseconds.
    usual: AtomicU64,
    /// The thread's last batch was more than one append: there are others whose appends can go along.
    crowded: AtomicBool,
}

impl Writer {
    pub(super) fn start(connection: Connection, queue: usize, bounds: BatchBounds) -> Result<Self, Error> {
        let (queue, jobs) = mpsc::channel(queue);
        // None is known to be quick before one was.
        let pace = Arc::new(Pace { usual: AtomicU64::new(u64::MAX), crowded: AtomicBool::new(false) });
        let committer = Arc::new(Mutex::new(Committer { connection, refused: 0, pace: pace.clone() }));
        let its_own = committer.clone();
        let thread = std::thread::Builder::new()
            .name("journal-writer".into())
            .spawn(move || commit_all(&its_own, jobs, bounds))
            .map_err(|error| Error::Unavailable { reason: error.to_string() })?;
        Ok(Self { queue: Some(queue), thread: Some(thread), committer, pace, in_place_below: bounds.in_place_below })
    }

    /// Commits the append here and now, if that keeps nobody waiting; else gives it back.
    fn commit_here(&self, work: Work) -> Result<Result<u64, Error>, Work> {
        let quick = Duration::from_nanos(self.pace.usual.load(Ordering::Relaxed)) < self.in_place_below;
        let alone = !self.pace.crowded.load(Ordering::Relaxed);
        let nobody_waits = self.queue.as_ref().is_some_and(|queue| queue.capacity() == queue.max_capacity());
        // Somebody has to go on meanwhile.
        let others = Handle::try_current().is_ok_and(|here| here.metrics().num_workers() > 1);
        let small = matches!(&work, Work::Append(draft) if draft.bytes() <= SMALL);
        if !(quick && alone && nobody_waits && others && small) {
            return Err(work);
        }
        let mut committer = match self.committer.try_lock() {
            Ok(committer) => committer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(work),
        };
        let result = committer.transact(&[&work]);
        if result.is_ok() {
            metrics::committed_in_place();
        }
        Ok(result.and_then(only))
    }

    /// Queues the work and waits for its commit.
    pub(super) async fn submit(&self, work: Work, admission: Duration) -> Result<u64, Error> {
        let work = match self.commit_here(work) {
            Ok(result) => return result,
            Err(work) => work,
        };
        let unavailable = |reason: &str| Error::Unavailable { reason: reason.into() };
        let queue = self.queue.as_ref().ok_or_else(|| unavailable("the journal is closed"))?;
        let place = timeout(admission, queue.reserve())
            .await
            .map_err(|_| unavailable("the queue of appends is full"))?
            .map_err(|_| unavailable("the journal's writer has ended"))?;
        let (answer, answered) = oneshot::channel();
        metrics::queued();
        place.send(Job { work, answer });
        answered.await.unwrap_or_else(|_| Err(Error::Unknown { reason: "the journal's writer has ended".into() }))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.queue.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the journal's writer panicked");
        }
    }
}

struct Committer {
    connection: Connection,
    pace: Arc<Pace>,
    /// The bytes of the last append that found no room, until one as large finds it: a disk that is
    /// full for a large append may take a small one.
    refused: usize,
}

fn commit_all(committer: &Mutex<Committer>, mut jobs: mpsc::Receiver<Job>, bounds: BatchBounds) {
    while let Some(first) = jobs.blocking_recv() {
        // After a panic elsewhere the next transaction rolls back what it left.
        let mut committer = committer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = first.work.bytes();
        let mut batch = vec![first];
        while batch.len() < bounds.appends && bytes < bounds.bytes {
            let Ok(next) = jobs.try_recv() else { break };
            bytes += next.work.bytes();
            batch.push(next);
        }
        metrics::dequeued(batch.len());
        committer.pace.crowded.store(batch.len() > 1, Ordering::Relaxed);
        let results = committer.settle(&batch.iter().map(|job| &job.work).collect::<Vec<_>>());
        // Whoever is answered finds the connection free.
        drop(committer);
        batch.into_iter().zip(results).for_each(|(job, result)| answer(job, result));
    }
}

type Results = Vec<Result<u64, Error>>;

impl Committer {
    /// Commits the works; a result for each. When they cannot be written together, each gets a transaction
    /// of its own, so that one that finds no room spoils no other.
    fn settle(&mut self, works: &[&Work]) -> Results {
        match self.transact(works) {
            Ok(results) => {
                metrics::committed(works.len());
                results
            }
            Err(Error::Unknown { reason }) => {
                works.iter().map(|_| Err(Error::Unknown { reason: reason.clone() })).collect()
            }
            Err(error) if works.len() == 1 => vec![Err(error)],
            Err(_) => works.iter().map(|work| self.transact(&[work]).and_then(only)).collect(),
        }
    }

    fn transact(&mut self, works: &[&Work]) -> Result<Results, Error> {
        let began = Instant::now();
        let result = self.try_transact(works);
        self.note(began.elapsed());
        let largest = works.iter().map(|work| work.bytes()).max().unwrap_or(0);
        let probed = works.iter().any(|work| matches!(work, Work::Probe));
        match &result {
            Err(Error::Full { .. }) if works.len() == 1 => self.refused = self.refused.max(largest),
            Ok(_) if probed || largest >= self.refused => self.refused = 0,
            _ => {}
        }
        if probed && result.is_ok() {
            // The room goes back; should that fail, the next probe's transaction gives it back.
            if let Err(error) = self.connection.execute("DELETE FROM probe", []) {
                tracing::warn!(%error, "the journal could not give back the room it took for a probe");
            }
        }
        result
    }

    /// An eighth of the newest, and the rest of what was: one that is slow now and then changes little.
    fn note(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX / 8);
        let usual = match self.pace.usual.load(Ordering::Relaxed) {
            u64::MAX => took,
            usual => usual - usual / 8 + took / 8,
        };
        self.pace.usual.store(usual, Ordering::Relaxed);
    }

    fn try_transact(&self, works: &[&Work]) -> Result<Results, Error> {
        let results = match self.begin_and_write(works) {
            Ok(results) => results,
            Err((error, place)) => {
                self.roll_back();
                return Err(failure::before_commit(&error, place));
            }
        };
        match self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
            Ok(_) => Ok(results),
            Err(error) => {
                self.roll_back();
                Err(failure::at_commit(&error, works.first().map_or("", |work| work.place())))
            }
        }
    }

    fn begin_and_write<'a>(&self, works: &[&'a Work]) -> Result<Results, (rusqlite::Error, &'a str)> {
        let begin = self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([]));
        begin.map_err(|error| (error, "the journal's file"))?;
        let write = |work: &&'a Work| {
            let result = match work {
                Work::Append(draft) => {
                    frames::append(&self.connection, draft).map(|done| done.map(|position| position.0))
                }
                Work::Trim { key, limit } => frames::trim(&self.connection, key, *limit).map(Ok),
                Work::Settle { now, limit } => heads::settle(&self.connection, *now, *limit).map(Ok),
                Work::Probe => self.probe().map(|()| Ok(0)),
            };
            result.map_err(|error| (error, work.place()))
        };
        works.iter().map(write).collect()
    }

    fn probe(&self) -> rusqlite::Result<()> {
        const SLACK: usize = 16 * 1024;
        self.connection.prepare_cached("DELETE FROM probe")?.execute([])?;
        let pad = rusqlite::types::Value::Blob(vec![0; self.refused + SLACK]);
        self.connection.prepare_cached("INSERT INTO probe (pad) VALUES (?1)")?.execute([pad])?;
        Ok(())
    }

    /// SQLite rolls back by itself after some errors, and then there is nothing left to do.
    fn roll_back(&self) {
        if self.connection.is_autocommit() {
            return;
        }
        if let Err(error) = self.connection.execute_batch("ROLLBACK") {
            tracing::error!(%error, "the journal could not roll back; further appends will be refused");
        }
    }
}

/// The result of a transaction of one work.
fn only(mut results: Results) -> Result<u64, Error> {
    results.pop().unwrap_or_else(|| Err(Error::Unknown { reason: "the transaction gave no result".into() }))
}

/// A caller that went away is no failure: the append stands, and it will ask again.
fn answer(job: Job, result: Result<u64, Error>) {
    if job.answer.send(result).is_err() {
        tracing::debug!(place = job.work.place(), "nobody waits for this append any more");
    }
}
