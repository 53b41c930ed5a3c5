//! What the built-in models promise, through the port alone.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod bounds;
mod code;
mod dev_exec;
mod eviction;
mod mock;
mod openai;
mod replay;
mod resolve;
mod stage;
mod worker;
