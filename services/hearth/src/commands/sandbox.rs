//! `sandbox`: the sessions, cluster-wide.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use hearth_types::{Isolation, SandboxScope, SandboxSpec};
use serde_json::{Value, json};

use super::download;
use super::pages::fetch;
use super::view::{age, remaining, text};
use crate::args::{Connection, Paging, isolation, named};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// List sandbox sessions, or close them
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth sandbox ls
  hearth sandbox close sbx_…
  hearth sandbox close-run run_…
  hearth sandbox override run_… --scope own
  hearth sandbox workspaces
  hearth sandbox export build build.tar")]
pub struct SandboxArgs {
    #[command(subcommand)]
    command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
enum SandboxCommand {
    /// List the sessions
    #[command(after_long_help = "Examples:
  hearth sandbox ls
  hearth --json sandbox ls | jq -r '.sandboxes[].session_id'")]
    Ls {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        connection: Connection,
    },
    /// Close one session; its durable workspace stays
    #[command(after_long_help = "Examples:
  hearth sandbox close sbx_…")]
    Close {
        /// The session
        session: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the durable workspaces: where they are, how big, used by whom
    #[command(after_long_help = "Examples:
  hearth sandbox workspaces
  hearth --json sandbox workspaces | jq -r '.workspaces[].name'")]
    Workspaces {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        connection: Connection,
    },
    /// Write what a workspace holds to a tar archive
    #[command(after_long_help = "Examples:
  hearth sandbox export build build.tar
  hearth sandbox export build - | tar t")]
    Export {
        /// The workspace
        name: String,
        /// The archive; `-` is the standard output
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Replace what a workspace holds by an uncompressed tar archive
    #[command(after_long_help = "Examples:
  hearth sandbox import build build.tar
  tar c -C project . | hearth sandbox import build -")]
    Import {
        /// The workspace; it is made if it is not there
        name: String,
        /// The archive; `-` is the standard input
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a workspace that no session has, with all it holds
    #[command(after_long_help = "Examples:
  hearth sandbox remove build")]
    Remove {
        /// The workspace
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Say what a run and its descendants open as their sandbox from now on
    #[command(after_long_help = "Examples:
  hearth sandbox override run_… --scope own
  hearth sandbox override run_… --workspace build --read-only
  hearth sandbox clear run_…")]
    Override {
        /// The run
        run: String,
        /// `own` gives it sessions of its own
        #[arg(long, value_parser = named::<SandboxScope>, value_name = "SCOPE")]
        scope: Option<SandboxScope>,
        /// An image that is on the nodes
        #[arg(long)]
        image: Option<String>,
        /// A durable workspace of its tenant
        #[arg(long)]
        workspace: Option<String>,
        /// L1, L2 or L3, and nothing weaker
        #[arg(long, value_parser = isolation, value_name = "LEVEL")]
        isolation: Option<Isolation>,
        /// The workspace can be read and not written
        #[arg(long)]
        read_only: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Take an override back: the run opens its tree's shared session again
    #[command(after_long_help = "Examples:
  hearth sandbox clear run_…")]
    Clear {
        /// The run
        run: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Close all sessions of one run tree
    #[command(after_long_help = "Examples:
  hearth sandbox close-run run_…")]
    CloseRun {
        /// The root run of the tree
        root_run: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub async fn sandbox(args: SandboxArgs, screen: &Screen) -> Result<Verdict, Failure> {
    match args.command {
        SandboxCommand::Ls { paging, connection } => ls(&paging, &connection, screen).await?,
        SandboxCommand::Close { session, connection } => {
            let answer = connection.client(screen)?.close_sandbox(&session).await?;
            closed(screen, &answer, &format!("closed {session}"))?;
        }
        SandboxCommand::Workspaces { paging, connection } => workspaces(&paging, &connection, screen).await?,
        SandboxCommand::Export { name, file, connection } => {
            export(&connection.client(screen)?, &name, &file, screen).await?;
        }
        SandboxCommand::Import { name, file, connection } => {
            let client = connection.client(screen)?;
            let answer = if file == Path::new("-") {
                client.import_workspace(&name, tokio::io::stdin()).await?
            } else {
                let opened = tokio::fs::File::open(&file).await;
                let opened = opened.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
                client.import_workspace(&name, opened).await?
            };
            closed(screen, &answer, &format!("{name} holds {} files now", text(&answer, "files")))?;
        }
        SandboxCommand::Remove { name, connection } => {
            let answer = connection.client(screen)?.delete_workspace(&name).await?;
            closed(screen, &answer, &format!("removed {name}"))?;
        }
        SandboxCommand::Override { run, scope, image, workspace, isolation, read_only, connection } => {
            let read_only = read_only.then_some(true);
            let spec = SandboxSpec { scope, isolation, image, workspace, read_only, ..SandboxSpec::default() };
            let answer = connection.client(screen)?.override_sandbox(&run, &spec).await?;
            closed(screen, &answer, &format!("{run} opens by the override from now on"))?;
        }
        SandboxCommand::Clear { run, connection } => {
            let answer = connection.client(screen)?.clear_sandbox_override(&run).await?;
            closed(screen, &answer, &format!("{run} opens its tree's shared session again"))?;
        }
        SandboxCommand::CloseRun { root_run, connection } => {
            let answer = connection.client(screen)?.close_run_sandboxes(&root_run).await?;
            closed(screen, &answer, &format!("closed {} sessions of {root_run}", text(&answer, "closed")))?;
        }
    }
    Ok(Verdict::Done)
}

async fn export(client: &hearth_client::Client, name: &str, file: &Path, screen: &Screen) -> Result<(), Failure> {
    let Some(bytes) = download::to(file, async |out| client.export_workspace(name, out).await).await? else {
        return Ok(());
    };
    let answer = json!({ "name": name, "file": file, "bytes": bytes });
    closed(screen, &answer, &format!("wrote {bytes} bytes to {}", file.display()))
}

async fn workspaces(paging: &Paging, connection: &Connection, screen: &Screen) -> Result<(), Failure> {
    let client = connection.client(screen)?;
    let ask = |page: hearth_client::Page| {
        let client = &client;
        async move { client.list_workspaces(&page).await }
    };
    let listed = fetch(paging, "workspaces", ask).await?;
    let now = listed.as_of();
    let head = ["WORKSPACE", "TENANT", "NODE", "BYTES", "FILES", "LIMIT", "AGE", "SESSIONS"];
    listed.show(screen, "no durable workspaces", &head, |row| {
        vec![
            text(row, "name"),
            text(row, "tenant_id"),
            text(row, "node"),
            text(row, "size_bytes"),
            text(row, "files"),
            text(row, "limit_bytes"),
            age(row, "created_at", now),
            row["sessions"].as_array().map_or(0, Vec::len).to_string(),
        ]
    })
}

fn closed(screen: &Screen, answer: &Value, said: &str) -> Result<(), Failure> {
    if screen.json() { screen.document(answer) } else { screen.line(said) }
}

async fn ls(paging: &Paging, connection: &Connection, screen: &Screen) -> Result<(), Failure> {
    let client = connection.client(screen)?;
    let ask = |page: hearth_client::Page| {
        let client = &client;
        async move { client.list_sandboxes(&page).await }
    };
    let listed = fetch(paging, "sandboxes", ask).await?;
    let now = listed.as_of();
    let head = [
        "SESSION",
        "WORKSPACE",
        "LEVEL",
        "RUNTIME",
        "NETWORK",
        "RUNNING",
        "CPU S",
        "MIB",
        "DISK MIB",
        "AGE",
        "IDLE END",
        "NODE",
        "ROOT RUN",
    ];
    listed.show(screen, "no sandbox sessions", &head, |row| {
        vec![
            text(row, "session_id"),
            text(row, "workspace"),
            text(row, "isolation"),
            text(row, "runtime"),
            text(row, "network"),
            text(row, "running"),
            row["usage"]["cpu_seconds"].as_f64().map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}")),
            mib(&row["usage"]["memory_bytes"]),
            mib(&row["usage"]["disk_bytes"]),
            age(row, "created_at", now),
            remaining(row, "idle_expires_at", now),
            text(row, "node"),
            text(row, "root_run_id"),
        ]
    })
}

fn mib(bytes: &serde_json::Value) -> String {
    bytes.as_u64().map_or_else(|| "-".to_owned(), |bytes| (bytes >> 20).to_string())
}
