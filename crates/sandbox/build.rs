//! Builds the init of sandbox sessions as a static program and embeds it, so that a fresh clone needs
//! nothing but a Rust toolchain: any image can run it, whatever its C library.
//!
//! It is a cargo of its own with a target folder of its own, since the outer one holds the lock of
//! the shared folder while this runs, and builds for other flags.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::error::Error;
use std::ffi::OsString;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "hearth-sandbox-init";
/// Settings of the outer build, which are none of the inner one's business.
const OUTER: [&str; 10] = [
    "CARGO_BUILD_",
    "CARGO_CFG_",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_FEATURE_",
    "CARGO_MANIFEST_",
    "CARGO_PKG_",
    "CARGO_PROFILE_",
    "CARGO_TARGET_",
    "RUSTC_",
    "RUSTFLAGS",
];
const PROFILE: [&str; 6] = [
    "profile.release.opt-level='s'",
    "profile.release.panic='abort'",
    "profile.release.lto=true",
    "profile.release.codegen-units=1",
    "profile.release.strip=true",
    "profile.release.debug=false",
];

fn main() -> Result<(), Box<dyn Error>> {
    let source = Path::new(&variable("CARGO_MANIFEST_DIR")?).join("../../services/sandbox-init");
    for path in [source.join("src"), source.join("Cargo.toml"), source.join("../../Cargo.lock")] {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    let program = build(&source, true).or_else(|error| {
        // Some distributions keep the static C library in a package of its own. Sessions on this host
        // work all the same; in an image with an older C library the init would not start.
        println!("cargo::warning={error}; the init is linked dynamically, and containers may not run it");
        build(&source, false)
    })?;
    let mut hash = DefaultHasher::new();
    hash.write(&std::fs::read(&program)?);
    println!("cargo::rustc-env=HEARTH_SANDBOX_INIT={}", program.display());
    println!("cargo::rustc-env=HEARTH_SANDBOX_INIT_HASH={:016x}", hash.finish());
    Ok(())
}

fn build(source: &Path, whole: bool) -> Result<PathBuf, Box<dyn Error>> {
    let target = variable("TARGET")?.into_string().map_err(|_| "TARGET is no text")?;
    let folder = PathBuf::from(variable("OUT_DIR")?).join(if whole { "static" } else { "dynamic" });
    let mut cargo = Command::new(variable("CARGO")?);
    for (name, _) in env::vars_os() {
        let name_text = name.to_string_lossy();
        if OUTER.iter().any(|prefix| name_text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    if whole {
        cargo.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    }
    // A target is named so that the flags are for the program alone, and not for what helps to build it.
    cargo.args(["build", "--release", "--locked", "--bin", PROGRAM, "--target", &target]);
    cargo.arg("--manifest-path").arg(source.join("Cargo.toml")).arg("--target-dir").arg(&folder);
    for setting in PROFILE {
        cargo.args(["--config", setting]);
    }
    let output = cargo.output()?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        eprintln!("{log}");
        let reason = log.lines().find(|line| line.starts_with("error")).unwrap_or("the inner build failed");
        return Err(format!("{PROGRAM}: {reason}").into());
    }
    Ok(folder.join(target).join("release").join(PROGRAM))
}

fn variable(name: &str) -> Result<OsString, Box<dyn Error>> {
    env::var_os(name).ok_or_else(|| format!("{name} is not set").into())
}
