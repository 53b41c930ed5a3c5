//! The contract that every model keeps.

use std::sync::Arc;

use async_trait::async_trait;
use hearth_types::{AgentDefinition, Fault, FaultCode, RunId, SandboxId, Timestamp, ToolOutput, TurnId, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why a step failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The prompt or the definition is not what this model takes; another try fails as well.
    Invalid,
    /// The agent's own program failed, diverged from its record, or passed one of its bounds. Programs
    /// are deterministic: it is what the agent and its prompt make of each other, and fails again.
    Agent,
    /// The provider refused or failed in a way that another try may not.
    Transient,
    /// The provider refused for good.
    Refused,
}

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    /// What went wrong and what to do, for the user.
    pub message: String,
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error, known to be one of the contract's.
    #[must_use]
    pub fn with_code(mut self, code: FaultCode) -> Self {
        self.source = Some(Box::new(Fault::new(code, self.message.clone())));
        self
    }

    /// The contract's code where it is known: a model that passes on what a tool or a provider said
    /// knows it.
    pub fn code(&self) -> Option<FaultCode> {
        self.source.as_ref()?.downcast_ref::<Fault>().map(|fault| fault.code)
    }
}

/// A tool call as the model asks for it; the engine gives it its id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRequest {
    pub name: String,
    pub arguments: Value,
}

/// What came of a requested call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    pub output: ToolOutput,
    /// When the result was journaled. The same at every replay.
    pub at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The turn is over; `text` is its output.
    EndTurn,
    /// The model waits for the results of `tool_calls`.
    ToolUse,
    /// The provider's bound on the output; the turn is over and its output is cut.
    MaxTokens,
    /// The model declined to go on.
    Refusal,
}

/// One finished model step. With tool calls the stop reason is [`StopReason::ToolUse`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub thinking: String,
    pub text: String,
    pub tool_calls: Vec<ToolRequest>,
    pub usage: Usage,
    pub stop: StopReason,
}

/// A step that the journal holds, with the results of all its calls, in the calls' order.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedStep {
    pub step: Step,
    pub results: Vec<ToolResult>,
    /// What was steered into the turn after this step.
    pub steered: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    User,
    Assistant,
    Tool,
}

/// One message of the conversation before this turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub role: MessageRole,
    pub content: Value,
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSchema {
    pub name: String,
    pub description: String,
    /// A JSON schema of type `object`.
    pub parameters: Value,
}

/// Everything that a turn starts from, or goes on from after a crash.
#[derive(Debug, Clone)]
pub struct TurnContext {
    pub run_id: RunId,
    pub turn_id: TurnId,
    pub agent: Arc<AgentDefinition>,
    pub prompt: String,
    /// When the turn started. The same at every replay.
    pub started_at: Timestamp,
    /// The steps that the journal holds already, oldest first; empty for a new turn. The first
    /// [`ModelTurn::step`] is the one after them.
    pub recorded: Vec<RecordedStep>,
    /// The conversation before this turn; empty unless the model says it needs it.
    pub history: Vec<Message>,
    /// The sandbox session that the run used in the turns before; the same at every replay.
    pub sandbox_session: Option<SandboxId>,
    /// The tools that the agent may use; told, like the conversation, to models that say they need it.
    pub tools: Vec<ToolSchema>,
}

/// What arrived since the last step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepInput {
    /// The results of the last step's calls, in the calls' order. At the first step after a
    /// resumption they are empty: `recorded` has them.
    pub results: Vec<ToolResult>,
    /// Input that was steered into the running turn.
    pub steered: Vec<String>,
}

/// A piece of a step, live. Superseded by the finished [`Step`].
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    Text(String),
    Thinking(String),
}

/// Takes deltas; never blocks and never fails.
pub trait DeltaSink: Send + Sync {
    fn send(&self, delta: Delta);
}

/// One turn in progress. Dropping it cancels: whatever it started must end soon and leave nothing.
#[async_trait]
pub trait ModelTurn: Send {
    /// Runs to the next finished step. All text that was sent as deltas is in the step's `text`.
    /// Not called again after a step whose stop reason is not [`StopReason::ToolUse`], nor after
    /// an error. The future may be dropped at any await point; then the turn is dropped too.
    async fn step(&mut self, input: StepInput, sink: &dyn DeltaSink) -> Result<Step, Error>;
}

/// A model, a code agent or a scripted agent.
pub trait Model: Send + Sync + 'static {
    /// Whether [`TurnContext::history`] must hold the conversation.
    fn needs_history(&self) -> bool;

    /// Begins a turn. Cheap: work starts with the first step.
    fn begin(&self, turn: TurnContext) -> Result<Box<dyn ModelTurn>, Error>;
}

/// Finds the model that a definition names.
pub trait Models: Send + Sync + 'static {
    fn resolve(&self, agent: &AgentDefinition) -> Result<Arc<dyn Model>, Error>;
}
