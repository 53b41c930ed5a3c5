//! The metrics of the MCP surface.

use std::sync::LazyLock;

use hearth_telemetry::metrics::{self, IntCounterVec, IntGauge};

pub(crate) static SESSIONS: LazyLock<IntGauge> =
    LazyLock::new(|| metrics::gauge("hearth_mcp_sessions", "MCP sessions that clients have begun and not ended."));

pub(crate) static CALLS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec(
        "hearth_mcp_calls_total",
        "Tool calls over MCP: `ok`, or the code of the refusal.",
        &["outcome"],
    )
});

pub(crate) static REFUSED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec(
        "hearth_mcp_refused_total",
        "Requests that found no room: `requests` or `sessions`.",
        &["reason"],
    )
});
