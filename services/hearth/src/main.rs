//! The one program that users run: a replica for development, the demo, and the operator's client.
//!
//! It holds no logic of the server: `dev` hands its options to the control plane, everything else
//! talks HTTP as any client does.

mod args;
mod cli;
mod cluster;
mod commands;
mod demo;
mod descriptors;
mod dev;
mod doctor;
mod failure;
mod node;
mod replica;
mod screen;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Nearly all that a call does is small and short-lived: this allocator takes half the time for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let screen = Screen::new(cli.json);
    if matches!(cli.command, Command::CodeWorker) {
        return serve_code_worker(&screen);
    }
    descriptors::raise_limit();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Failure::failed(format!("the runtime does not start: {error}")).report(&screen),
    };
    match runtime.block_on(run(cli.command, &screen)) {
        Ok(verdict) => verdict.exit_code(),
        Err(failure) => failure.report(&screen),
    }
}

fn serve_code_worker(screen: &Screen) -> ExitCode {
    match hearth_control_plane::wiring::serve_code_worker() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::failed(error.to_string()).report(screen),
    }
}

async fn run(command: Command, screen: &Screen) -> Result<Verdict, Failure> {
    match command {
        Command::Dev(args) => dev::dev(args, screen).await,
        Command::Cluster(args) => cluster::cluster(args, screen).await,
        Command::Node(args) => node::node(args, screen).await,
        Command::Replica(args) => replica::replica(args, screen).await,
        Command::Demo(args) => demo::demo(args, screen).await,
        Command::Run(args) => commands::run::run(args, screen).await,
        Command::Message(args) => commands::run::message(args, screen).await,
        Command::Open(args) => commands::resident::open(args, screen).await,
        Command::Send(args) => commands::resident::send(args, screen).await,
        Command::Poll(args) => commands::resident::poll(args, screen).await,
        Command::Input(args) => commands::run::input(args, screen).await,
        Command::Cancel(args) => commands::end::cancel(args, screen).await,
        Command::Close(args) => commands::end::close(args, screen).await,
        Command::Ls(args) => commands::list::ls(args, screen).await,
        Command::Show(args) => commands::show::show(args, screen).await,
        Command::Tail(args) => commands::tail::tail(args, screen).await,
        Command::Transcript(args) => commands::show::transcript(args, screen).await,
        Command::Agents(args) => commands::agents::agents(args, screen).await,
        Command::Skills(args) => commands::skills::skills(args, screen).await,
        Command::Sandbox(args) => commands::sandbox::sandbox(args, screen).await,
        Command::Snapshot(args) => commands::snapshot::snapshot(args, screen).await,
        Command::Nodes(args) => commands::nodes::nodes(args, screen).await,
        Command::Replicas(args) => commands::replicas::replicas(args, screen).await,
        Command::Doctor(args) => doctor::doctor(args, screen).await,
        Command::Journal(args) => commands::journal::journal(args, screen).await,
        Command::Completion(args) => commands::completion::completion(&args, screen),
        Command::CodeWorker => Ok(Verdict::Done),
    }
}
