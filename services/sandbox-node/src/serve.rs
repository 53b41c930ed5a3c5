//! A node from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use hearth_bus::{NatsBus, NatsOptions};
use hearth_nodes::NodeService;
use hearth_registry::{NodeRow, RedisOptions, RedisRegistry, SharedRegistry};
use hearth_sandbox::node::Node;
use hearth_sandbox::{RunLiveness, SharedDriver, SharedSandboxes};
use hearth_types::{SystemClock, Timestamp};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::{self, Token};
use crate::liveness::{NoReplicas, ReplicaLiveness};
use crate::settings::NodeSettings;

/// How long calls in flight may go on once the end was asked for.
const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: std::net::SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Drivers(#[from] hearth_sandbox::Unavailable),
    #[error("sandboxes cannot be served: {0}")]
    Sandbox(#[from] hearth_sandbox::Error),
    #[error("the registry cannot be used: {0}")]
    Registry(#[from] hearth_registry::Error),
    #[error("the bus cannot be used: {0}")]
    Bus(#[from] hearth_bus::Error),
    #[error("the listener failed: {0}")]
    Serve(std::io::Error),
}

/// Serves until `stop` is cancelled. Sessions go on, to be found again by the next start on the same
/// state folder. `greet` is told the address and what sessions run on.
pub async fn serve_until_signal(
    settings: NodeSettings,
    stop: CancellationToken,
    greet: impl FnOnce(std::net::SocketAddr, &str) + Send,
) -> Result<(), Error> {
    let address = settings.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
    let address = listener.local_addr().map_err(|source| Error::Listen { address, source })?;
    let clock = SystemClock::shared();
    let (drivers, said) =
        hearth_sandbox::available_drivers(&settings.variables, &settings.host_env, &settings.options).await?;
    let registry = registry(&settings)?;
    let liveness = liveness(&settings, registry.clone()).await?;
    let node = Node::start(settings.options.clone(), drivers.clone(), clock.clone(), liveness).await?;
    let sandboxes: SharedSandboxes = Arc::new(node);
    let tasks = TaskTracker::new();
    if let Some(registry) = registry.clone() {
        let row = row(&settings, &drivers, address, clock.now());
        tasks.spawn(announce(registry, row, sandboxes.clone(), settings.lease, stop.clone()));
    }
    let router = router(sandboxes, &settings.token);
    greet(address, &said);
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::select! {
        served = async { serving.await } => served.map_err(Error::Serve)?,
        () = async { stop.cancelled().await; tokio::time::sleep(GRACE).await } => {}
    }
    tasks.close();
    tasks.wait().await;
    Ok(())
}

fn registry(settings: &NodeSettings) -> Result<Option<SharedRegistry>, Error> {
    let Some(url) = &settings.redis_url else { return Ok(None) };
    let options = RedisOptions { prefix: settings.cluster_name.clone(), ..RedisOptions::at(url.clone()) };
    Ok(Some(Arc::new(RedisRegistry::new(options)?)))
}

async fn liveness(settings: &NodeSettings, registry: Option<SharedRegistry>) -> Result<Arc<dyn RunLiveness>, Error> {
    let (Some(registry), Some(url)) = (registry, &settings.nats_url) else { return Ok(Arc::new(NoReplicas)) };
    let bus = NatsBus::connect(NatsOptions {
        credentials_file: settings.nats_credentials.clone(),
        name: settings.node_id.clone(),
        prefix: settings.cluster_name.clone(),
        ..NatsOptions::at(url.clone())
    })
    .await?;
    Ok(Arc::new(ReplicaLiveness { registry, bus: Arc::new(bus) }))
}

fn row(settings: &NodeSettings, drivers: &[SharedDriver], address: std::net::SocketAddr, now: Timestamp) -> NodeRow {
    let options = &settings.options;
    let known = ["runc", "crun", "runsc", "kata"];
    let has = |name: &&str| drivers.iter().any(|driver| driver.has_runtime(name));
    NodeRow {
        node: settings.node_id.clone(),
        url: settings.advertise_url.clone().unwrap_or_else(|| format!("http://{address}")),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: now,
        draining: false,
        sessions: 0,
        max_sessions: options.max_sessions.get() as u64,
        levels: drivers.iter().map(|driver| driver.isolation()).collect(),
        runtimes: known.iter().filter(|name| has(name)).map(|name| (*name).to_owned()).collect(),
        image: options.image.clone(),
        workspaces: options.workspace_root.is_some(),
    }
}

/// Renews the node's row until the end, and then takes it away.
async fn announce(
    registry: SharedRegistry,
    mut row: NodeRow,
    sandboxes: SharedSandboxes,
    lease: Duration,
    stop: CancellationToken,
) {
    while !stop.is_cancelled() {
        row.sessions = sandboxes.list_all().await.map_or(row.sessions, |sessions| sessions.len() as u64);
        if let Err(error) = registry.announce(row.clone(), lease).await {
            tracing::warn!(%error, "this node could not be registered; the next beat tries again");
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(lease / 4) => {}
        }
    }
    if let Err(error) = registry.withdraw(&row.node).await {
        tracing::debug!(%error, "this node could not take its leave; its lease runs out");
    }
}

fn router(sandboxes: SharedSandboxes, token: &str) -> Router {
    let metrics = || async {
        ([(header::CONTENT_TYPE, hearth_telemetry::metrics::CONTENT_TYPE)], hearth_telemetry::metrics::render())
    };
    let probed = sandboxes.clone();
    let ready = move || async move {
        match probed.list_all().await {
            Ok(_) => (StatusCode::OK, axum::Json(serde_json::json!({ "ok": true }))),
            Err(fault) => (StatusCode::SERVICE_UNAVAILABLE, axum::Json(fault.to_body())),
        }
    };
    let grpc = tonic::service::Routes::new(NodeService::server(sandboxes)).prepare().into_axum_router();
    let protected = grpc.route("/metrics", get(metrics)).layer(from_fn_with_state(Token::new(token), auth::check));
    Router::new()
        .route("/livez", get(|| async { axum::Json(serde_json::json!({ "ok": true })) }))
        .route("/readyz", get(ready))
        .merge(protected)
}
