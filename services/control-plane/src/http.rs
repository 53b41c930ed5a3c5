//! The HTTP surface: decode, call a use case, encode.

mod agents;
mod call;
mod console;
mod disconnect;
mod gateway;
mod grpc;
mod health;
mod intake;
mod json;
mod layers;
mod mcp;
mod members;
mod negotiate;
mod nodes;
mod openapi;
mod query;
mod reply;
mod residents;
mod runs;
mod sandboxes;
mod serve;
mod sessions;
mod skills;
mod snapshots;
mod sse;
mod stall;
mod table;
mod workspaces;

pub use gateway::{Gateway, HttpOptions};
pub use serve::{ServeError, serve, serve_metrics};

#[cfg(test)]
mod tests;
