//! What all handlers share, and the bounds that they share it under.

use std::sync::Arc;
use std::time::Duration;

use hearth_api::Hearth;
use hearth_types::{Fault, FaultCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::intake::BodyMemory;
use crate::auth::Auth;
use crate::config::Settings;
use crate::metrics::SHED;

/// The bounds of one listener.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Requests in flight; an eighth is kept for those that do not wait for a turn.
    pub max_concurrent_requests: usize,
    pub max_streams: usize,
    /// Bytes of request bodies that are held at once.
    pub max_body_memory: usize,
    /// How long a reader may stand still.
    pub stream_stall: Duration,
    /// Between two comment lines of a stream.
    pub stream_heartbeat: Duration,
    /// How long a request may go on after its client has gone: enough to be accepted.
    pub abandoned_grace: Duration,
    /// How long requests in flight may go on once the end was asked for.
    pub shutdown_grace: Duration,
    /// How long a connection may be idle, or take to send the head of a request.
    pub idle_timeout: Duration,
    /// How long `readyz` waits for its answer.
    pub ready_timeout: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            max_concurrent_requests: 16_384,
            max_streams: 4_096,
            max_body_memory: 256 << 20,
            stream_stall: Duration::from_secs(30),
            stream_heartbeat: Duration::from_secs(15),
            abandoned_grace: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(25),
            // Longer than the idle time of usual load balancers, so that they are the ones who close.
            idle_timeout: Duration::from_secs(75),
            ready_timeout: Duration::from_secs(2),
        }
    }
}

impl From<&Settings> for HttpOptions {
    fn from(settings: &Settings) -> Self {
        Self {
            max_concurrent_requests: settings.max_concurrent_requests,
            max_streams: settings.max_streams,
            max_body_memory: settings.max_body_memory,
            stream_stall: settings.stream_stall,
            shutdown_grace: settings.shutdown_grace,
            ..Self::default()
        }
    }
}

/// A place among the requests in flight; it is given back when the last copy is dropped.
pub type Place = Arc<OwnedSemaphorePermit>;

/// The state of the surface. Cheap to clone.
#[derive(Clone)]
pub struct Gateway {
    inner: Arc<Inner>,
}

struct Inner {
    hearth: Hearth,
    auth: Auth,
    options: HttpOptions,
    requests: Arc<Semaphore>,
    waits: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    bodies: BodyMemory,
    closing: CancellationToken,
    expired: CancellationToken,
}

impl Gateway {
    pub fn new(hearth: Hearth, auth: Auth, options: HttpOptions) -> Self {
        let all = options.max_concurrent_requests.clamp(2, Semaphore::MAX_PERMITS);
        let kept = (all / 8).max(1);
        let inner = Inner {
            requests: Arc::new(Semaphore::new(all)),
            waits: Arc::new(Semaphore::new(all - kept)),
            streams: Arc::new(Semaphore::new(options.max_streams.min(Semaphore::MAX_PERMITS))),
            bodies: BodyMemory::new(options.max_body_memory),
            closing: CancellationToken::new(),
            expired: CancellationToken::new(),
            hearth,
            auth,
            options,
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn hearth(&self) -> &Hearth {
        &self.inner.hearth
    }

    pub fn auth(&self) -> &Auth {
        &self.inner.auth
    }

    pub fn options(&self) -> &HttpOptions {
        &self.inner.options
    }

    pub(super) fn bodies(&self) -> &BodyMemory {
        &self.inner.bodies
    }

    /// Cancelled when the end was asked for: streams end, so that their readers resume elsewhere.
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    /// Cancelled when the time for requests in flight is over.
    pub(super) fn expired(&self) -> &CancellationToken {
        &self.inner.expired
    }

    /// A place among all requests.
    pub(super) fn enter(&self) -> Result<Place, Fault> {
        take(&self.inner.requests, "requests")
            .map(Arc::new)
            .ok_or_else(|| Fault::unavailable("this replica has too many requests in flight: try again"))
    }

    /// A place among those that wait for a turn; there are fewer, so that cancels, closes and lists
    /// get through when all of these are taken.
    pub(super) fn enter_wait(&self) -> Result<OwnedSemaphorePermit, Fault> {
        take(&self.inner.waits, "waits")
            .ok_or_else(|| Fault::unavailable("this replica has too many calls that wait for a turn: try again"))
    }

    pub(super) fn enter_stream(&self) -> Result<OwnedSemaphorePermit, Fault> {
        take(&self.inner.streams, "streams").ok_or_else(|| {
            Fault::new(FaultCode::QuotaExceeded, "this replica has too many event streams open: try again")
                .retry_after(Duration::from_secs(5))
        })
    }
}

fn take(places: &Arc<Semaphore>, reason: &str) -> Option<OwnedSemaphorePermit> {
    let place = places.clone().try_acquire_owned().ok();
    if place.is_none() {
        SHED.with_label_values(&[reason]).inc();
    }
    place
}
