//! The bound on what waits for its append, by size.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::Error;

/// Counted in these, since a semaphore counts in 32 bits; so an append counts for as much at least.
const UNIT: usize = 1024;

pub(crate) struct Admission {
    room: Arc<Semaphore>,
    bytes: NonZeroUsize,
    wait: Duration,
}

impl Admission {
    pub(crate) fn new(bytes: NonZeroUsize, wait: Duration) -> Self {
        Self { room: Arc::new(Semaphore::new(bytes.get().div_ceil(UNIT))), bytes, wait }
    }

    /// Waits for room, which the permit holds. What is larger than the whole room takes all of it.
    pub(crate) async fn enter(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
        let units = u32::try_from(bytes.clamp(1, self.bytes.get()).div_ceil(UNIT)).unwrap_or(u32::MAX);
        match timeout(self.wait, self.room.clone().acquire_many_owned(units)).await {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) => Err(Error::Unavailable { reason: "the journal is closed".into() }),
            Err(_) => Err(Error::Unavailable { reason: "the queue of appends is full".into() }),
        }
    }
}
