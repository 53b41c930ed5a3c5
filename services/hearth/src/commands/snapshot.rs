//! `snapshot`: run trees as files, to go on with later or elsewhere.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::download;
use super::pages::fetch;
use super::view::{age, text};
use crate::args::{Connection, Paging};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Take run trees as snapshots, move them as files, go on with them
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth snapshot create run_…
  hearth snapshot export snap_… build.snapshot
  hearth snapshot import build.snapshot --url http://elsewhere:7420
  hearth snapshot resume snap_…")]
pub struct SnapshotArgs {
    #[command(subcommand)]
    command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
enum SnapshotCommand {
    /// Take a resident, or a whole run tree, as it is now
    #[command(after_long_help = "Examples:
  hearth snapshot create run_…
  hearth snapshot create run_… --workspaces")]
    Create {
        /// The run; what is below it goes along
        run: String,
        /// Take the durable workspaces of the tree's sessions along
        #[arg(long)]
        workspaces: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the snapshots
    #[command(
        visible_alias = "list",
        after_long_help = "Examples:
  hearth snapshot ls
  hearth --json snapshot ls | jq -r '.snapshots[].snapshot_id'"
    )]
    Ls {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        connection: Connection,
    },
    /// Write a snapshot to a portable file
    #[command(after_long_help = "Examples:
  hearth snapshot export snap_… build.snapshot
  hearth snapshot export snap_… - | gzip > build.snapshot.gz")]
    Export {
        /// The snapshot
        snapshot: String,
        /// The file; `-` is the standard output
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Bring a portable file in, for operators
    #[command(after_long_help = "Examples:
  hearth snapshot import build.snapshot")]
    Import {
        /// The file; `-` is the standard input
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Go on with a snapshot: new runs with its conversation and state
    #[command(after_long_help = "Examples:
  hearth snapshot resume snap_…")]
    Resume {
        /// The snapshot
        snapshot: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a snapshot
    #[command(after_long_help = "Examples:
  hearth snapshot remove snap_…")]
    Remove {
        /// The snapshot
        snapshot: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub async fn snapshot(args: SnapshotArgs, screen: &Screen) -> Result<Verdict, Failure> {
    match args.command {
        SnapshotCommand::Create { run, workspaces, connection } => {
            let taken = connection.client(screen)?.take_snapshot(&run, workspaces).await?;
            told(
                screen,
                &taken,
                &format!("took {} of {run}: {} runs", text(&taken, "snapshot_id"), text(&taken, "runs")),
            )?;
            left_out(screen, &taken);
        }
        SnapshotCommand::Ls { paging, connection } => ls(&paging, &connection, screen).await?,
        SnapshotCommand::Export { snapshot, file, connection } => {
            export(&connection.client(screen)?, &snapshot, &file, screen).await?;
        }
        SnapshotCommand::Import { file, connection } => {
            let client = connection.client(screen)?;
            let brought = if file == Path::new("-") {
                client.import_snapshot(tokio::io::stdin()).await?
            } else {
                let opened = tokio::fs::File::open(&file).await;
                let opened = opened.map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?;
                client.import_snapshot(opened).await?
            };
            told(screen, &brought, &format!("brought in {}", text(&brought, "snapshot_id")))?;
            left_out(screen, &brought);
        }
        SnapshotCommand::Resume { snapshot, connection } => {
            let resumed = connection.client(screen)?.resume_snapshot(&snapshot).await?;
            told(screen, &resumed, &format!("goes on as {}", text(&resumed, "run_id")))?;
            for workspace in resumed["workspaces"].as_array().into_iter().flatten() {
                if workspace["restored"] == false {
                    let name = text(workspace, "name");
                    screen.complain(&format!("there is a workspace {name} already, which stays as it is"));
                }
            }
        }
        SnapshotCommand::Remove { snapshot, connection } => {
            let removed = connection.client(screen)?.remove_snapshot(&snapshot).await?;
            told(screen, &removed, &format!("removed {snapshot}"))?;
        }
    }
    Ok(Verdict::Done)
}

fn told(screen: &Screen, answer: &Value, said: &str) -> Result<(), Failure> {
    if screen.json() { screen.document(answer) } else { screen.line(said) }
}

fn left_out(screen: &Screen, snapshot: &Value) {
    for what in snapshot["left_out"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        screen.complain(&format!("left out: {what}"));
    }
}

async fn ls(paging: &Paging, connection: &Connection, screen: &Screen) -> Result<(), Failure> {
    let client = connection.client(screen)?;
    let ask = |page: hearth_client::Page| {
        let client = &client;
        async move { client.list_snapshots(&page).await }
    };
    let listed = fetch(paging, "snapshots", ask).await?;
    let now = listed.as_of();
    listed.show(screen, "no snapshots", &["SNAPSHOT", "AGENT", "RUNS", "BYTES", "AGE", "RUN"], |row| {
        vec![
            text(row, "snapshot_id"),
            text(row, "agent"),
            text(row, "runs"),
            text(row, "size_bytes"),
            age(row, "created_at", now),
            text(row, "run_id"),
        ]
    })
}

async fn export(client: &hearth_client::Client, id: &str, file: &Path, screen: &Screen) -> Result<(), Failure> {
    let Some(bytes) = download::to(file, async |out| client.export_snapshot(id, out).await).await? else {
        return Ok(());
    };
    let answer = json!({ "snapshot_id": id, "file": file, "bytes": bytes });
    told(screen, &answer, &format!("wrote {bytes} bytes to {}", file.display()))
}
