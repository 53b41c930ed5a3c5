//! Starts real `hearth` processes for tests, speaks HTTP to them, and leaves none behind.
//!
//! It does not use the project's own client or types: what it sends and expects is written out, so that a
//! promise of the contract that the code breaks on both sides is noticed all the same.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a harness has only tests as callers, and panics for them")]

mod api;
mod cluster;
mod daemon;
mod events;
mod leftovers;
mod mcp;
mod node;
mod persistent;
mod program;
mod proxy;
mod receiver;
mod reply;
mod server;
mod slow;
mod streams;
mod wait;

pub use api::{Api, mock};
pub use cluster::{Cluster, ClusterOptions};
pub use daemon::DockerDaemon;
pub use events::{Event, Events};
pub use mcp::{Answer, Mcp};
pub use node::{NODE_TOKEN, Node};
pub use persistent::Persistent;
pub use program::{binary, program};
pub use proxy::Proxy;
pub use receiver::Receiver;
pub use reply::Reply;
pub use server::{ADMIN, Options, Server};
pub use slow::SlowReader;
pub use wait::{WITHIN, eventually, within};
