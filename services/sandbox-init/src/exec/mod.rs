//! Commands: their life, their trees, and how long their results are kept.

mod launch;
mod maker;
mod output;
mod plain;
mod record;
mod spare;
mod supervise;
mod table;

pub use launch::{Base, Launcher};
pub use supervise::reap_all;
pub use table::Execs;
