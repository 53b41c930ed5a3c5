//! Where the time comes from. Only this file reads the process's wall clock.

use std::sync::Arc;

use crate::Timestamp;

/// A source of wall-clock time. Sleeps and time-outs use `tokio::time`, which tests can pause.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

pub type SharedClock = Arc<dyn Clock>;

/// Wall-clock time that moves with tokio's clock: read once at the start, then advanced by the
/// monotonic clock, so that it never steps backwards and stands still when a test pauses time.
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Timestamp,
    origin: tokio::time::Instant,
}

impl SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn start() -> Self {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let started = Timestamp::from_millis(i64::try_from(since_epoch.as_millis()).unwrap_or(0));
        Self { started, origin: tokio::time::Instant::now() }
    }

    pub fn shared() -> SharedClock {
        Arc::new(Self::start())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.started.plus(self.origin.elapsed())
    }
}
