//! `hearth-load`: drives a deployment and measures it.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use hearth_load::{Error, bench, load};

/// Drive a Hearth deployment and measure what it does
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<load::RunArgs>),
    Compare(hearth_load::CompareArgs),
    Seed(hearth_load::SeedArgs),
    Floor(hearth_load::FloorArgs),
    Bench(bench::BenchArgs),
}

/// The same as the program under test has, so that neither side of a comparison pays for another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("hearth-load: the runtime does not start: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(cli.command)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hearth-load: {error}");
            ExitCode::from(match error {
                Error::Usage(_) => 2,
                Error::Interrupted => 130,
                _ => 1,
            })
        }
    }
}

/// Whether what was asked for went well.
async fn run(command: Command) -> Result<bool, Error> {
    match command {
        Command::Run(args) => Box::pin(load::run(*args)).await,
        Command::Compare(args) => hearth_load::compare(&args).map(|()| true),
        Command::Seed(args) => Box::pin(hearth_load::seed(args)).await.map(|()| true),
        Command::Floor(args) => Box::pin(hearth_load::serve_floor(args)).await.map(|()| true),
        Command::Bench(args) => Box::pin(bench::bench(args)).await.map(|()| true),
    }
}
