//! The metrics of the HTTP surface.

use std::sync::LazyLock;

use hearth_telemetry::metrics::{self, HistogramVec, IntCounter, IntCounterVec, IntGauge};

/// Until the head of the answer; `class` is `2xx` to `5xx`, or `gone` when the client went away first.
pub static REQUEST_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    metrics::histogram_vec(
        "hearth_http_request_seconds",
        "Time from the head of a request to the head of its answer.",
        &["method", "route", "class"],
        metrics::REQUEST_SECONDS,
    )
});

pub static REQUESTS_IN_FLIGHT: LazyLock<IntGauge> =
    LazyLock::new(|| metrics::gauge("hearth_http_requests_in_flight", "Requests whose answer has not begun."));

pub static CONNECTIONS: LazyLock<IntGauge> =
    LazyLock::new(|| metrics::gauge("hearth_http_connections", "Open client connections."));

pub static STREAMS: LazyLock<IntGauge> = LazyLock::new(|| metrics::gauge("hearth_http_streams", "Open event streams."));

/// Every bound that a request can meet answers with its code, and so is counted here.
pub static FAULTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec("hearth_http_faults_total", "Requests that were refused or failed, by the code.", &["code"])
});

/// `reason`: `requests`, `waits`, `streams`, `bodies`, `connections`, `files`.
pub static SHED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec("hearth_http_shed_total", "Requests refused because a bound was reached.", &["reason"])
});

/// Readers of event streams that were cut because they did not keep up.
pub static STREAMS_CUT: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter("hearth_http_streams_cut_total", "Event streams cut because their reader did not keep up.")
});

/// Connections closed because a write stood still.
pub static CONNECTIONS_STALLED: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter("hearth_http_connections_stalled_total", "Connections closed because a write stood still.")
});
