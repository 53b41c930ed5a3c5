//! `nodes`: the machines that hold sandbox sessions.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::pages::fetch;
use super::view::{age, text};
use crate::args::{Connection, Paging};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// List the sandbox nodes and their load, or drain one
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "Examples:
  hearth nodes
  hearth --json nodes | jq '.nodes[] | .usage'
  hearth nodes drain node-1")]
pub struct NodesArgs {
    #[command(subcommand)]
    command: Option<NodesCommand>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Subcommand)]
enum NodesCommand {
    /// Have a node take no new sessions; it ends after its last one
    #[command(after_long_help = "Examples:
  hearth nodes drain node-1")]
    Drain {
        /// The node
        node: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub async fn nodes(args: NodesArgs, screen: &Screen) -> Result<Verdict, Failure> {
    match args.command {
        Some(NodesCommand::Drain { node, connection }) => {
            let row = connection.client(screen)?.drain_node(&node).await?;
            let said = format!("{node} drains; it ends after its last session, and has {} now", text(&row, "sessions"));
            if screen.json() { screen.document(&row)? } else { screen.line(&said)? }
        }
        None => list(&args.paging, &args.connection, screen).await?,
    }
    Ok(Verdict::Done)
}

async fn list(paging: &Paging, connection: &Connection, screen: &Screen) -> Result<(), Failure> {
    let client = connection.client(screen)?;
    let ask = |page: hearth_client::Page| {
        let client = &client;
        async move { client.list_nodes(&page).await }
    };
    let listed = fetch(paging, "nodes", ask).await?;
    let now = listed.as_of();
    let head = [
        "NODE", "VERSION", "UP", "SESSIONS", "READY", "LEVELS", "RUNTIMES", "CPUS", "MEMORY", "DISK", "DRAINING", "URL",
    ];
    listed.show(screen, "no sandbox nodes", &head, |row| {
        let usage = &row["usage"];
        vec![
            text(row, "node_id"),
            text(row, "version"),
            age(row, "started_at", now),
            format!("{} of {}", text(row, "sessions"), text(row, "max_sessions")),
            text(row, "pool"),
            words(&row["levels"]),
            words(&row["runtimes"]),
            format!("{} of {}", text(usage, "cpus_used"), text(usage, "cpus")),
            share(usage, "memory_used_bytes", "memory_bytes"),
            share(usage, "disk_used_bytes", "disk_bytes"),
            text(row, "draining"),
            text(row, "url"),
        ]
    })
}

fn words(list: &Value) -> String {
    let words: Vec<&str> = list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(",") }
}

/// Such as `3.2 of 16.0 GiB`.
fn share(usage: &Value, used: &str, all: &str) -> String {
    let tenths = |field: &str| usage[field].as_u64().unwrap_or(0) / (1 << 30) * 10 + tenth(&usage[field]);
    let shown = |field: &str| format!("{}.{}", tenths(field) / 10, tenths(field) % 10);
    format!("{} of {} GiB", shown(used), shown(all))
}

fn tenth(bytes: &Value) -> u64 {
    (bytes.as_u64().unwrap_or(0) % (1 << 30)) * 10 / (1 << 30)
}
