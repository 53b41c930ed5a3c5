//! The metrics of a node. Gauges are of all nodes in this process.

use std::sync::LazyLock;

use hearth_telemetry::metrics::{self, HistogramVec, IntCounter, IntCounterVec, IntGauge};

pub(crate) static OPEN_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    metrics::histogram_vec(
        "hearth_sandbox_open_seconds",
        "Time to open a sandbox session: `cold`, `warm` or `failed`.",
        &["outcome"],
        metrics::REQUEST_SECONDS,
    )
});

pub(crate) static EXEC_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    metrics::histogram_vec(
        "hearth_sandbox_exec_seconds",
        "Time of a command as its caller sees it: `zero`, `nonzero`, `timed_out` or `failed`.",
        &["outcome"],
        metrics::LONG_SECONDS,
    )
});

pub(crate) static SESSIONS: LazyLock<IntGauge> =
    LazyLock::new(|| metrics::gauge("hearth_sandbox_sessions", "Sessions that hold a place on this node."));

pub(crate) static EXECS: LazyLock<IntGauge> =
    LazyLock::new(|| metrics::gauge("hearth_sandbox_execs_running", "Commands under way."));

pub(crate) static CLOSED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec("hearth_sandbox_closed_total", "Sessions that are gone, by the reason.", &["reason"])
});

pub(crate) static LEFTOVERS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec(
        "hearth_sandbox_leftovers_total",
        "Containers and process groups of this node without a record, which were removed.",
        &["driver"],
    )
});

pub(crate) static WORKSPACE_STOPS: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter(
        "hearth_sandbox_workspace_stops_total",
        "Commands that were ended because their workspace grew past its limit.",
    )
});

pub(crate) static POOL_READY: LazyLock<IntGauge> =
    LazyLock::new(|| metrics::gauge("hearth_sandbox_pool_ready", "Sessions that are ready and nobody's yet."));

pub(crate) static POOL_EVENTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec(
        "hearth_sandbox_pool_total",
        "What became of the pool: `made`, `failed`, `taken`, `empty` (an open started cold), `dead`, `removed`.",
        &["event"],
    )
});
