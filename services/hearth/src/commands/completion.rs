//! `completion`: the script that teaches a shell these commands.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use crate::cli::Cli;
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  source <(hearth completion bash)
  hearth completion zsh > ~/.zfunc/_hearth
  hearth completion fish > ~/.config/fish/completions/hearth.fish")]
pub struct CompletionArgs {
    shell: Shell,
}

pub fn completion(args: &CompletionArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hearth", &mut script);
    let script = String::from_utf8_lossy(&script);
    if screen.json() {
        screen.document(&json!({ "shell": args.shell.to_string(), "script": script }))?;
    } else {
        screen.write(&script)?;
    }
    Ok(Verdict::Done)
}
