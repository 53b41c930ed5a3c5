//! The simulation: a whole cluster of production's code in one process, on a paused clock and a seeded
//! schedule, over stores that lose, delay and forget, with replicas that are killed, stopped and drained
//! at any await point. Each frame and each answer is judged as it comes.
//!
//! `SIM_SEED=n cargo test -p hearth-sim one_seed -- --nocapture` runs one seed alone and tells its story;
//! `SIM_SEEDS=100000` is the long mode.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of it is a test")]

mod books;
mod broken;
mod chaos;
mod client;
mod cluster;
mod command;
mod gate;
mod mutations;
mod node;
mod panics;
mod plan;
mod run;
mod scenarios;
mod script;
mod seeds;
mod stores;
mod story;
mod wire;
mod world;
