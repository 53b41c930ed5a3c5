//! The project's own chores, as `cargo xtask NAME`. It builds nothing that users run.

mod image;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let done = match args.split_first() {
        Some((name, rest)) if name == "image" => image::run(&root, rest),
        _ => Err(image::Error::Usage("which chore?".to_owned())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
