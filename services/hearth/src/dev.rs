//! `dev`: one embedded replica in this process.

use std::path::PathBuf;

use clap::Args;
use hearth_control_plane::auth::fresh_token;
use hearth_control_plane::config::{Secret, Settings, Sources};
use hearth_control_plane::dev::Kind;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use serde_json::json;

use crate::failure::{Failure, Verdict};
use crate::screen::{Screen, program};

/// Serve one replica for development: journal, sandbox and all in one process
///
/// State is in --data and survives restarts. Ctrl-C or SIGTERM hands running turns over to the next
/// start. Without --token a fresh admin token is printed. Settings come from --config, then HEARTH_… and
/// SANDBOX_… variables, then these flags.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth dev
  hearth dev --listen 127.0.0.1:8000 --data ./data --agents ./agents
  hearth dev --token \"$TOKEN\" --config hearth.toml
  hearth dev --no-auth                       loopback only, no token asked for")]
pub struct DevArgs {
    /// Address to serve on; port 0 takes a free one [default: 127.0.0.1:7420]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Folder of the journal and the durable workspaces [default: hearth-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Token of an admin [default: a fresh one, which is printed]
    #[arg(long, value_name = "TOKEN", conflicts_with = "no_auth")]
    token: Option<String>,
    /// Folder of agent files: NAME.md, NAME.js, and skills/NAME/SKILL.md
    #[arg(long, value_name = "DIR")]
    agents: Option<PathBuf>,
    /// Ask for no token; then only on a loopback address
    #[arg(long)]
    no_auth: bool,
    /// File of settings
    #[arg(long, env = "HEARTH_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// End when this process, which started this one, ends
    #[arg(long, hide = true, value_name = "PID")]
    end_with: Option<i32>,
    /// End as by a crash at this append, `before:N` or `after:N`; in debug builds only
    #[cfg(debug_assertions)]
    #[arg(long, hide = true, env = "HEARTH_CRASH_AT_APPEND", value_name = "POINT")]
    crash_at_append: Option<hearth_journal::CrashPoint>,
}

pub async fn dev(args: DevArgs, screen: &Screen) -> Result<Verdict, Failure> {
    if let Some(parent) = args.end_with {
        end_with(parent)?;
    }
    let (settings, fresh) = settings(args)?;
    let screen = *screen;
    let data = settings.data_dir.display().to_string();
    let known = settings.token.clone().filter(|_| fresh).map(|token| token.0);
    let asks = !settings.no_auth;
    let greet = move |address: std::net::SocketAddr, sandbox: &str| {
        let greeting =
            Greeting { url: format!("http://{address}"), token: known, asks, data, sandbox: sandbox.to_owned() };
        // Whoever started this without reading its output still gets a server.
        drop(greeting.show(&screen));
    };
    Box::pin(hearth_control_plane::dev::serve_until_signal(settings, Kind::Embedded, greet))
        .await
        .map_err(|error| Failure::failed(error.to_string()))?;
    Ok(Verdict::Done)
}

/// The settings, and whether their token is one that nobody knows yet.
fn settings(args: DevArgs) -> Result<(Settings, bool), Failure> {
    #[cfg(debug_assertions)]
    let crash_at_append = args.crash_at_append;
    let mut flags = vec![("dev_exec", "true".to_owned())];
    let path = |path: PathBuf| path.display().to_string();
    let given = [
        ("listen", args.listen),
        ("data_dir", args.data.map(path)),
        ("token", args.token),
        ("agents_dir", args.agents.map(path)),
        ("no_auth", args.no_auth.then(|| "true".to_owned())),
    ];
    flags.extend(given.into_iter().filter_map(|(key, value)| value.map(|value| (key, value))));
    let environment =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let usage = |error: hearth_control_plane::config::ConfigError| Failure::Usage(error.to_string());
    let sources = Sources::read(args.config.as_deref(), environment, flags).map_err(usage)?;
    let mut settings = Settings::load(&sources).map_err(usage)?;
    #[cfg(debug_assertions)]
    {
        settings.crash_at_append = crash_at_append;
    }
    let fresh = settings.token.is_none() && settings.tokens_file.is_none() && !settings.no_auth;
    if fresh {
        let token = fresh_token().map_err(|error| Failure::failed(error.to_string()))?;
        settings.token = Some(Secret(token));
    }
    Ok((settings, fresh))
}

fn end_with(parent: i32) -> Result<(), Failure> {
    let failed = |error| Failure::failed(format!("this process cannot be tied to its parent: {error}"));
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(failed)?;
    // A parent that was gone before the line above will send nothing.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        return Err(Failure::failed(format!("process {parent}, which started this one, has ended")));
    }
    Ok(())
}

struct Greeting {
    url: String,
    token: Option<String>,
    asks: bool,
    data: String,
    sandbox: String,
}

impl Greeting {
    fn show(&self, screen: &Screen) -> Result<(), Failure> {
        if screen.json() {
            let pid = std::process::id();
            return screen.document(&json!({
                "url": self.url, "token": self.token, "data": self.data, "sandbox": self.sandbox, "pid": pid
            }));
        }
        screen.labels(&[
            ("serving", self.url.clone()),
            ("data", self.data.clone()),
            ("sandbox", self.sandbox.clone()),
            ("token", self.token.clone().unwrap_or_default()),
        ])?;
        let token = match (&self.token, self.asks) {
            (Some(token), _) => format!(" HEARTH_TOKEN={token}"),
            (None, true) => " HEARTH_TOKEN=…".to_owned(),
            (None, false) => String::new(),
        };
        screen.line("\nTry, in another terminal:")?;
        screen.line(&format!("  export HEARTH_URL={}{token}", self.url))?;
        let hearth = program();
        let commands = [
            (format!("{hearth} open mock 'hello'"), "a resident; its id is in the answer"),
            (format!("{hearth} run dev/exec '{{\"commands\":[\"uname -a\"]}}'"), "a command in a sandbox"),
            (format!("{hearth} ls"), "what there is"),
        ];
        let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        for (command, note) in &commands {
            screen.line(&format!("  {command:<width$}  {}", screen.dim(note)))?;
        }
        screen.line("\nCtrl-C stops it; what was accepted goes on at the next start.")
    }
}
