//! The definition of an agent: what its file or its API object says.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{SandboxSpec, ToolPattern};

/// A definition as a run keeps it: a run goes on with the definition it was opened with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentDefinition {
    /// `/` separates the folders of agent files.
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub system_prompt: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The ceiling: what the agent may ever use. Empty admits nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolPattern>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_iterations: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrent_children: Option<u32>,
    /// JavaScript that defines `function run(input)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guardrails: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acceptance: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failover: Option<Value>,
}

impl AgentDefinition {
    pub fn admits(&self, tool: &str) -> bool {
        self.tools.iter().any(|pattern| pattern.admits(tool))
    }
}
