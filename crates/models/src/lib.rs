//! The model port, the built-in agents `mock` and `dev/exec`, code agents in JavaScript, and a provider
//! that speaks chat completions.
//!
//! A model asks for tools and never runs one; it journals nothing. The engine does both.

mod built_in;
mod code;
mod dev_exec;
mod mock;
mod openai;
mod port;
mod prompt;

pub use built_in::{BuiltInModels, BuiltInOptions, built_in_definitions};
pub use code::{CodeBounds, CodeWorker, check_code, serve_code_worker};
pub use openai::{ApiKey, OpenAi, OpenAiOptions};
pub use port::{
    Delta, DeltaSink, Error, ErrorKind, Message, MessageRole, Model, ModelTurn, Models, RecordedStep, Step, StepInput,
    StopReason, ToolRequest, ToolResult, ToolSchema, TurnContext,
};
