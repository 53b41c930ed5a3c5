//! `agents`: the definitions.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hearth_client::Definitions;
use serde_json::{Value, json};

use super::definition_file;
use super::pages::fetch;
use super::view::text;
use crate::args::{Connection, Paging};
use crate::failure::{Failure, Verdict};
use crate::screen::{Screen, shortened};

const KIND: Definitions = Definitions::Agents;

/// List, show, create, change and retire agents
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth agents ls
  hearth agents show dev/exec
  hearth agents create reviewer.md
  hearth agents change reviewer reviewer.md
  hearth agents retire reviewer")]
pub struct AgentsArgs {
    #[command(subcommand)]
    command: AgentsCommand,
}

#[derive(Debug, Subcommand)]
enum AgentsCommand {
    /// List the agents that can be run
    #[command(
        visible_alias = "list",
        after_long_help = "Examples:
  hearth agents ls
  hearth --json agents ls | jq -r '.agents[].name'"
    )]
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
    /// Make an agent from a file, for operators
    #[command(after_long_help = "Examples:
  hearth agents create reviewer.md
  hearth agents create sum.js --name team/sum
  hearth agents create definition.json")]
    Create {
        /// NAME.md or NAME.js as in the agents folder, or a JSON object
        file: PathBuf,
        /// Another name than the file's
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change the fields that a file gives; runs that are open keep their definition
    #[command(after_long_help = "Examples:
  hearth agents change reviewer reviewer.md")]
    Change {
        /// Name of the agent
        name: String,
        /// As for `create`
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Retire an agent: its name opens nothing any more, and runs that are open go on
    #[command(after_long_help = "Examples:
  hearth agents retire reviewer")]
    Retire {
        /// Name of the agent
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a new version of the same agent, which may only narrow it
    #[command(after_long_help = "Examples:
  hearth agents fork reviewer narrower.json")]
    Fork {
        /// Name of the agent
        name: String,
        /// A JSON object of the fields that differ
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a new agent of another one, without a tie to it, for operators
    #[command(after_long_help = "Examples:
  hearth agents clone reviewer auditor
  hearth agents clone reviewer auditor wider.json")]
    Clone {
        /// Name of the source
        name: String,
        /// Name of the new agent
        clone: String,
        /// A JSON object of the fields that differ
        file: Option<PathBuf>,
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
                async move { client.list_definitions(KIND, &page).await }
            };
            let listed = fetch(&paging, "agents", ask).await?;
            listed.show(screen, "no agents", &["AGENT", "MODEL", "ORIGIN", "DESCRIPTION"], |row| {
                vec![text(row, "name"), kind(row), text(row, "origin"), shortened(&text(row, "description"), 80)]
            })?;
        }
        AgentsCommand::Show { name, connection } => {
            show(&connection.client(screen)?.definition(KIND, &name).await?, screen)?;
        }
        AgentsCommand::Create { file, name, connection } => {
            let definition = definition_file::read(KIND, &file, name.as_deref())?;
            let made = connection.client(screen)?.create_definition(KIND, &definition).await?;
            told(screen, &made, "made")?;
        }
        AgentsCommand::Change { name, file, connection } => {
            let fields = definition_file::read(KIND, &file, Some(&name))?;
            let changed = connection.client(screen)?.change_definition(KIND, &name, &fields).await?;
            told(screen, &changed, "changed")?;
        }
        AgentsCommand::Retire { name, connection } => {
            let retired = connection.client(screen)?.retire_definition(KIND, &name).await?;
            told(screen, &retired, "retired")?;
        }
        AgentsCommand::Fork { name, file, connection } => {
            let fields = definition_file::read(KIND, &file, Some(&name))?;
            let fork = connection.client(screen)?.fork_agent(&name, &fields).await?;
            told(screen, &fork, "forked")?;
        }
        AgentsCommand::Clone { name, clone, file, connection } => {
            let fields = match file {
                Some(file) => definition_file::read(KIND, &file, Some(&clone))?,
                None => json!({ "name": clone }),
            };
            let made = connection.client(screen)?.clone_agent(&name, &fields).await?;
            told(screen, &made, "made")?;
        }
    }
    Ok(Verdict::Done)
}

/// What became of a definition, and the version that it is now.
fn told(screen: &Screen, definition: &Value, what: &str) -> Result<(), Failure> {
    if screen.json() {
        return screen.document(definition);
    }
    let line = format!("{what} {} {}", text(definition, "name"), text(definition, "def_id"));
    screen.line(line.trim_end())
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
