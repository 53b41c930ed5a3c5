//! `ls`: runs and residents.

use clap::Args;
use hearth_client::ListRuns;
use hearth_types::RunState;

use super::pages::fetch;
use super::view::{age, text};
use crate::args::{Connection, Paging, named};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// List runs, newest first
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth ls
  hearth ls --residents                    those that wait for work or do some
  hearth ls --state running --agent coder
  hearth ls --root run_…                   one whole tree
  hearth --json ls --all | jq -r '.runs[].run_id'")]
pub struct LsArgs {
    /// Residents that are not final, with what concerns them
    #[arg(long, short)]
    residents: bool,
    /// running, awaiting_input, completed, failed or closed
    #[arg(long, value_parser = named::<RunState>, value_name = "STATE")]
    state: Option<RunState>,
    /// Of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Of the tree with this root
    #[arg(long, value_name = "RUN")]
    root: Option<String>,
    /// Children of this run
    #[arg(long, value_name = "RUN")]
    parent: Option<String>,
    /// One tenant only (for admins)
    #[arg(long)]
    tenant: Option<String>,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    connection: Connection,
}

pub async fn ls(args: LsArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let filter = ListRuns {
        state: args.state,
        agent: args.agent,
        root_run_id: args.root,
        parent_run_id: args.parent,
        tenant: args.tenant,
        ..ListRuns::default()
    };
    let ask = |page: hearth_client::Page| {
        let filter = ListRuns { limit: page.limit, cursor: page.cursor, ..filter.clone() };
        let client = &client;
        async move { if args.residents { client.list_residents(&filter).await } else { client.list_runs(&filter).await } }
    };
    let listed = fetch(&args.paging, if args.residents { "resident" } else { "runs" }, ask).await?;
    let now = listed.as_of();
    if args.residents {
        let head = ["RESIDENT", "AGENT", "STATE", "TURNS", "IDLE", "SANDBOX", "PARENT"];
        listed.show(screen, "no residents", &head, |row| {
            vec![
                text(row, "child_run_id"),
                text(row, "agent"),
                text(row, "state"),
                text(row, "turns"),
                age(row, "last_used_at", now),
                text(row, "sandbox_session_id"),
                text(row, "parent_run_id"),
            ]
        })?;
    } else {
        let head = ["RUN", "AGENT", "STATE", "LAST TURN", "USED", "AGE", "PARENT"];
        listed.show(screen, "no runs", &head, |row| {
            vec![
                text(row, "run_id"),
                text(row, "agent"),
                text(row, "state"),
                row.get("last_turn").map(|turn| text(turn, "outcome")).unwrap_or_default(),
                age(row, "last_used_at", now),
                age(row, "created_at", now),
                text(row, "parent_run_id"),
            ]
        })?;
    }
    Ok(Verdict::Done)
}
