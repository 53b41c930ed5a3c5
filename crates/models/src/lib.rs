//! The model port: what thinks during a turn.
//!
//! A model asks for tools and never runs one; it journals nothing. The engine does both.

mod port;

pub use port::{
    Delta, DeltaSink, Error, ErrorKind, Message, MessageRole, Model, ModelTurn, Models, RecordedStep, Step, StepInput,
    StopReason, ToolRequest, ToolResult, TurnContext,
};
