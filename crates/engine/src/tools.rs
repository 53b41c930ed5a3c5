//! One tool call of a turn: the ceiling first, then the tool.

use std::sync::Arc;

use hearth_run_core::RunSpec;
use hearth_sandbox::{Caller, ExecArgs, KillArgs, OpenArgs, SharedSandboxes};
use hearth_types::{
    CallId, ExecId, Fault, FaultCode, RunId, SandboxSpec, ToolCall, ToolOutput, TraceContext, TurnId, derive_hex,
};
use serde_json::Value;

use crate::agent_tool::{AgentOp, Delegate};
use crate::metrics;
use crate::sandbox_tool;

/// The prefix of the sandbox tools' names inside a run.
const SANDBOX: &str = "mcp__sandbox__";

/// Whose call it is.
#[derive(Debug, Clone)]
pub struct CallContext {
    pub run: Arc<RunSpec>,
    pub turn_id: TurnId,
    pub call: ToolCall,
    pub trace: Option<TraceContext>,
}

impl CallContext {
    /// Names this call for ever: the same after every crash.
    pub fn derive(&self, purpose: &str) -> String {
        call_name(purpose, &self.run.run_id, &self.turn_id, &self.call.id)
    }

    fn exec_id(&self) -> Option<ExecId> {
        ExecId::parse(&format!("exec_{}", self.derive("exec"))).ok()
    }

    fn sandbox_caller(&self) -> Caller {
        Caller {
            principal: self.run.tenant.clone(),
            root_run: Some(self.run.root_run_id.clone()),
            run: Some(self.run.run_id.clone()),
            call: Some(self.derive("sandbox")),
            ..Caller::default()
        }
    }
}

/// The name of a tool call for a purpose.
pub fn call_name(purpose: &str, run: &RunId, turn: &TurnId, call: &CallId) -> String {
    derive_hex(&[purpose, run.as_str(), turn.as_str(), call.as_str()])
}

/// Runs tool calls. Cheap to clone.
#[derive(Clone)]
pub struct Tools {
    delegate: Arc<dyn Delegate>,
    sandboxes: SharedSandboxes,
}

impl Tools {
    pub fn new(delegate: Arc<dyn Delegate>, sandboxes: SharedSandboxes) -> Self {
        Self { delegate, sandboxes }
    }

    /// Runs a call, or goes on with it after a crash (`resumed`). Never fails: a refusal is a result.
    pub async fn run(&self, context: &CallContext, resumed: bool) -> ToolOutput {
        let name = context.call.name.as_str();
        let started = tokio::time::Instant::now();
        let known = name == "Agent" || is_sandbox_tool(name);
        let output = if !context.run.agent.admits(name) {
            refused(&Fault::new(
                FaultCode::ToolRefused,
                format!(
                    "the definition of {} does not admit the tool {name:?}; see its `tools`",
                    context.run.agent.name
                ),
            ))
        } else if !known {
            if resumed {
                ToolOutput::interrupted()
            } else {
                refused(&Fault::invalid("tool", name, "Agent, or one of the mcp__sandbox__ tools"))
            }
        } else {
            match self.dispatch(context).await {
                Ok(content) => ToolOutput::ok(content),
                Err(fault) => refused(&fault),
            }
        };
        let label = if known { name } else { "unknown" };
        let result = if output.is_error { "error" } else { "ok" };
        metrics::TOOL_SECONDS.with_label_values(&[label, result]).observe(started.elapsed().as_secs_f64());
        output
    }

    async fn dispatch(&self, context: &CallContext) -> Result<Value, Fault> {
        match context.call.name.strip_prefix(SANDBOX) {
            None => self.delegate.run(context, AgentOp::parse(&context.call.arguments)?).await,
            Some(tool) => {
                let overrides = self.delegate.overrides(context).await?;
                let arguments = sandbox_arguments(context, tool, &overrides)?;
                let needs = sandbox_tool::needs(&context.run, &overrides);
                let caller = Caller { needs, ..context.sandbox_caller() };
                hearth_sandbox::tools::call(&*self.sandboxes, &caller, tool, arguments).await
            }
        }
    }

    /// Ends what a call has started, because its turn was cut off.
    pub async fn abandon(&self, context: &CallContext) {
        match context.call.name.as_str() {
            "Agent" => {
                if let Ok(op) = AgentOp::parse(&context.call.arguments) {
                    self.delegate.abandon(context, op).await;
                }
            }
            "mcp__sandbox__sandbox_exec" => {
                let Ok(arguments) = sandbox_arguments(context, "sandbox_exec", &[]) else { return };
                let Ok(args) = hearth_sandbox::tools::decode::<ExecArgs>(arguments) else { return };
                let Some(exec_id) = args.exec_id else { return };
                let kill = KillArgs { session_id: args.session_id, exec_id };
                if let Err(fault) = self.sandboxes.kill(&context.sandbox_caller(), kill).await {
                    tracing::debug!(%fault, "a command of a cut-off turn could not be killed");
                }
            }
            _ => {}
        }
    }
}

/// Constrains an open by the run's definition and the overrides, and gives an exec its id.
fn sandbox_arguments(context: &CallContext, tool: &str, overrides: &[SandboxSpec]) -> Result<Value, Fault> {
    let mut arguments = context.call.arguments.clone();
    match tool {
        "sandbox_open" => {
            let args: OpenArgs = hearth_sandbox::tools::decode(arguments)?;
            let args = sandbox_tool::constrain(&context.run, overrides, args)?;
            serde_json::to_value(args).map_err(|error| Fault::internal(error.to_string()))
        }
        "sandbox_exec" => {
            if let Value::Object(fields) = &mut arguments
                && !fields.contains_key("exec_id")
                && let Some(exec_id) = context.exec_id()
            {
                fields.insert("exec_id".to_owned(), exec_id.as_str().into());
            }
            Ok(arguments)
        }
        _ => Ok(arguments),
    }
}

fn refused(fault: &Fault) -> ToolOutput {
    metrics::TOOL_FAULTS.with_label_values(&[fault.code.as_str()]).inc();
    ToolOutput::error(fault)
}

fn is_sandbox_tool(name: &str) -> bool {
    name.strip_prefix(SANDBOX).is_some_and(|tool| hearth_sandbox::tools::tools().iter().any(|spec| spec.name == tool))
}
