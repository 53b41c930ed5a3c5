//! The tools that an agent is offered, as its model sees them.

use std::sync::LazyLock;

use hearth_models::ToolSchema;
use hearth_types::AgentDefinition;
use serde_json::json;

const AGENT: &str = "Delegates to other agents. `spawn` (the default) runs one and returns its text; `parallel_spawn` \
    runs several. `open` makes a resident child that stays alive between turns: `send`, `poll`, `cancel` and `close` \
    address it by `child_run_id`; `list` shows what is open.";

/// Those of the tools that the definition admits.
pub(crate) fn offered(agent: &AgentDefinition) -> Vec<ToolSchema> {
    ALL.iter().filter(|tool| agent.admits(&tool.name)).cloned().collect()
}

static ALL: LazyLock<Vec<ToolSchema>> = LazyLock::new(|| {
    let sandbox = hearth_sandbox::tools::tools().iter().map(|spec| ToolSchema {
        name: format!("mcp__sandbox__{}", spec.name),
        description: spec.description.to_owned(),
        parameters: spec.input_schema.clone(),
    });
    std::iter::once(agent_tool()).chain(sandbox).collect()
});

/// The `Agent` tool.
pub fn agent_tool() -> ToolSchema {
    let text = json!({ "type": "string" });
    let whole = json!({ "type": "integer", "minimum": 0 });
    let spawn = json!({
        "type": "object", "required": ["name", "prompt"], "additionalProperties": false,
        "properties": { "name": text, "prompt": text, "def_id": text },
    });
    ToolSchema {
        name: "Agent".to_owned(),
        description: AGENT.to_owned(),
        parameters: json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "op": { "enum": ["spawn", "parallel_spawn", "open", "send", "poll", "cancel", "close", "list"] },
                "name": text, "prompt": text, "def_id": text,
                "spawns": { "type": "array", "minItems": 1, "maxItems": 32, "items": spawn },
                "child_run_id": text, "turn_id": text,
                "timeout_ms": whole, "idle_ttl_seconds": whole,
                "isolation": { "enum": ["L1", "L2", "L3"] },
                "sandbox": { "type": "object" },
            },
        }),
    }
}
