//! The fields of a definition as a file or an override gives them: each may be absent.

use hearth_types::{AgentDefinition, SandboxSpec, ToolPattern};
use serde::Deserialize;
use serde_json::Value;

/// Front matter of an agent file, or the overrides of a fork, a clone or a change. Unknown fields are
/// refused.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DefinitionFields {
    pub name: Option<String>,
    pub description: Option<String>,
    pub system_prompt: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub tools: Option<Vec<ToolPattern>>,
    pub skills: Option<Vec<String>>,
    pub max_iterations: Option<u32>,
    pub max_concurrent_children: Option<u32>,
    pub code: Option<String>,
    pub sandbox: Option<SandboxSpec>,
    pub guardrails: Option<Value>,
    pub acceptance: Option<Value>,
    pub failover: Option<Value>,
}

impl DefinitionFields {
    /// The base with the given fields in place of its own; absent ones stay.
    pub fn over(self, base: &AgentDefinition) -> AgentDefinition {
        let base = base.clone();
        AgentDefinition {
            name: self.name.unwrap_or(base.name),
            description: self.description.unwrap_or(base.description),
            system_prompt: self.system_prompt.unwrap_or(base.system_prompt),
            provider: self.provider.or(base.provider),
            model: self.model.or(base.model),
            tools: self.tools.unwrap_or(base.tools),
            skills: self.skills.unwrap_or(base.skills),
            max_iterations: self.max_iterations.or(base.max_iterations),
            max_concurrent_children: self.max_concurrent_children.or(base.max_concurrent_children),
            code: self.code.or(base.code),
            sandbox: self.sandbox.or(base.sandbox),
            guardrails: self.guardrails.or(base.guardrails),
            acceptance: self.acceptance.or(base.acceptance),
            failover: self.failover.or(base.failover),
        }
    }
}
