//! `/mcp`: the `Agent` tool for any client that has a token. No request needs what another one left behind, so
//! that each may go to another replica.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use hearth_api::Caller;
use hearth_engine::{AgentOp, agent_tool};
use hearth_mcp::{Options, Owner, Tool, Toolbox};
use hearth_types::{Fault, FaultCode, Principal, limits};
use serde_json::Value;

use super::call::RequestTrace;
use super::gateway::Gateway;
use super::{disconnect, layers};

const INSTRUCTIONS: &str = "Agents that stay: open one, send it work for as long as you like, close it. Or spawn \
    one for a single answer.";

/// The route, with its own check of who calls.
pub fn router(gateway: &Gateway) -> Router {
    let bounds = gateway.options();
    let options = Options {
        name: "hearth",
        version: env!("CARGO_PKG_VERSION"),
        instructions: INSTRUCTIONS,
        sessions: None,
        max_requests: bounds.max_concurrent_requests,
        max_body_bytes: limits::MAX_BODY_BYTES,
        max_body_memory: bounds.max_body_memory,
    };
    let toolbox = Arc::new(AgentToolbox { gateway: gateway.clone(), offered: offered() });
    hearth_mcp::router(toolbox, &options, gateway.closing().clone(), gateway.expired())
        .layer(from_fn(name_caller))
        .layer(from_fn_with_state(gateway.clone(), layers::identify))
}

fn offered() -> Vec<Tool> {
    let tool = agent_tool();
    let schema = tool.parameters.as_object().cloned().unwrap_or_default();
    vec![Tool::new(tool.name, tool.description, schema)]
}

/// Says who calls in the words of the protocol's code, and goes on with the trace of the request.
async fn name_caller(mut request: Request, next: Next) -> Response {
    let extensions = request.extensions_mut();
    let trace = extensions.get::<RequestTrace>().map(|trace| trace.0.clone());
    if let Some(principal) = extensions.get::<Principal>().cloned() {
        extensions.insert(Owner(format!("{}/{}", principal.tenant, principal.subject)));
        extensions.insert(Caller { principal, run: None, key: None, trace: trace.clone() });
    }
    if let Some(header) = trace.and_then(|trace| HeaderValue::from_str(trace.as_str()).ok()) {
        request.headers_mut().insert("traceparent", header);
    }
    next.run(request).await
}

struct AgentToolbox {
    gateway: Gateway,
    offered: Vec<Tool>,
}

#[async_trait]
impl Toolbox for AgentToolbox {
    type Caller = Caller;

    fn tools(&self) -> &[Tool] {
        &self.offered
    }

    /// A client that goes away leaves the turn running.
    async fn call(&self, caller: &Caller, _tool: &str, arguments: Value) -> Result<Value, Fault> {
        let op = AgentOp::parse(&arguments)?;
        let held = waits(&op).then(|| self.gateway.enter_wait()).transpose()?;
        let (hearth, caller) = (self.gateway.hearth().clone(), caller.clone());
        let command = async move { hearth.agent_call(&caller, op).await };
        disconnect::run(&self.gateway, "mcp", held, command).await.map_err(shown)
    }
}

/// Whether the call may wait for a turn.
fn waits(op: &AgentOp) -> bool {
    match op {
        AgentOp::Spawn(_) | AgentOp::ParallelSpawn(_) | AgentOp::Open(_) | AgentOp::Send(_) => true,
        AgentOp::Poll(poll) => poll.timeout_ms.is_some_and(|wait| wait > 0),
        AgentOp::Cancel(_) | AgentOp::Close(_) | AgentOp::List => false,
    }
}

/// What an internal fault says stays in the log; what a turn has said is shown.
fn shown(fault: Fault) -> Fault {
    if fault.code != FaultCode::Internal || fault.details.is_some() {
        return fault;
    }
    tracing::error!(%fault, "a call over MCP failed inside");
    Fault::internal("something went wrong inside Hearth; report it with the trace id of the answer")
}
