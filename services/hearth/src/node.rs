//! `node`: the sandbox sessions of one machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use hearth_control_plane::config::{Settings, Sources};
use hearth_control_plane::dev::stop_signals;
use hearth_sandbox_node::{NodeSettings, close_sessions, serve_until_signal};
use hearth_telemetry::TelemetryOptions;
use serde_json::json;

use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Serve the sandbox sessions of this machine
///
/// Any MCP client reaches it at /mcp (streamable HTTP), replicas over gRPC. With HEARTH_REDIS_URL it
/// registers itself with the cluster; without, it serves MCP alone. Sessions outlive the node's process:
/// the next start on the same SANDBOX_STATE_DIR finds them again. Settings come from --config, then
/// HEARTH_… and SANDBOX_… variables.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  SANDBOX_AUTH_TOKEN=… hearth node
  SANDBOX_AUTH_TOKEN=… hearth node --config hearth.toml
  SANDBOX_AUTH_TOKEN=… SANDBOX_LISTEN_ADDR=127.0.0.1:9000 HEARTH_REDIS_URL=redis://127.0.0.1:6379 \\
    HEARTH_NATS_URL=nats://127.0.0.1:4222 hearth node")]
pub struct NodeArgs {
    /// File of settings
    #[arg(long, env = "HEARTH_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Ask for no token; only on loopback addresses
    #[arg(long)]
    no_auth: bool,
    /// End the sessions that a node which has ended left on its SANDBOX_STATE_DIR, and exit
    #[arg(long)]
    close_sessions: bool,
}

pub async fn node(args: NodeArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let usage = |error: hearth_control_plane::config::ConfigError| Failure::Usage(error.to_string());
    let flags = if args.no_auth { vec![("no_auth", "true".to_owned())] } else { Vec::new() };
    let sources = Sources::read(args.config.as_deref(), environment.clone(), flags).map_err(usage)?;
    let common = Settings::load(&sources).map_err(usage)?;
    let failed = |error: &dyn std::error::Error| Failure::failed(error.to_string());
    let settings =
        NodeSettings::load(variables(environment, &common)).map_err(|error| Failure::Usage(error.to_string()))?;
    let _telemetry = hearth_telemetry::init(&TelemetryOptions {
        service_name: "hearth-node".to_owned(),
        instance_id: Some(settings.node_id.clone()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        log_format: common.log_format,
        log_filter: common.log_filter.clone(),
        otlp_endpoint: common.otlp_endpoint.clone(),
    })
    .map_err(|error| failed(&error))?;
    if args.close_sessions {
        let closed = Box::pin(close_sessions(settings)).await.map_err(|error| failed(&error))?;
        screen.line(&format!("{closed} sessions were closed"))?;
        return Ok(Verdict::Done);
    }
    let stop = stop_signals().map_err(|error| failed(&error))?;
    let screen = *screen;
    let greet = move |address: std::net::SocketAddr, sandbox: &str| {
        let url = format!("http://{address}");
        // Whoever started this without reading its output still gets a node.
        drop(if screen.json() {
            screen.document(&json!({ "url": url, "sandbox": sandbox, "pid": std::process::id() }))
        } else {
            screen.labels(&[("serving", url), ("sandbox", sandbox.to_owned())])
        });
    };
    Box::pin(serve_until_signal(settings, stop, greet)).await.map_err(|error| failed(&error))?;
    Ok(Verdict::Done)
}

/// The environment, and over it what the file says where no variable does.
fn variables(mut environment: BTreeMap<String, String>, common: &Settings) -> BTreeMap<String, String> {
    environment.extend(common.sandbox.clone());
    let from_file = [
        ("HEARTH_REDIS_URL", common.redis_url.as_ref().map(|url| url.0.clone())),
        ("HEARTH_NATS_URL", common.nats_url.clone()),
        ("HEARTH_NATS_CREDENTIALS", common.nats_credentials.as_ref().map(|path| path.display().to_string())),
        ("HEARTH_NATS_USER", common.nats_user.clone()),
        ("HEARTH_NATS_PASSWORD", common.nats_password.as_ref().map(|secret| secret.0.clone())),
        ("HEARTH_STORES_CA", common.stores_ca.as_ref().map(|path| path.display().to_string())),
        ("HEARTH_NO_AUTH", Some(common.no_auth.to_string())),
        ("HEARTH_CLUSTER_NAME", Some(common.cluster_name.clone())),
        ("HEARTH_REPLICA_LEASE_MS", Some(common.replica_lease.as_millis().to_string())),
    ];
    for (name, value) in from_file {
        if let Some(value) = value {
            environment.insert(name.to_owned(), value);
        }
    }
    environment
}
