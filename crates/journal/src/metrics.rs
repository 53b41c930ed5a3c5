//! Every metric of this crate.

use std::sync::LazyLock;
use std::time::Duration;

use hearth_telemetry::metrics::{self, Histogram, IntCounter, IntCounterVec, IntGauge};

use crate::Error;

const BATCHES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

static APPEND_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    metrics::histogram(
        "hearth_journal_append_seconds",
        "From the call of an append to its answer.",
        metrics::FAST_SECONDS,
    )
});
static BATCH_APPENDS: LazyLock<Histogram> = LazyLock::new(|| {
    metrics::histogram("hearth_journal_batch_appends", "Appends that one commit made durable.", BATCHES)
});
static IN_PLACE: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter(
        "hearth_journal_in_place_total",
        "Appends that came alone and were committed by the thread that asked for them.",
    )
});
static QUEUE_DEPTH: LazyLock<IntGauge> =
    LazyLock::new(|| metrics::gauge("hearth_journal_queue_depth", "Appends that wait for their commit."));
static TRIMMED: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter("hearth_journal_trimmed_frames_total", "Frames before a log's floor that were removed.")
});
static ERRORS: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec(
        "hearth_journal_errors_total",
        "Journal operations that ended in an error, by its kind.",
        &["kind"],
    )
});

pub(crate) fn appended(took: Duration) {
    APPEND_SECONDS.observe(took.as_secs_f64());
}

#[allow(clippy::cast_precision_loss, reason = "a batch is far below 2^52")]
pub(crate) fn committed(appends: usize) {
    BATCH_APPENDS.observe(appends as f64);
}

/// One append, by the thread that asked for it.
pub(crate) fn committed_in_place() {
    BATCH_APPENDS.observe(1.0);
    IN_PLACE.inc();
}

#[cfg(test)]
pub(crate) fn in_place() -> u64 {
    IN_PLACE.get()
}

pub(crate) fn trimmed(frames: u64) {
    TRIMMED.inc_by(frames);
}

pub(crate) fn queued() {
    QUEUE_DEPTH.inc();
}

pub(crate) fn dequeued(appends: usize) {
    QUEUE_DEPTH.sub(i64::try_from(appends).unwrap_or(i64::MAX));
}

pub(crate) fn failed(error: &Error) {
    ERRORS.with_label_values(&[error.kind()]).inc();
}
