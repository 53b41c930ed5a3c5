//! A bounded number of reads at the same time, each on a connection of its own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{SqliteOptions, schema};
use crate::Error;
use crate::metrics;

pub(super) struct Readers {
    /// As many permits as connections, so that whoever holds a permit finds a connection.
    turns: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
    admission: Duration,
}

impl Readers {
    pub(super) fn open(options: &SqliteOptions) -> Result<Self, Error> {
        let connections = (0..options.readers.get()).map(|_| schema::open_for_reading(options));
        let idle = connections.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            turns: Arc::new(Semaphore::new(idle.len())),
            idle: Arc::new(Mutex::new(idle)),
            admission: options.admission,
        })
    }

    /// Runs a read on a thread for blocking work. A caller that goes away does not stop a read that
    /// has begun; the connection comes back all the same.
    pub(super) async fn run<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, Error> + Send + 'static,
    {
        let result = self.try_run(read).await;
        result.inspect_err(metrics::failed)
    }

    async fn try_run<T, F>(&self, read: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut Connection) -> Result<T, Error> + Send + 'static,
    {
        let unavailable = |reason: &str| Error::Unavailable { reason: reason.into() };
        let turn = timeout(self.admission, self.turns.clone().acquire_owned())
            .await
            .map_err(|_| unavailable("the queue of reads is full"))?
            .map_err(|_| unavailable("the journal is closed"))?;
        let idle = self.idle.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let connection = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut connection) = connection else {
                return Err(Error::Unavailable { reason: "a read panicked and took its connection along".into() });
            };
            let result = read(&mut connection);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            drop(turn);
            result
        });
        reading.await.map_err(|error| Error::Unavailable { reason: error.to_string() })?
    }
}
