//! Every metric of this crate.

use std::sync::LazyLock;

use hearth_telemetry::metrics::{self, HistogramVec, IntCounterVec, IntGauge};

pub static STEP_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    metrics::histogram_vec("hearth_step_seconds", "Time of one model step.", &["agent_kind"], metrics::LONG_SECONDS)
});

pub static TOOL_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
    let labels = ["tool", "result"];
    metrics::histogram_vec("hearth_tool_seconds", "Time of one tool call.", &labels, metrics::LONG_SECONDS)
});

pub static STEPS_WAITING: LazyLock<IntGauge> = LazyLock::new(|| {
    metrics::gauge("hearth_steps_waiting", "Turns that wait for a slot to make their next model step.")
});

pub static TOOL_FAULTS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec("hearth_tool_faults_total", "Tool calls that were refused or failed, by the code.", &["code"])
});
