//! The index of heads alone, in a file that can be thrown away: a cache of what another store holds.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use hearth_types::{RunId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::draft::HeadDraft;
use super::failure::before_commit;
use super::lock::FileLock;
use super::readers::Readers;
use super::{SqliteOptions, heads, schema};
use crate::{Error, HeadPage, HeadQuery, LogKey, Position, RunHead};

const PLACE: &str = "the cached index of runs";

/// On disk rather than in memory, so that a million parked runs cost none.
pub(crate) struct HeadFile {
    readers: Readers,
    writer: Arc<Mutex<Connection>>,
    _lock: FileLock,
}

impl HeadFile {
    /// An empty index in `folder`, which belongs to this process alone. Blocks on the disk.
    pub(crate) fn create(folder: &Path) -> Result<Self, Error> {
        let io = |error: std::io::Error| Error::Unavailable { reason: format!("{}: {error}", folder.display()) };
        std::fs::create_dir_all(folder).map_err(io)?;
        let options = SqliteOptions::at(folder.join("heads.db"));
        let lock = FileLock::take(&options.path)?;
        for suffix in ["", "-wal", "-shm"] {
            let mut path = options.path.clone().into_os_string();
            path.push(suffix);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(io(error)),
                _ => {}
            }
        }
        let connection = schema::open_for_writing(&options)?;
        // It is made anew at every start, so nothing in it needs to survive one.
        connection.pragma_update(None, "synchronous", "OFF").map_err(|error| before_commit(&error, PLACE))?;
        let readers = Readers::open(&options)?;
        Ok(Self { readers, writer: Arc::new(Mutex::new(connection)), _lock: lock })
    }

    /// Takes the heads over whose positions are newer than what is there.
    pub(crate) async fn apply(&self, news: Vec<(Position, RunHead)>) -> Result<(), Error> {
        let put_all = move |connection: &Connection| {
            news.into_iter().try_for_each(|(position, head)| put(connection, position, &HeadDraft::of(head)))
        };
        self.write(put_all).await
    }

    async fn write<T, F>(&self, write: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let writer = self.writer.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let mut connection = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction = connection.transaction()?;
            let result = write(&transaction)?;
            transaction.commit().map(|()| result)
        });
        let written = writing.await.map_err(|error| Error::Unavailable { reason: error.to_string() })?;
        written.map_err(|error| before_commit(&error, PLACE))
    }

    pub(crate) async fn page(&self, query: &HeadQuery) -> Result<HeadPage, Error> {
        let query = query.clone();
        self.readers.run(move |connection| heads::page(connection, &query)).await
    }

    pub(crate) async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
        let after = after.cloned();
        self.readers.run(move |connection| heads::waking(connection, after.as_ref(), limit)).await
    }

    pub(crate) async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
        while self.readers.run(move |connection| heads::unsettled(connection, now)).await?
            && self.write(move |connection| heads::settle(connection, now, heads::SETTLED_AT_ONCE)).await? > 0
        {}
        self.readers.run(move |connection| heads::due(connection, now, limit)).await
    }
}

fn put(connection: &Connection, position: Position, draft: &HeadDraft) -> rusqlite::Result<()> {
    let key = LogKey::Run(draft.head.run_id.clone()).to_string();
    let log: Option<i64> = connection
        .prepare_cached(
            "INSERT INTO logs (key, last, last_append_id) VALUES (?1, ?2, '') \
             ON CONFLICT (key) DO UPDATE SET last = excluded.last WHERE excluded.last > last RETURNING id",
        )?
        .query_row(params![key, position], |row| row.get(0))
        .optional()?;
    log.map_or(Ok(()), |log| heads::put(connection, log, draft, None))
}
