//! What tests need besides a Rust toolchain: installed and started where this process may.
//!
//! Whatever cannot be had is said, and the tests that need it leave themselves out.

mod daemon;
mod packages;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::{image, process};
use daemon::Daemon;

/// What stands for the tests. Dropping it ends the daemon that it started.
#[derive(Debug)]
pub struct Services {
    daemon: Option<Daemon>,
    has_docker: bool,
    has_stores: bool,
    /// Folders to be searched for programs before the others.
    programs: Option<PathBuf>,
    skipped: Vec<String>,
}

impl Services {
    /// What will not be tested here, and why.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Tells the tests what they can count on: what is there must be used, and a test that leaves
    /// itself out all the same fails.
    pub fn announce<'a>(&self, tests: &'a mut Command) -> &'a mut Command {
        if self.has_docker {
            tests.env("HEARTH_REQUIRE_DOCKER", "1");
        }
        if self.has_stores {
            tests.env("HEARTH_REQUIRE_SERVICES", "1");
        }
        if let Some(folder) = &self.programs {
            let mut path = OsString::from(folder);
            path.push(":");
            path.push(std::env::var_os("PATH").unwrap_or_default());
            tests.env("PATH", path);
        }
        tests
    }
}

/// Installs, starts and builds.
pub fn start(root: &Path) -> Services {
    begin(root, false)
}

/// Of all that, only the stores' programs: the folder to be searched for them before the others, if one is needed.
pub fn stores(root: &Path) -> Option<PathBuf> {
    if !process::is_there("redis-server") {
        packages::install();
    }
    packages::nats(root).unwrap_or_else(|reason| {
        println!("no NATS server: {reason}");
        None
    })
}

/// The whole, for a developer: a daemon that was started stays.
pub fn keep(root: &Path) -> Result<(), Failure> {
    let mut services = begin(root, true);
    for skipped in services.skipped() {
        println!("not to be had: {skipped}");
    }
    if let Some(folder) = &services.programs {
        println!("put {} on your PATH", folder.display());
    }
    if let Some(daemon) = services.daemon.take() {
        println!("dockerd runs on as process {id}; end it with `kill {id}`", id = daemon.id());
        std::mem::forget(daemon);
    }
    Ok(())
}

fn begin(root: &Path, stays: bool) -> Services {
    packages::install();
    let mut services =
        Services { daemon: None, has_docker: false, has_stores: false, programs: None, skipped: Vec::new() };
    services.stores(root);
    services.docker(root, stays);
    if !process::is_there("bwrap") {
        services.skipped.push("local sessions with bubblewrap: `bwrap` is missing (package bubblewrap)".to_owned());
    }
    services
}

impl Services {
    fn stores(&mut self, root: &Path) {
        match packages::nats(root) {
            Err(reason) => self.skipped.push(format!("tests with a NATS server: {reason}")),
            Ok(folder) => {
                self.programs = folder;
                self.has_stores = process::is_there("redis-server");
            }
        }
        if !process::is_there("redis-server") {
            self.skipped.push("tests with a Redis server: `redis-server` is missing".to_owned());
        }
    }

    fn docker(&mut self, root: &Path, stays: bool) {
        let built = match daemon::ensure(root, stays) {
            Err(reason) => Err(reason),
            Ok(daemon) => {
                self.daemon = daemon;
                image::run(root, &[]).map_err(|error| format!("the session image cannot be built: {error}"))
            }
        };
        self.has_docker = built.is_ok();
        self.skipped.extend(built.err().map(|reason| format!("tests that need containers: {reason}")));
    }
}
