//! Connections: accepting them, bounding them, and ending them without losing what is in flight.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use hearth_api::Hearth;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::gateway::{Gateway, HttpOptions};
use super::health::metrics_page;
use super::stall::StallGuard;
use super::table::Table;
use super::{
    agents, console, health, members, nodes, openapi, residents, runs, sandboxes, sessions, skills, snapshots,
    workspaces,
};
use crate::auth::{Auth, AuthError};
use crate::metrics::CONNECTIONS;

/// Bytes of the head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Streams of one HTTP/2 connection.
const MAX_H2_STREAMS: u32 = 256;
/// From the last moment for requests in flight until connections are torn down, so that the answers
/// that say so get out.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Room for connections besides those with a request or a stream: idle ones, probes.
const SPARE_CONNECTIONS: usize = 1_024;

/// Files that the replica keeps for itself: its stores, its sandboxes, the programs of code agents.
const OWN_FILES: usize = 256;
const MIN_CONNECTIONS: usize = 64;

/// The connections that are served at once: each is a file, and so is much of what a request needs.
fn most_connections(options: &HttpOptions, max_files: Option<u64>) -> usize {
    let most = options.max_concurrent_requests + options.max_streams + SPARE_CONNECTIONS;
    let files = max_files.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    most.min(files.saturating_sub(OWN_FILES).max(MIN_CONNECTIONS))
}

/// Why a listener cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the address of the listener is not known: {0}")]
    Address(#[from] io::Error),
    #[error(transparent)]
    Auth(#[from] AuthError),
}

/// Serves the surface until `shutdown` ends; then stops accepting, ends the event streams, and lets
/// requests finish for as long as the options say.
///
/// # Errors
/// A replica without tokens on an address that is not a loopback address.
pub async fn serve(
    listener: TcpListener,
    hearth: Hearth,
    auth: Auth,
    options: HttpOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    if auth.is_open() {
        // The settings were checked; the listener that came of them is what counts.
        Auth::loopback(listener.local_addr()?)?;
    }
    let gateway = Gateway::new(hearth, auth, options);
    let router = router(&gateway);
    run(listener, router, &gateway, shutdown).await;
    Ok(())
}

/// All routes.
pub(super) fn table() -> Table {
    let mut table = Table::new();
    for routes in [
        runs::routes,
        residents::routes,
        sessions::routes,
        agents::routes,
        skills::routes,
        snapshots::routes,
        members::routes,
        nodes::routes,
        sandboxes::routes,
        workspaces::routes,
        health::routes,
        console::routes,
    ] {
        table = routes(table);
    }
    table.described(openapi::document)
}

pub(super) fn router(gateway: &Gateway) -> Router {
    table().into_router(gateway.clone())
}

/// Serves `/metrics` alone, without a token.
pub async fn serve_metrics(listener: TcpListener, shutdown: impl Future<Output = ()> + Send) {
    let router = Router::new().route("/metrics", get(metrics_page));
    let connections = Connections::new(64, HttpOptions::default().idle_timeout, HttpOptions::default().stream_stall);
    connections.accept_until(&listener, &router, shutdown).await;
}

pub(super) async fn run(
    listener: TcpListener,
    router: Router,
    gateway: &Gateway,
    shutdown: impl Future<Output = ()> + Send,
) {
    let options = gateway.options();
    let most = most_connections(options, hearth_telemetry::metrics::max_open_files());
    let mut connections = Connections::new(most, options.idle_timeout, options.stream_stall);
    connections = connections.accept_until(&listener, &router, shutdown).await;
    // Whoever connects from now on is refused at once, and tries another replica.
    drop(listener);
    gateway.closing().cancel();
    connections.finish(options.shutdown_grace, || gateway.expired().cancel()).await;
}

struct Connections {
    builder: Builder<TokioExecutor>,
    places: Arc<Semaphore>,
    stall: Duration,
    graceful: GracefulShutdown,
    tasks: JoinSet<()>,
}

impl Connections {
    fn new(most: usize, idle_timeout: Duration, stall: Duration) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(idle_timeout)
            .max_buf_size(MAX_HEAD_BYTES)
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(idle_timeout / 2)
            .keep_alive_timeout(idle_timeout / 2)
            .max_concurrent_streams(MAX_H2_STREAMS)
            .max_header_list_size(MAX_HEAD_BYTES as u32);
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Self { builder, places, stall, graceful: GracefulShutdown::new(), tasks: JoinSet::new() }
    }

    async fn accept_until(
        mut self,
        listener: &TcpListener,
        router: &Router,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Self {
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return self,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => self.serve(stream, router.clone()),
                    Err(error) => accept_failed(&error).await,
                },
                Some(_) = self.tasks.join_next() => {}
            }
        }
    }

    /// Past the bound a connection is closed at once: there is no room to tell it why.
    fn serve(&mut self, stream: TcpStream, router: Router) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            crate::metrics::SHED.with_label_values(&["connections"]).inc();
            return;
        };
        // Small frames of a stream must not wait for each other.
        stream.set_nodelay(true).ok();
        let io = TokioIo::new(StallGuard::new(stream, self.stall));
        let connection = self.builder.serve_connection(io, TowerToHyperService::new(router)).into_owned();
        let watched = self.graceful.watch(connection);
        self.tasks.spawn(async move {
            let _place = place;
            let _counted = Counted::new();
            if let Err(error) = watched.await {
                tracing::debug!(%error, "a connection ended early");
            }
        });
    }

    async fn finish(mut self, grace: Duration, last_call: impl FnOnce()) {
        let all_done = self.graceful.shutdown();
        tokio::pin!(all_done);
        if timeout(grace, &mut all_done).await.is_err() {
            last_call();
            if timeout(LAST_ANSWERS, &mut all_done).await.is_err() {
                tracing::warn!(connections = self.tasks.len(), "connections were still busy at the end and are closed");
            }
        }
        self.tasks.shutdown().await;
    }
}

struct Counted;

impl Counted {
    fn new() -> Self {
        CONNECTIONS.inc();
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        CONNECTIONS.dec();
    }
}

/// A connection that died early is its client's matter; anything else, such as no file descriptors
/// left, passes only when something is given back.
async fn accept_failed(error: &io::Error) {
    let by_client = matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    );
    if !by_client {
        crate::metrics::SHED.with_label_values(&["files"]).inc();
        tracing::error!(%error, "no connection can be accepted: is the limit of open files too low?");
        sleep(Duration::from_millis(500)).await;
    }
}
