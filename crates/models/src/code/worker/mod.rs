//! Programs in a process of their own.
//!
//! The interpreter is written in C, and a program that comes to the end of its memory can make it
//! crash. In here that costs the process nothing but the programs' memory: every one of them runs
//! again from its record, and the one that does it again when it is alone fails its turn.

mod client;
mod frame;
mod server;

use std::ffi::OsString;
use std::path::PathBuf;

pub(super) use client::Workers;
pub use server::serve_code_worker;

/// The program that becomes the worker process: it must call [`serve_code_worker`]. Its standard
/// input is the connection; its environment is what is listed here and nothing more.
#[derive(Debug, Clone)]
pub struct CodeWorker {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
}
