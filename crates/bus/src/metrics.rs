//! Every metric of this crate.

use std::sync::LazyLock;

use hearth_telemetry::metrics::{self, IntCounterVec};

static DROPPED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec(
        "hearth_bus_dropped_total",
        "Messages that a subscriber was too slow for, by the kind of subject.",
        &["subject"],
    )
});

pub(crate) fn dropped(subject: &'static str, messages: u64) {
    DROPPED.with_label_values(&[subject]).inc_by(messages);
}
