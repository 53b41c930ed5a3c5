//! The init of a sandbox session: process 1 of a container, or the detached supervisor of a local
//! session. It runs commands for clients on a Unix socket, keeps their results until these are
//! fetched, reads and writes files inside the workspace, and leaves no process behind.
//!
//! It knows no runs, tenants or policies, and it is no boundary by itself: the code it runs has its
//! user's rights and can reach its socket. So every peer counts as hostile, everything is bounded,
//! and nothing here may be fooled into touching a process or a file outside the session.
//!
//! One thread, one `poll` loop: `fork` without `exec` is sound only in a process without threads,
//! and each exec's supervisor is such a fork.

mod clock;
mod confine;
mod detach;
mod exec;
mod files;
mod oom;
mod options;
mod peer;
mod serve;
mod signals;
pub mod socket;
pub mod tree;
pub mod wire;

use std::ffi::OsString;

pub use options::{Options, USAGE, Usage};

/// Runs the program; the code that it should exit with.
pub fn run(args: impl IntoIterator<Item = OsString>) -> i32 {
    let command = match options::Command::parse(args) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("{error}\n{USAGE}");
            return 2;
        }
    };
    let result = match command {
        options::Command::Serve(options) => serve::serve(&options),
        options::Command::Detach { log, words } => detach::detach(&words, log.as_deref()),
        options::Command::ProbeNetwork => confine::cut_network(),
    };
    match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("hearth-sandbox-init: {error}");
            1
        }
    }
}
