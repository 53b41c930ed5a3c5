//! The turn, step by step, over models and tools.
//!
//! It journals nothing and keeps no state of its own: each step and each tool result is reported
//! through [`TurnPort`] before the next one starts, so that a turn can go on anywhere from there.

mod agent_tool;
mod drive;
mod live;
mod metrics;
mod sandbox_tool;
mod schemas;
mod tools;

pub use agent_tool::{AgentOp, Cancel, Close, Delegate, Open, Poll, Send, Spawn};
pub use drive::{Engine, Stopped, ToolAck, TurnPort, TurnStart};
pub use live::LiveOutput;
pub use sandbox_tool::check_override;
pub use schemas::agent_tool;
pub use tools::{CallContext, Tools, call_name};
