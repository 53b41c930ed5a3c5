//! `replicas`: the members that serve.

use clap::{Args, Subcommand};

use super::pages::fetch;
use super::view::{age, text};
use crate::args::{Connection, Paging};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// List the replicas and their load, or drain one
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "Examples:
  hearth replicas
  hearth --json replicas | jq '.replicas[] | select(.draining)'
  hearth replicas drain replica-1")]
pub struct ReplicasArgs {
    #[command(subcommand)]
    command: Option<ReplicasCommand>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Debug, Subcommand)]
enum ReplicasCommand {
    /// Have a replica hand its turns over and end; nothing is lost
    #[command(after_long_help = "Examples:
  hearth replicas drain replica-1")]
    Drain {
        /// The replica
        replica: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub async fn replicas(args: ReplicasArgs, screen: &Screen) -> Result<Verdict, Failure> {
    if let Some(ReplicasCommand::Drain { replica, connection }) = args.command {
        let row = connection.client(screen)?.drain_replica(&replica).await?;
        if screen.json() {
            screen.document(&row)?;
        } else {
            screen.line(&format!("{replica} drains; it hands over {} turns", text(&row, "running_turns")))?;
        }
        return Ok(Verdict::Done);
    }
    let client = args.connection.client(screen)?;
    let ask = |page: hearth_client::Page| {
        let client = &client;
        async move { client.list_replicas(&page).await }
    };
    let listed = fetch(&args.paging, "replicas", ask).await?;
    let now = listed.as_of();
    let head = ["REPLICA", "VERSION", "UP", "RESIDENTS", "TURNS", "DRAINING", "URL"];
    listed.show(screen, "no replicas", &head, |row| {
        vec![
            text(row, "replica_id"),
            text(row, "version"),
            age(row, "started_at", now),
            text(row, "active_residents"),
            text(row, "running_turns"),
            text(row, "draining"),
            text(row, "url"),
        ]
    })?;
    Ok(Verdict::Done)
}
