//! Names of spans and of their fields, so that one question finds a run in logs, traces and
//! metrics alike.
//!
//! Use them as `info_span!(span::TURN, { field::RUN_ID } = %run)`. Names that start with `gen_ai.`
//! are the GenAI semantic conventions of OpenTelemetry, as are `http.`, `url.` and `error.`.

/// Names of spans.
pub mod span {
    /// One request of a gateway.
    pub const HTTP_REQUEST: &str = "http_request";
    /// A command on its way to the owner of a run.
    pub const ROUTE: &str = "route";
    /// A command that its owner decides and journals.
    pub const COMMAND: &str = "command";
    /// From loading a journal to the append that makes the activation effective.
    pub const ACTIVATE: &str = "activate";
    pub const APPEND: &str = "append";
    /// One turn; after a take-over a second span of the same trace.
    pub const TURN: &str = "invoke_agent";
    /// One model step.
    pub const MODEL: &str = "chat";
    /// One tool call.
    pub const TOOL: &str = "execute_tool";
    pub const SANDBOX_OPEN: &str = "sandbox_open";
    pub const SANDBOX_EXEC: &str = "sandbox_exec";
    pub const SANDBOX_CLOSE: &str = "sandbox_close";
}

/// Names of fields of spans and log lines.
pub mod field {
    pub const TRACE_ID: &str = "trace_id";
    pub const SPAN_ID: &str = "span_id";
    pub const RUN_ID: &str = "run_id";
    pub const ROOT_RUN_ID: &str = "root_run_id";
    pub const TURN_ID: &str = "turn_id";
    pub const CALL_ID: &str = "gen_ai.tool.call.id";
    pub const TOOL_NAME: &str = "gen_ai.tool.name";
    pub const AGENT_NAME: &str = "gen_ai.agent.name";
    pub const CONVERSATION_ID: &str = "gen_ai.conversation.id";
    pub const OPERATION_NAME: &str = "gen_ai.operation.name";
    pub const PROVIDER_NAME: &str = "gen_ai.provider.name";
    pub const REQUEST_MODEL: &str = "gen_ai.request.model";
    pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    pub const EPOCH: &str = "hearth.epoch";
    pub const STEP: &str = "hearth.step";
    pub const COMMAND: &str = "hearth.command";
    pub const OUTCOME: &str = "hearth.outcome";
    pub const TENANT: &str = "hearth.tenant";
    pub const REPLICA: &str = "hearth.replica";
    pub const NODE: &str = "hearth.node";
    pub const SANDBOX_SESSION_ID: &str = "hearth.sandbox.session_id";
    pub const EXEC_ID: &str = "hearth.sandbox.exec_id";
    pub const ISOLATION: &str = "hearth.sandbox.isolation";
    pub const EXIT_CODE: &str = "process.exit.code";
    pub const HTTP_METHOD: &str = "http.request.method";
    pub const HTTP_ROUTE: &str = "http.route";
    pub const HTTP_STATUS: &str = "http.response.status_code";
    pub const URL_PATH: &str = "url.path";
    /// The code of a fault.
    pub const ERROR_TYPE: &str = "error.type";
    /// What exporters show instead of the span's own name.
    pub const OTEL_NAME: &str = "otel.name";
    /// `server`, `client`, `producer`, `consumer` or `internal`.
    pub const OTEL_KIND: &str = "otel.kind";
    /// `OK` or `ERROR`.
    pub const OTEL_STATUS: &str = "otel.status_code";
}
