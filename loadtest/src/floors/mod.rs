//! Floors: the bare work that a figure cannot do without, done with the plain client libraries and the
//! same payloads, so that a figure is a ratio and not a number of one machine.

pub(crate) mod engine;
pub(crate) mod jetstream;
pub(crate) mod pipe;
mod served;
pub(crate) mod sqlite;

use clap::Args;
use serde::{Deserialize, Serialize};

pub use served::{FloorArgs, serve_floor};
pub(crate) use served::{FloorKind, FloorServer, Stored};

/// Bytes of what one `send` sends and stores, as they were read from a server's own journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Args)]
pub(crate) struct Payload {
    /// The body of the request.
    #[arg(long, default_value_t = 80)]
    pub request: usize,
    /// The body of the answer.
    #[arg(long, default_value_t = 250)]
    pub answer: usize,
    /// The frame that accepts the turn.
    #[arg(long, default_value_t = 600)]
    pub accept: usize,
    /// The frame that ends it.
    #[arg(long, default_value_t = 600)]
    pub end: usize,
    /// The index row that goes with each.
    #[arg(long, default_value_t = 900)]
    pub row: usize,
}

/// Printable bytes that nothing stores for free.
pub(crate) fn filler(bytes: usize) -> String {
    const SIGNS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(SIGNS[usize::try_from(state % 64).unwrap_or(0)])
        })
        .collect()
}
