//! `cargo xtask bench`: builds what is measured and what measures it, and hands over to it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::{process, setup};

/// Ends this process unless it fails: the program that measures takes its place, so that Ctrl-C reaches
/// it directly and it can take down what it started.
pub fn run(root: &Path, args: &[String]) -> Result<(), Failure> {
    let folder = setup::stores(root);
    let mut build = process::cargo(root);
    build.args(["build", "--locked", "--release", "-p", "hearth", "-p", "hearth-load"]);
    process::run(&mut build)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder));
    let release = target.join("release");
    let mut bench = Command::new(release.join("hearth-load"));
    bench.arg("bench").arg("--hearth").arg(release.join("hearth")).arg("--root").arg(root).args(args);
    if let Some(folder) = folder {
        let mut path = OsString::from(folder);
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        bench.env("PATH", path);
    }
    let line = process::line(&bench);
    Err(Failure::Program { line, reason: bench.exec().to_string() })
}
