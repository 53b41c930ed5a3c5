//! Tool calls, their results, and the patterns that admit them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{CallId, FaultCode};

/// A call that a model asks for. `arguments` is the JSON object that the model wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: CallId,
    pub name: String,
    pub arguments: Value,
}

/// What a tool answered. A refusal is a result too: it goes back to the model and ends nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// A JSON value: a string for text results, an object for structured ones. For an error it is
    /// `{"error": {code, message, …}}`.
    pub content: Value,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl ToolOutput {
    pub fn ok(content: Value) -> Self {
        Self { content, is_error: false }
    }

    pub fn error(fault: &crate::Fault) -> Self {
        Self { content: fault.to_body(), is_error: true }
    }

    /// The result of a tool that was in flight when its replica died and cannot be asked again.
    pub fn interrupted() -> Self {
        Self::error(&crate::Fault::new(
            FaultCode::DeadlineExceeded,
            "interrupted, outcome unknown: the process that ran this call is gone; check its effect before repeating it",
        ))
    }

    /// The text that a turn shows of it.
    pub fn text(&self) -> String {
        match &self.content {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// Tokens used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
}

impl Usage {
    pub fn add(&mut self, other: Usage) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
    }

    pub fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// A tool name, or a prefix that ends in `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolPattern(pub String);

impl ToolPattern {
    pub fn admits(&self, tool: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => tool.starts_with(prefix),
            None => self.0 == tool,
        }
    }
}
