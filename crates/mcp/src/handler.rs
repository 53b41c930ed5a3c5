//! From MCP's requests to the toolbox, and back.

use std::sync::Arc;

use axum::http::request::Parts;
use hearth_telemetry::names::field;
use hearth_types::{Fault, FaultCode, TraceContext};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, ErrorCode, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use crate::metrics::CALLS;
use crate::receipt::Receipt;
use crate::{Options, Toolbox};

pub(crate) struct Handler<T> {
    pub toolbox: Arc<T>,
    pub options: Options,
    /// Places for calls. A call goes on when its client has gone away, so that the places for requests
    /// do not bound it.
    pub calls: Arc<Semaphore>,
}

impl<T: Toolbox> Handler<T> {
    async fn answer(&self, caller: &T::Caller, tool: &str, arguments: Value) -> Result<Value, Fault> {
        let Ok(_place) = self.calls.try_acquire() else {
            let message = "as many calls are under way as this server takes; try again";
            return Err(Fault::new(FaultCode::QueueFull, message));
        };
        self.toolbox.call(caller, tool, arguments).await
    }
}

fn span(parts: &Parts, tool: &str) -> tracing::Span {
    let span = tracing::info_span!(
        "mcp.call",
        { field::TOOL_NAME } = tool,
        { field::OTEL_KIND } = "server",
        { field::ERROR_TYPE } = tracing::field::Empty,
    );
    let parent = parts.headers.get("traceparent").and_then(|value| value.to_str().ok());
    if let Some(parent) = parent.and_then(TraceContext::parse) {
        hearth_telemetry::set_parent(&span, &parent);
    }
    span
}

impl<T: Toolbox> ServerHandler for Handler<T> {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(self.options.name, self.options.version))
            .with_instructions(self.options.instructions)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.toolbox.tools().iter().find(|tool| tool.name == name).cloned()
    }

    async fn on_initialized(&self, _context: NotificationContext<RoleServer>) {}

    /// What the protocol could not read as any of its requests. A method that it has was given the wrong
    /// parameters then, and is not missing.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let wrong = match request.method.as_str() {
            "tools/call" => "`params` is an object with `name`, a string, and `arguments`, an object or absent",
            "tools/list" => "`params` is an object with `cursor`, a string, or absent",
            "initialize" => "`params` is an object with `protocolVersion`, `capabilities` and `clientInfo`",
            _ => return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)),
        };
        Err(ErrorData::invalid_params(format!("{}: {wrong}", request.method), None))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.toolbox.tools().to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.get_tool(&request.name) else {
            let known: Vec<&str> = self.toolbox.tools().iter().map(|tool| &*tool.name).collect();
            let message = format!("there is no tool of this name; there are: {}", known.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let parts = context.extensions.get::<Parts>();
        let Some((parts, caller)) = parts.and_then(|parts| Some((parts, parts.extensions.get::<T::Caller>()?))) else {
            return Err(ErrorData::internal_error("the request does not say who calls", None));
        };
        let span = span(parts, &tool.name);
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let call = self.answer(caller, &tool.name, arguments).instrument(span.clone());
        let outcome = tokio::select! {
            // A call that arrived is begun, even if its client has gone away already.
            biased;
            outcome = call => outcome,
            // Nobody reads the answer to a call that was cancelled.
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the call was cancelled", None)),
        };
        Ok(match outcome {
            Ok(value) => {
                CALLS.with_label_values(&["ok"]).inc();
                if let Some(receipt) = parts.extensions.get::<Receipt>()
                    && let Some(unread) = self.toolbox.if_unread(caller, &tool.name, &value)
                {
                    receipt.answered(unread);
                }
                CallToolResult::structured(value)
            }
            Err(fault) => {
                CALLS.with_label_values(&[fault.code.as_str()]).inc();
                span.record(field::ERROR_TYPE, fault.code.as_str());
                CallToolResult::structured_error(fault.to_body())
            }
        }
        .into())
    }
}
