//! MCP over streamable HTTP, as every server of Hearth speaks it: tools take JSON and give JSON, a refusal
//! is a fault, and sessions are bounded, expire, and belong to the caller that began them.
//!
//! It knows no tool and checks no token. The layer in front of [`router`] puts into each request who
//! calls: a [`Toolbox::Caller`], and an [`Owner`] for the session.

mod front;
mod handler;
mod metrics;
mod receipt;
mod sessions;
mod toolbox;

pub use front::{Options, SessionOptions, refuse, router};
pub use toolbox::{Owner, Toolbox};

pub use rmcp::model::{Tool, ToolAnnotations};
