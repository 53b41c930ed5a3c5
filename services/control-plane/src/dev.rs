//! A replica from its start to its end.

use std::io::Write as _;
use std::time::Duration;

use hearth_telemetry::TelemetryOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::auth::{Auth, AuthError};
use crate::config::Settings;
use crate::http::{HttpOptions, ServeError, serve, serve_metrics};
use crate::wiring::{self, Replica, StartError};

/// From the wish to stop until turns are handed over wherever they are.
const DRAIN_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("logs and traces cannot be set up: {0}")]
    Telemetry(#[from] hearth_telemetry::Error),
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error("cannot listen on {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("signals cannot be received: {0}")]
    Signals(std::io::Error),
}

/// Which stores a replica stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All in this process and its data folder.
    Embedded,
    /// Shared with other replicas.
    Clustered,
}

/// Serves until SIGTERM or SIGINT; a second one ends the process at once. `greet` is told the address
/// once the replica can serve.
pub async fn serve_until_signal(
    settings: Settings,
    kind: Kind,
    greet: impl FnOnce(std::net::SocketAddr, &str) + Send,
) -> Result<(), Error> {
    let _telemetry = hearth_telemetry::init(&TelemetryOptions {
        service_name: "hearth-replica".to_owned(),
        instance_id: settings.replica_id.as_ref().map(ToString::to_string),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        log_format: settings.log_format,
        log_filter: settings.log_filter.clone(),
        otlp_endpoint: settings.otlp_endpoint.clone(),
    })?;
    let auth = Auth::from_settings(&settings)?;
    let listen =
        |address| async move { TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source }) };
    let listener = listen(settings.listen).await?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address: settings.listen, source })?;
    let mut settings = settings;
    settings.listen = address;
    let metrics = match settings.metrics_listen {
        Some(address) => Some(listen(address).await?),
        None => None,
    };
    // Before the start, so that a signal during it counts.
    let stop = stop_signals()?;
    let replica = match kind {
        Kind::Embedded => wiring::embedded(&settings).await?,
        Kind::Clustered => wiring::clustered(&settings).await?,
    };
    greet(address, &replica.sandbox);
    let options = HttpOptions::from(&settings);
    let drained = CancellationToken::new();
    let serving = serve(listener, replica.hearth.clone(), auth, options, drained.clone().cancelled_owned());
    let metrics = async {
        if let Some(listener) = metrics {
            serve_metrics(listener, drained.clone().cancelled_owned()).await;
        }
    };
    let (served, (), ()) = tokio::join!(serving, metrics, drain_after(&stop, &replica, &drained));
    served?;
    tracing::info!("stopped; what was accepted is in the journal");
    Ok(())
}

/// While turns are handed over the surface answers on: it says that it drains, and passes commands on to others.
async fn drain_after(stop: &CancellationToken, replica: &Replica, drained: &CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = replica.drain_begun() => {}
    }
    tracing::info!("stopping: turns are handed over at their next step");
    replica.drain(DRAIN_WITHIN).await;
    drained.cancel();
}

/// Cancelled by the first SIGTERM or SIGINT; the second ends the process.
pub fn stop_signals() -> Result<CancellationToken, Error> {
    let mut term = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let mut int = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let stop = CancellationToken::new();
    let first = stop.clone();
    hearth_telemetry::task::spawn("signals", async move {
        for again in [false, true] {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            if again {
                // Nothing acknowledged is lost: it stands in the journal.
                drop(std::io::stderr().write_all(b"stopping at once\n"));
                std::process::exit(130);
            }
            first.cancel();
        }
    });
    Ok(stop)
}
