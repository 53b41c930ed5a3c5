//! `agents`: the definitions.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::pages::fetch;
use super::view::text;
use crate::args::{Connection, Paging};
use crate::failure::{Failure, Verdict};
use crate::screen::{Screen, shortened};

/// List agents, or show one
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth agents ls
  hearth agents show dev/exec")]
pub struct AgentsArgs {
    #[command(subcommand)]
    command: AgentsCommand,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    /// List the agents that can be run
    #[command(after_long_help = "Examples:
  hearth agents ls
  hearth --json agents ls | jq -r '.agents[].name'")]
    Ls {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one definition
    #[command(after_long_help = "Examples:
  hearth agents show mock
  hearth --json agents show chat/medium")]
    Show {
        /// Name of the agent
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub async fn agents(args: AgentsArgs, screen: &Screen) -> Result<Verdict, Failure> {
    match args.command {
        AgentsCommand::Ls { paging, connection } => {
            let client = connection.client(screen)?;
            let ask = |page: hearth_client::Page| {
                let client = &client;
                async move { client.list_agents(&page).await }
            };
            let listed = fetch(&paging, "agents", ask).await?;
            listed.show(screen, "no agents", &["AGENT", "MODEL", "DESCRIPTION"], |row| {
                vec![text(row, "name"), kind(row), shortened(&text(row, "description"), 80)]
            })?;
        }
        AgentsCommand::Show { name, connection } => {
            show(&connection.client(screen)?.agent(&name).await?, screen)?;
        }
    }
    Ok(Verdict::Done)
}

/// What answers: a model's name, or code.
fn kind(agent: &Value) -> String {
    let model = text(agent, "model");
    match (model.is_empty(), text(agent, "code").is_empty()) {
        (false, _) => model,
        (true, false) => "code".to_owned(),
        (true, true) => text(agent, "provider"),
    }
}

fn show(agent: &Value, screen: &Screen) -> Result<(), Failure> {
    if screen.json() {
        return screen.document(agent);
    }
    let long = ["system_prompt", "code"];
    let names: Vec<&String> = agent.as_object().map(|fields| fields.keys().collect()).unwrap_or_default();
    let rows: Vec<(&str, String)> = names
        .into_iter()
        .filter(|name| !long.contains(&name.as_str()))
        .map(|name| (name.as_str(), text(agent, name)))
        .collect();
    screen.labels(&rows)?;
    for field in long {
        let body = text(agent, field);
        if !body.is_empty() {
            screen.line("")?;
            screen.line(&screen.bold(field))?;
            screen.foreign(&body)?;
        }
    }
    Ok(())
}
