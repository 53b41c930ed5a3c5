//! `replicas`: the members that serve.

use clap::Args;

use super::pages::fetch;
use super::view::{age, text};
use crate::args::{Connection, Paging};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// List the replicas and their load
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth replicas
  hearth --json replicas | jq '.replicas[] | select(.draining)'")]
pub struct ReplicasArgs {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    connection: Connection,
}

pub async fn replicas(args: ReplicasArgs, screen: &Screen) -> Result<Verdict, Failure> {
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
