//! The sandbox tools over MCP, for any client.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use futures::future::BoxFuture;
use hearth_mcp::{Options, SessionOptions, Tool, ToolAnnotations, Toolbox};
use hearth_sandbox::node::check_secrets;
use hearth_sandbox::{Caller, SharedSandboxes, tools};
use hearth_types::{Fault, SandboxId};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

const INSTRUCTIONS: &str = "Sandboxes on this machine: open a session, run commands and read and write files in its \
    /work, close it. A session is closed by itself when it was idle for long.";

const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
const MAX_BODY_MEMORY: usize = 256 * 1024 * 1024;
const MAX_REQUESTS: usize = 1_024;

/// What the operator sets for MCP.
#[derive(Debug, Clone, Copy)]
pub struct McpSettings {
    pub max_sessions: usize,
    pub session_idle: Duration,
    pub allow_env_injection: bool,
}

pub fn router(
    sandboxes: SharedSandboxes,
    settings: McpSettings,
    stop: CancellationToken,
    end: &CancellationToken,
) -> Router {
    let options = Options {
        name: "hearth-sandbox-node",
        version: env!("CARGO_PKG_VERSION"),
        instructions: INSTRUCTIONS,
        sessions: Some(SessionOptions { max: settings.max_sessions, idle: settings.session_idle }),
        max_requests: MAX_REQUESTS,
        max_body_bytes: MAX_BODY_BYTES,
        max_body_memory: MAX_BODY_MEMORY,
    };
    let offered = tools::tools().iter().map(offered).collect();
    let toolbox = SandboxTools { sandboxes, allow_env_injection: settings.allow_env_injection, offered };
    hearth_mcp::router(Arc::new(toolbox), &options, stop, end)
}

struct SandboxTools {
    sandboxes: SharedSandboxes,
    allow_env_injection: bool,
    offered: Vec<Tool>,
}

fn offered(spec: &tools::ToolSpec) -> Tool {
    let schema = spec.input_schema.as_object().cloned().unwrap_or_default();
    let reads = matches!(spec.name, "sandbox_poll" | "sandbox_read" | "sandbox_list" | "sandbox_touch");
    let annotations = ToolAnnotations::new().read_only(reads).open_world(false);
    Tool::new(spec.name, spec.description, schema).with_annotations(annotations)
}

#[async_trait]
impl Toolbox for SandboxTools {
    type Caller = Caller;

    fn tools(&self) -> &[Tool] {
        &self.offered
    }

    async fn call(&self, caller: &Caller, tool: &str, arguments: Value) -> Result<Value, Fault> {
        // Whatever the tool: a secret that would be dropped without a word is refused.
        check_secrets(&caller.secrets, self.allow_env_injection)?;
        Box::pin(tools::call(&*self.sandboxes, caller, tool, arguments)).await
    }

    /// A session that nobody was told of, and nobody could find again, is closed.
    fn if_unread(&self, caller: &Caller, tool: &str, result: &Value) -> Option<BoxFuture<'static, ()>> {
        let session = result["session_id"].as_str().filter(|_| tool == "sandbox_open")?;
        let session = SandboxId::parse(session).ok()?;
        let (sandboxes, caller) = (self.sandboxes.clone(), caller.clone());
        Some(Box::pin(async move { sandboxes.unclaimed(&caller, &session).await }))
    }
}
