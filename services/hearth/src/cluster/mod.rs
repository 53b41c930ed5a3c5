//! `cluster`: a real cluster of local processes, for development and tests.

mod control;
mod layout;
mod member;
mod ready;
mod up;

use clap::{Args, Subcommand};

use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Run a cluster on this machine: replicas, sandbox nodes, Redis and NATS, as local processes
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth cluster up
  hearth cluster up --replicas 3 --nodes 1 --data ./cluster --base-port 7600
  hearth cluster restart replica-1 --data ./cluster")]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    Up(up::UpArgs),
    Restart(control::RestartArgs),
}

pub async fn cluster(args: ClusterArgs, screen: &Screen) -> Result<Verdict, Failure> {
    match args.command {
        ClusterCommand::Up(args) => up::up(args, screen).await,
        ClusterCommand::Restart(args) => control::restart(args, screen).await,
    }
}
