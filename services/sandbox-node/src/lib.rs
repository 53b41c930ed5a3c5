//! A sandbox node: the sessions of one machine, served to replicas over gRPC.
//!
//! It knows nothing of runs but whether their tree has ended, which it asks a replica.

mod auth;
mod liveness;
mod serve;
mod settings;

pub use serve::{Error, serve_until_signal};
pub use settings::{NodeSettings, SettingsError};
