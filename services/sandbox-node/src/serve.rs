//! A node from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use axum::serve::ListenerExt;
use hearth_bus::{NatsBus, NatsOptions};
use hearth_nodes::{Announcer, NodeService};
use hearth_registry::{RedisOptions, RedisRegistry, SharedRegistry};
use hearth_sandbox::node::Node;
use hearth_sandbox::{RunLiveness, SharedSandboxes};
use hearth_types::{Fault, FaultCode, SystemClock};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::auth::{self, Access};
use crate::liveness::{NoReplicas, ReplicaLiveness};
use crate::mcp::{self, McpSettings};
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
    #[error("a session could not be closed: {0}")]
    Close(Fault),
    #[error("the listener failed: {0}")]
    Serve(std::io::Error),
}

/// Serves until `stop` is cancelled, or until the node was drained and its last session is gone. Sessions go
/// on after a stop, to be found again by the next start on the same state folder; those that are ready and
/// nobody's are removed. `greet` is told the address and what sessions run on.
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
    let node = Arc::new(Node::start(settings.options.clone(), drivers.clone(), clock.clone(), liveness).await?);
    let tasks = TaskTracker::new();
    if let Some(registry) = registry {
        let url = settings.advertise_url.clone().unwrap_or_else(|| format!("http://{address}"));
        let announcer =
            Announcer::new(registry, node.clone(), &settings.options, &drivers, url, clock.now(), settings.lease)?;
        tasks.spawn(announcer.run(stop.clone()));
    }
    tasks.spawn(end_when_drained(node.clone(), stop.clone()));
    let end = CancellationToken::new();
    let router = router(node.clone(), settings.access, settings.mcp, stop.clone(), &end);
    greet(address, &said);
    // An answer is an event stream, head and body in two small pieces: the second must not wait until the first is
    // acknowledged, which clients put off by 40 ms.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let late = async {
        stop.cancelled().await;
        // Calls in flight are finished, and no session is begun that its client would lose sight of.
        node.begin_drain();
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = async { serving.await } => served.map_err(Error::Serve)?,
        () = late => {}
    }
    end.cancel();
    tasks.close();
    tokio::join!(tasks.wait(), node.drain_pool());
    Ok(())
}

/// Ends all sessions that a node, which has ended, has left on its state folder: for one that does not come back.
/// How many there were.
pub async fn close_sessions(settings: NodeSettings) -> Result<usize, Error> {
    let (drivers, _) =
        hearth_sandbox::available_drivers(&settings.variables, &settings.host_env, &settings.options).await?;
    let node = Node::start(settings.options, drivers, SystemClock::shared(), Arc::new(NoReplicas)).await?;
    node.begin_drain();
    let sessions = node.sessions();
    node.close_all().await.map_err(Error::Close)?;
    Ok(sessions)
}

/// Ends the node once it drains and has no session left.
async fn end_when_drained(node: Arc<Node>, stop: CancellationToken) {
    const EVERY: Duration = Duration::from_millis(250);
    while !stop.is_cancelled() {
        if node.is_draining() && node.sessions() == 0 {
            tracing::info!("this node was drained and has no session left; it ends");
            stop.cancel();
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Where answers to nodes come: not among those to replicas, which are none of theirs.
const NODE_INBOX: &str = "_INBOX.node";

fn registry(settings: &NodeSettings) -> Result<Option<SharedRegistry>, Error> {
    let Some(url) = &settings.redis_url else { return Ok(None) };
    let options = RedisOptions {
        prefix: settings.cluster_name.clone(),
        ca_file: settings.stores_ca.clone(),
        ..RedisOptions::at(url.clone())
    };
    Ok(Some(Arc::new(RedisRegistry::new(options)?)))
}

async fn liveness(settings: &NodeSettings, registry: Option<SharedRegistry>) -> Result<Arc<dyn RunLiveness>, Error> {
    let (Some(registry), Some(url)) = (registry, &settings.nats_url) else { return Ok(Arc::new(NoReplicas)) };
    let bus = NatsBus::connect(NatsOptions {
        credentials_file: settings.nats_credentials.clone(),
        user: settings.nats_user.clone(),
        ca_file: settings.stores_ca.clone(),
        inbox: NODE_INBOX.to_owned(),
        name: settings.node_id.clone(),
        prefix: settings.cluster_name.clone(),
        ..NatsOptions::at(url.clone())
    })
    .await?;
    Ok(Arc::new(ReplicaLiveness { registry, bus: Arc::new(bus), lease: settings.lease }))
}

fn router(
    node: Arc<Node>,
    access: Access,
    mcp: McpSettings,
    stop: CancellationToken,
    end: &CancellationToken,
) -> Router {
    let metrics = || async {
        ([(header::CONTENT_TYPE, hearth_telemetry::metrics::CONTENT_TYPE)], hearth_telemetry::metrics::render())
    };
    let probed = node.clone();
    let ready = move || async move {
        if probed.is_draining() {
            let fault = Fault::new(FaultCode::Draining, "this node takes no new sessions; use another one");
            return (StatusCode::SERVICE_UNAVAILABLE, axum::Json(fault.to_body()));
        }
        (StatusCode::OK, axum::Json(serde_json::json!({ "ok": true })))
    };
    let sandboxes: SharedSandboxes = node;
    let mcp = mcp::router(sandboxes.clone(), mcp, stop, end);
    let mcp = mcp.layer(from_fn_with_state(access.clone(), auth::any_client));
    let grpc = tonic::service::Routes::new(NodeService::server(sandboxes)).prepare().into_axum_router();
    let protected = grpc.route("/metrics", get(metrics)).layer(from_fn_with_state(access, auth::only_node));
    Router::new()
        .route("/livez", get(|| async { axum::Json(serde_json::json!({ "ok": true })) }))
        .route("/readyz", get(ready))
        .merge(protected)
        .merge(mcp)
}
