//! `cargo xtask ci`: everything that has to pass.
//!
//! The checks all run, whether or not one before them failed, so that one run tells everything. The
//! tests come last and print last: the runner's summary ends the output.

use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::process::{self, cargo};
use crate::stopwatch::Stopwatch;
use crate::{layers, setup, tidy};

pub fn run(root: &Path) -> Result<(), Failure> {
    let mut watch = Stopwatch::default();
    let services = watch.phase("set-up", || setup::start(root));
    let mut failures = Vec::new();
    let mut check = |name: &'static str, work: &mut dyn FnMut() -> Result<(), Failure>| {
        if let Err(failure) = watch.phase(name, work) {
            println!("== {name} FAILED: {failure}");
            failures.push(name);
        }
    };
    check("fmt", &mut || process::run(cargo(root).args(["fmt", "--all", "--check"])));
    check("layers", &mut || layers::run(root));
    check("tidy", &mut || tidy::run(root));
    check("clippy", &mut || {
        process::run(cargo(root).args(["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    });
    check("build", &mut || process::run(cargo(root).args(["build", "--locked", "--workspace"])));
    check("doctests", &mut || process::run(cargo(root).args(["test", "--locked", "--workspace", "--doc", "--quiet"])));

    println!("\n{}", watch.summary());
    for skipped in services.skipped() {
        println!("SKIPPED: {skipped}");
    }
    if !failures.is_empty() {
        println!("FAILED before the tests (see above), whatever they say below: {}", failures.join(", "));
    }
    println!("\n== tests");
    let tests = process::run(services.announce(&mut tests(root)));
    drop(services);
    match (tests, failures.is_empty()) {
        (Ok(()), true) => Ok(()),
        _ => Err(Failure::Tests),
    }
}

fn tests(root: &Path) -> Command {
    let mut command = cargo(root);
    // Built by the phase before: no test has to build it, or wait for another that does.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder));
    command.env("HEARTH_BIN", target.join("debug/hearth"));
    if process::is_there("cargo-nextest") {
        command.args(["nextest", "run", "--locked", "--workspace", "--profile", "ci"]);
    } else {
        println!("cargo-nextest is not here: `cargo test` runs the tests");
        command.args(["test", "--locked", "--workspace", "--all-targets", "--no-fail-fast"]);
    }
    command
}
