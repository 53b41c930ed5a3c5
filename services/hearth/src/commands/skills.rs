//! `skills`: instructions that agents can be given by name.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hearth_client::Definitions;
use serde_json::Value;

use super::definition_file;
use super::pages::fetch;
use super::view::text;
use crate::args::{Connection, Paging};
use crate::failure::{Failure, Verdict};
use crate::screen::{Screen, shortened};

const KIND: Definitions = Definitions::Skills;

/// List, show, create, change and retire skills
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth skills ls
  hearth skills show rust
  hearth skills create rust/SKILL.md
  hearth skills change rust rust/SKILL.md
  hearth skills retire rust")]
pub struct SkillsArgs {
    #[command(subcommand)]
    command: SkillsCommand,
}

#[derive(Debug, Subcommand)]
enum SkillsCommand {
    /// List the skills
    #[command(
        visible_alias = "list",
        after_long_help = "Examples:
  hearth skills ls
  hearth --json skills ls | jq -r '.skills[].name'"
    )]
    Ls {
        #[command(flatten)]
        paging: Paging,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show one skill
    #[command(after_long_help = "Examples:
  hearth skills show rust")]
    Show {
        /// Name of the skill
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a skill from a file, for operators
    #[command(after_long_help = "Examples:
  hearth skills create rust/SKILL.md
  hearth skills create notes.md --name rust")]
    Create {
        /// NAME/SKILL.md as in the agents folder, NAME.md, or a JSON object
        file: PathBuf,
        /// Another name than the file's
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change a skill to what a file says
    #[command(after_long_help = "Examples:
  hearth skills change rust rust/SKILL.md")]
    Change {
        /// Name of the skill
        name: String,
        /// As for `create`
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
    },
    /// Retire a skill
    #[command(after_long_help = "Examples:
  hearth skills retire rust")]
    Retire {
        /// Name of the skill
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
}

pub async fn skills(args: SkillsArgs, screen: &Screen) -> Result<Verdict, Failure> {
    match args.command {
        SkillsCommand::Ls { paging, connection } => {
            let client = connection.client(screen)?;
            let ask = |page: hearth_client::Page| {
                let client = &client;
                async move { client.list_definitions(KIND, &page).await }
            };
            let listed = fetch(&paging, "skills", ask).await?;
            listed.show(screen, "no skills", &["SKILL", "ORIGIN", "DESCRIPTION"], |row| {
                vec![text(row, "name"), text(row, "origin"), shortened(&text(row, "description"), 80)]
            })?;
        }
        SkillsCommand::Show { name, connection } => {
            let skill = connection.client(screen)?.definition(KIND, &name).await?;
            if screen.json() {
                screen.document(&skill)?;
            } else {
                let row = |field: &'static str| (field, text(&skill, field));
                screen.labels(&[row("name"), row("origin"), row("description")])?;
                screen.line("")?;
                screen.foreign(&text(&skill, "body"))?;
            }
        }
        SkillsCommand::Create { file, name, connection } => {
            let skill = definition_file::read(KIND, &file, name.as_deref())?;
            told(screen, &connection.client(screen)?.create_definition(KIND, &skill).await?, "made")?;
        }
        SkillsCommand::Change { name, file, connection } => {
            let mut fields = definition_file::read(KIND, &file, Some(&name))?;
            // A change names no name: the path does.
            if let Some(fields) = fields.as_object_mut() {
                fields.remove("name");
            }
            told(screen, &connection.client(screen)?.change_definition(KIND, &name, &fields).await?, "changed")?;
        }
        SkillsCommand::Retire { name, connection } => {
            told(screen, &connection.client(screen)?.retire_definition(KIND, &name).await?, "retired")?;
        }
    }
    Ok(Verdict::Done)
}

fn told(screen: &Screen, skill: &Value, what: &str) -> Result<(), Failure> {
    if screen.json() { screen.document(skill) } else { screen.line(&format!("{what} {}", text(skill, "name"))) }
}
