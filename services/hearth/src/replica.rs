//! `replica`: a member of a cluster.

use std::path::PathBuf;

use clap::Args;
use hearth_control_plane::config::{Settings, Sources};
use hearth_control_plane::dev::{Kind, serve_until_signal};
use serde_json::json;

use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Serve one replica of a cluster: journal in JetStream, registry in Redis, bus on NATS
///
/// Any replica serves any request. SIGTERM hands running turns to the others and then ends. Settings
/// come from --config, then HEARTH_… and SANDBOX_… variables, then these flags.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth replica --config hearth.toml
  HEARTH_NATS_URL=nats://127.0.0.1:4222 HEARTH_REDIS_URL=redis://127.0.0.1:6379 \\
    HEARTH_TOKENS_FILE=tokens.toml hearth replica --listen 127.0.0.1:7421")]
pub struct ReplicaArgs {
    /// File of settings
    #[arg(long, env = "HEARTH_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address to serve on; port 0 takes a free one [default: 127.0.0.1:7420]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Write as the next version would, `minor` or `major`; in debug builds only
    #[cfg(debug_assertions)]
    #[arg(long, hide = true, env = "HEARTH_NEXT_VERSION", value_name = "DIFFERENCE")]
    next_version: Option<hearth_journal::NextVersion>,
    /// End as by a crash at this append, `before:N` or `after:N`; in debug builds only
    #[cfg(debug_assertions)]
    #[arg(long, hide = true, env = "HEARTH_CRASH_AT_APPEND", value_name = "POINT")]
    crash_at_append: Option<hearth_journal::CrashPoint>,
}

pub async fn replica(args: ReplicaArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    #[cfg(debug_assertions)]
    let crash_at_append = args.crash_at_append;
    let flags = args.listen.map(|listen| ("listen", listen));
    let usage = |error: hearth_control_plane::config::ConfigError| Failure::Usage(error.to_string());
    let sources = Sources::read(args.config.as_deref(), environment, flags.into_iter().collect()).map_err(usage)?;
    #[cfg_attr(not(debug_assertions), allow(unused_mut, reason = "changed in debug builds only"))]
    let mut settings = Settings::load(&sources).map_err(usage)?;
    #[cfg(debug_assertions)]
    {
        settings.next_version = args.next_version;
        settings.crash_at_append = crash_at_append;
    }
    let screen = *screen;
    let greet = move |address: std::net::SocketAddr, sandbox: &str| {
        let url = format!("http://{address}");
        // Whoever started this without reading its output still gets a server.
        drop(if screen.json() {
            screen.document(&json!({ "url": url, "sandbox": sandbox, "pid": std::process::id() }))
        } else {
            screen.labels(&[("serving", url), ("sandbox", sandbox.to_owned())])
        });
    };
    Box::pin(serve_until_signal(settings, Kind::Clustered, greet))
        .await
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(Verdict::Done)
}
