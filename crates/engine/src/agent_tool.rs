//! The `Agent` tool: its arguments, checked, and the port that carries them out.

use async_trait::async_trait;
use hearth_types::{Fault, Isolation, RunId, SandboxSpec, TurnId, limits};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::CallContext;

/// One child to spawn.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spawn {
    pub name: String,
    pub prompt: String,
    #[serde(default)]
    pub def_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParallelSpawn {
    spawns: Vec<Spawn>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    pub name: String,
    pub prompt: String,
    #[serde(default)]
    pub def_id: Option<String>,
    #[serde(default)]
    pub idle_ttl_seconds: Option<u64>,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub isolation: Option<Isolation>,
    #[serde(default)]
    pub sandbox: Option<SandboxSpec>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Send {
    pub child_run_id: RunId,
    pub prompt: String,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Poll {
    pub child_run_id: RunId,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub turn_id: Option<TurnId>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    pub child_run_id: RunId,
    #[serde(default)]
    pub turn_id: Option<TurnId>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Close {
    pub child_run_id: RunId,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {}

#[derive(Debug, Clone, PartialEq)]
pub enum AgentOp {
    Spawn(Spawn),
    ParallelSpawn(Vec<Spawn>),
    Open(Open),
    Send(Send),
    Poll(Poll),
    Cancel(Cancel),
    Close(Close),
    List,
}

const OPS: &str = "spawn, parallel_spawn, open, send, poll, cancel, close, list";

impl AgentOp {
    /// Reads the tool's arguments. Bad input is a tool error, never the end of the run.
    pub fn parse(arguments: &Value) -> Result<Self, Fault> {
        let Value::Object(arguments) = arguments else {
            return Err(Fault::invalid("arguments", arguments, "an object with `op` and its fields"));
        };
        let mut rest = arguments.clone();
        let op = match rest.remove("op") {
            None => "spawn".to_owned(),
            Some(Value::String(op)) => op,
            Some(other) => return Err(Fault::invalid("op", other, OPS)),
        };
        match op.as_str() {
            "spawn" => fields(rest).map(Self::Spawn).and_then(checked_name),
            "parallel_spawn" => {
                let ParallelSpawn { spawns } = fields(rest)?;
                if !(1..=limits::MAX_PARALLEL_SPAWNS).contains(&spawns.len()) {
                    return Err(Fault::invalid("spawns", spawns.len(), "1 to 32 spawns"));
                }
                Ok(Self::ParallelSpawn(spawns))
            }
            "open" => fields(rest).map(Self::Open),
            "send" => fields(rest).map(Self::Send),
            "poll" => fields(rest).map(Self::Poll),
            "cancel" => fields(rest).map(Self::Cancel),
            "close" => fields(rest).map(Self::Close),
            "list" => fields::<List>(rest).map(|_| Self::List),
            other => Err(Fault::invalid("op", other, OPS)),
        }
    }
}

fn checked_name(op: AgentOp) -> Result<AgentOp, Fault> {
    match &op {
        AgentOp::Spawn(spawn) if spawn.name.is_empty() => Err(Fault::invalid("name", "", "the name of an agent")),
        _ => Ok(op),
    }
}

fn fields<T: DeserializeOwned>(rest: Map<String, Value>) -> Result<T, Fault> {
    hearth_types::decode("arguments", Value::Object(rest))
}

/// Carries out the `Agent` tool for a run. Every call is repeated after a crash with the same
/// context, and then finds what it started: ids of children and turns derive from (run, turn, call).
#[async_trait]
pub trait Delegate: std::marker::Send + Sync + 'static {
    async fn run(&self, context: &CallContext, op: AgentOp) -> Result<Value, Fault>;

    /// The sandbox overrides of the calling run and its ancestors, as they are now; the outermost first.
    async fn overrides(&self, context: &CallContext) -> Result<Vec<SandboxSpec>, Fault>;

    /// The calling turn was cut off while this call was under way.
    async fn abandon(&self, context: &CallContext, op: AgentOp);
}

#[cfg(test)]
mod tests {
    use hearth_types::FaultCode;
    use serde_json::json;

    use super::*;

    #[test]
    fn spawn_is_what_the_tool_does_unless_told_otherwise() {
        let op = AgentOp::parse(&json!({"name": "mock", "prompt": "hi"})).unwrap();
        assert!(matches!(op, AgentOp::Spawn(spawn) if spawn.name == "mock"));
    }

    #[test]
    fn bad_arguments_name_the_field() {
        for (arguments, named) in [
            (json!({"op": "opne"}), "op"),
            (json!({"op": "send", "prompt": "x"}), "child_run_id"),
            (json!({"op": "send", "child_run_id": "a/b", "prompt": "x"}), "id"),
            (json!({"op": "list", "extra": 1}), "extra"),
            (json!({"op": "parallel_spawn", "spawns": []}), "spawns"),
            (json!([1]), "arguments"),
        ] {
            let fault = AgentOp::parse(&arguments).unwrap_err();
            assert_eq!(fault.code, FaultCode::InvalidArgument);
            assert!(fault.message.contains(named), "{arguments}: {}", fault.message);
        }
    }
}
