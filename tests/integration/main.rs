//! The contract, called as written, against a real server with its journal in a file.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "these are tests")]

mod agent_mcp;
mod agent_tool;
mod agents;
mod bad_input;
mod bounds;
mod callers;
mod cancel;
mod close;
mod cluster;
mod code_agents;
mod crash;
mod crash_points;
mod folding;
mod keys;
mod lists;
mod node_mcp;
mod operator;
mod replay;
mod residents;
mod runs;
mod sandbox;
mod sandbox_overrides;
mod sessions;
mod snapshots;
mod start_and_stop;
mod stream;
mod tenants;
mod traces;
mod upgrade;
mod workspaces;
