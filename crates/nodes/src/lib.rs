//! Sandbox nodes as replicas reach them: which there are, which one takes a session, and calls to it over gRPC.
//!
//! It keeps no session and decides nothing about one: the node does. Where a tree's shared session is
//! is journaled by the tree's root run, through [`Binder`].

mod announce;
mod client;
mod machine;
mod nodes;
mod placement;
mod server;
mod workspaces;

pub use announce::Announcer;
pub use nodes::{Binder, Nodes};
pub use placement::{Wanted, choose};
pub use server::NodeService;
