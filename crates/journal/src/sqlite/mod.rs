//! A journal in one SQLite file: one connection that writes, with group commit, and a few readers.

mod doctor;
mod draft;
mod failure;
mod frames;
#[cfg(feature = "cluster")]
mod head_file;
mod heads;
mod lock;
mod readers;
mod schema;
mod writer;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hearth_types::{RunId, Timestamp};
use tokio::time::Instant;

use crate::admission::Admission;
use crate::metrics;
use crate::{Append, Error, HeadPage, HeadQuery, Journal, LogKey, Position, Report, RunHead, StoredFrame};
use draft::Draft;
#[cfg(feature = "cluster")]
pub(crate) use head_file::HeadFile;
#[cfg(test)]
pub(crate) use heads::page_plan;
use lock::FileLock;
use readers::Readers;
use writer::{BatchBounds, Work, Writer};

/// Where the journal is and what bounds it.
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// The file; `-wal`, `-shm` and `.lock` files stand beside it. Its folder must exist.
    pub path: PathBuf,
    /// A larger frame is refused.
    pub max_frame_bytes: usize,
    /// A larger file is refused as a full disk would be; `None` leaves it to the disk.
    pub max_file_bytes: Option<u64>,
    /// Appends that wait for their commit at the most, by number and by size.
    pub queue_appends: NonZeroUsize,
    pub queue_bytes: NonZeroUsize,
    /// What one commit makes durable at the most.
    pub batch_appends: NonZeroUsize,
    pub batch_bytes: NonZeroUsize,
    /// An append that comes alone is committed by the thread that asks for it, while commits usually take
    /// less than this.
    pub in_place_below: Duration,
    /// Reads that run at the same time.
    pub readers: NonZeroUsize,
    /// How long an operation waits for its place in a queue before it is refused.
    pub admission: Duration,
}

impl SqliteOptions {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        const MIB: usize = 1024 * 1024;
        let count = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self {
            path: path.into(),
            max_frame_bytes: 64 * MIB,
            max_file_bytes: None,
            queue_appends: count(1_024),
            queue_bytes: count(128 * MIB),
            batch_appends: count(256),
            batch_bytes: count(8 * MIB),
            in_place_below: Duration::from_millis(1),
            readers: count(4),
            admission: Duration::from_secs(10),
        }
    }
}

/// The handle; clones share the file. When the last one is dropped, what is queued is committed and
/// the file is released before the drop returns.
#[derive(Clone)]
pub struct SqliteJournal {
    shared: Arc<Shared>,
}

struct Shared {
    // In this order: the readers' connections close, the writer commits what is queued, and only
    // then the lock lets another process in.
    readers: Readers,
    writer: Writer,
    _lock: FileLock,
    admission: Admission,
    options: SqliteOptions,
}

impl SqliteJournal {
    /// Opens the file, makes it if it is not there, and holds it alone until the last handle is
    /// dropped. Blocks on the disk.
    pub fn open(options: SqliteOptions) -> Result<Self, Error> {
        let lock = FileLock::take(&options.path)?;
        let connection = schema::open_for_writing(&options)?;
        let readers = Readers::open(&options)?;
        let bounds = BatchBounds {
            appends: options.batch_appends.get(),
            bytes: options.batch_bytes.get(),
            in_place_below: options.in_place_below,
        };
        let writer = Writer::start(connection, options.queue_appends.get(), bounds)?;
        let admission = Admission::new(options.queue_bytes, options.admission);
        Ok(Self { shared: Arc::new(Shared { readers, writer, _lock: lock, admission, options }) })
    }

    /// Walks everything and says what is not as it was written. Long for a large file.
    pub async fn check(&self) -> Result<Report, Error> {
        self.shared.readers.run(doctor::check).await
    }

    async fn queue(&self, work: Work, bytes: usize) -> Result<u64, Error> {
        let _room = self.shared.admission.enter(bytes).await?;
        self.shared.writer.submit(work, self.shared.options.admission).await
    }
}

#[async_trait]
impl Journal for SqliteJournal {
    async fn append(&self, append: Append) -> Result<Position, Error> {
        let began = Instant::now();
        let result = async {
            append.check(self.shared.options.max_frame_bytes)?;
            let draft = Draft::of(append);
            let bytes = draft.bytes();
            self.queue(Work::Append(Box::new(draft)), bytes).await.map(Position)
        }
        .await;
        metrics::appended(began.elapsed());
        result.inspect_err(metrics::failed)
    }

    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        let key = key.to_string();
        self.shared.readers.run(move |connection| frames::read(connection, &key, after, limit)).await
    }

    async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error> {
        let work = Work::Trim { key: key.to_string(), limit };
        self.queue(work, 1).await.inspect(|frames| metrics::trimmed(*frames)).inspect_err(metrics::failed)
    }

    async fn last(&self, key: &LogKey) -> Result<Position, Error> {
        let key = key.to_string();
        self.shared.readers.run(move |connection| frames::last(connection, &key)).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        let run = run.clone();
        self.shared.readers.run(move |connection| heads::get(connection, &run)).await
    }

    async fn heads(&self, query: &HeadQuery) -> Result<HeadPage, Error> {
        let query = query.clone();
        self.shared.readers.run(move |connection| heads::page(connection, &query)).await
    }

    async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
        let after = after.cloned();
        self.shared.readers.run(move |connection| heads::waking(connection, after.as_ref(), limit)).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
        while self.shared.readers.run(move |connection| heads::unsettled(connection, now)).await?
            && self.queue(Work::Settle { now, limit: heads::SETTLED_AT_ONCE }, 1).await? > 0
        {}
        self.shared.readers.run(move |connection| heads::due(connection, now, limit)).await
    }

    /// Commits a probe that needs room, as an append would.
    async fn ready(&self) -> Result<(), Error> {
        self.queue(Work::Probe, 1).await.map(|_| ())
    }
}
