//! A sandbox node: the sessions of one machine, served to replicas over gRPC and to any client over MCP.
//!
//! It knows nothing of runs but whether their tree has ended, which it asks a replica.

mod auth;
mod caller;
mod liveness;
mod mcp;
mod serve;
mod settings;
mod tokens;

pub use serve::{Error, close_sessions, serve_until_signal};
pub use settings::{NodeSettings, SettingsError};
