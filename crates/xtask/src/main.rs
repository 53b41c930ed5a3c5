//! The project's own chores, as `cargo xtask NAME`. It builds nothing that users run.

mod bench;
mod ci;
mod clients;
mod failure;
mod fuzz;
mod image;
mod layers;
mod process;
mod setup;
mod stopwatch;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use failure::Failure;

const USAGE: &str = "cargo xtask CHORE
  ci       set-up, formatting, clippy, layers, tidy, then every test; what has to pass
  setup    installs what the tests need, starts a Docker daemon, builds the session image
  fuzz     asks the HTTP surface all that its description allows and much that it does not; takes seconds
  clients  runs MCP clients that others wrote against a sandbox node and a replica
  layers   checks that every crate depends on lower levels only
  tidy     checks sizes, words, links and docs/INVARIANTS.md
  image    builds the session image; --help tells its options
  bench    measures the release build beside its floors; --help tells its options";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match run(&root, &args) {
        Ok(()) => ExitCode::SUCCESS,
        // The runner's summary is the last word of a run whose tests failed.
        Err(Failure::Tests) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(root: &Path, args: &[String]) -> Result<(), Failure> {
    let root = root.canonicalize().map_err(|source| Failure::File { path: root.to_owned(), source })?;
    let Some((chore, rest)) = args.split_first() else { return Err(Failure::Usage("which chore?".to_owned())) };
    match (chore.as_str(), rest) {
        ("image", _) => image::run(&root, rest).map_err(Failure::Image),
        ("bench", _) => bench::run(&root, rest),
        ("fuzz", _) => fuzz::run(&root, rest),
        ("ci", []) => ci::run(&root),
        ("clients", []) => clients::run(&root),
        ("setup", []) => setup::keep(&root),
        ("layers", []) => layers::run(&root),
        ("tidy", []) => tidy::run(&root),
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            Ok(())
        }
        ("ci" | "clients" | "setup" | "layers" | "tidy", [extra, ..]) => {
            Err(Failure::Usage(format!("`{chore}` takes no argument, and was given {extra:?}")))
        }
        _ => Err(Failure::Usage(format!("there is no chore {chore:?}"))),
    }
}
