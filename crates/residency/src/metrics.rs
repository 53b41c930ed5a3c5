//! Every metric of this crate.

use std::sync::LazyLock;

use hearth_telemetry::metrics::{self, Histogram, IntCounter, IntCounterVec, IntGauge};

pub static OPEN_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    metrics::histogram(
        "hearth_open_seconds",
        "Time to create a run, until its first frame stands.",
        metrics::FAST_SECONDS,
    )
});

pub static ACCEPT_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    metrics::histogram("hearth_accept_seconds", "Time to accept an input, until it stands.", metrics::FAST_SECONDS)
});

pub static TURN_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    metrics::histogram("hearth_turn_seconds", "Time of a turn, from its start to its end.", metrics::LONG_SECONDS)
});

pub static TURNS_ENDED: LazyLock<IntCounterVec> =
    LazyLock::new(|| metrics::counter_vec("hearth_turns_ended_total", "Turns that ended, by outcome.", &["outcome"]));

pub static ACTIVATE_SECONDS: LazyLock<Histogram> = LazyLock::new(|| {
    metrics::histogram(
        "hearth_activate_seconds",
        "Time to read a journal and take its run over.",
        metrics::FAST_SECONDS,
    )
});

pub static ACTIVE: LazyLock<IntGauge> =
    LazyLock::new(|| metrics::gauge("hearth_residents_active", "Activations in the memory of this replica."));

pub static TURNS_RUNNING: LazyLock<IntGauge> =
    LazyLock::new(|| metrics::gauge("hearth_turns_running", "Turns that this replica runs now."));

pub static STEPPED_DOWN: LazyLock<IntCounterVec> = LazyLock::new(|| {
    metrics::counter_vec("hearth_stepped_down_total", "Activations that gave up their run, by reason.", &["reason"])
});

pub static SHED: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter("hearth_commands_shed_total", "Commands refused because too many wait for one run.")
});

pub static ACTIVATION_FAILURES: LazyLock<IntCounter> =
    LazyLock::new(|| metrics::counter("hearth_activation_failures_total", "Activations that could not be begun."));

pub static SNAPSHOTS: LazyLock<IntCounter> =
    LazyLock::new(|| metrics::counter("hearth_snapshots_total", "Snapshots that were written into journals."));

pub static QUOTA_REFUSED: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter("hearth_quota_refused_total", "Runs that were not opened because their tenant has too many.")
});

pub static QUOTA_APPROXIMATE: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter(
        "hearth_quota_approximate_total",
        "Looks at a tenant's quota while the registry did not know for certain how many runs it has.",
    )
});

pub static FOLDED_FRAMES: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter("hearth_folded_frames_total", "Frames removed from journals, as a snapshot made them superfluous.")
});

pub static FOLD_FAILURES: LazyLock<IntCounter> =
    LazyLock::new(|| metrics::counter("hearth_fold_failures_total", "Foldings that are left to the next snapshot."));

pub static TURN_LOOKUPS: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter("hearth_turn_lookups_total", "Turns for which a run's history was read: they ended too long ago.")
});

pub static SHORTENED: LazyLock<IntCounter> = LazyLock::new(|| {
    metrics::counter("hearth_journals_shortened_total", "Journals found shorter than what they acknowledged: an alarm.")
});
