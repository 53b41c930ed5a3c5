//! The metrics registry, and how a metric is declared: once, in the one file of metrics of its crate.
//!
//! ```
//! use std::sync::LazyLock;
//! use hearth_telemetry::metrics::{self, HistogramVec};
//!
//! /// From the append of an accepted prompt to its acknowledgement.
//! pub static ACCEPT_SECONDS: LazyLock<HistogramVec> = LazyLock::new(|| {
//!     metrics::histogram_vec("hearth_accept_seconds", "Time to accept a turn.", &["surface"], metrics::FAST_SECONDS)
//! });
//!
//! ACCEPT_SECONDS.with_label_values(&["http"]).observe(0.003);
//! assert!(metrics::render().contains("hearth_accept_seconds_count{surface=\"http\"} 1"));
//! ```
//!
//! Label values come from small closed sets: no ids, no names that a caller chooses.

use std::sync::LazyLock;

use prometheus::core::Collector;
use prometheus::{HistogramOpts, Opts, TextEncoder};

pub use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

/// Appends, lookups and other steps that take from a tenth of a millisecond to a second.
pub const FAST_SECONDS: &[f64] =
    &[0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
/// Requests, opens, activations: from a millisecond to a minute.
pub const REQUEST_SECONDS: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Turns, model steps, commands in a sandbox: from ten milliseconds to hours.
pub const LONG_SECONDS: &[f64] =
    &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0];
/// Prompts, outputs, frames: from 256 bytes to 16 MiB.
pub const SIZE_BYTES: &[f64] = &[256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 16_777_216.0];

static OPEN_FILES: LazyLock<IntGauge> =
    LazyLock::new(|| gauge("hearth_open_files", "Files, sockets and pipes that this process has open."));
static MAX_OPEN_FILES: LazyLock<IntGauge> =
    LazyLock::new(|| gauge("hearth_max_open_files", "How many of them it may have; -1: as many as it likes."));

fn open_files() -> i64 {
    let count = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// How many files this process may have open; `None`: no limit, or none that is known.
pub fn max_open_files() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The content type of [`render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metrics of this process in the text format of Prometheus.
pub fn render() -> String {
    OPEN_FILES.set(open_files());
    MAX_OPEN_FILES.set(max_open_files().and_then(|most| most.try_into().ok()).unwrap_or(-1));
    let mut text = String::new();
    if let Err(error) = TextEncoder::new().encode_utf8(&prometheus::gather(), &mut text) {
        tracing::error!(%error, "the metrics could not be encoded");
    }
    text
}

pub fn histogram(name: &str, help: &str, buckets: &[f64]) -> Histogram {
    registered(name, Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())))
}

pub fn histogram_vec(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> HistogramVec {
    registered(name, HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets.to_vec()), labels))
}

pub fn counter(name: &str, help: &str) -> IntCounter {
    registered(name, IntCounter::new(name, help))
}

pub fn counter_vec(name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    registered(name, IntCounterVec::new(Opts::new(name, help), labels))
}

pub fn gauge(name: &str, help: &str) -> IntGauge {
    registered(name, IntGauge::new(name, help))
}

pub fn gauge_vec(name: &str, help: &str, labels: &[&str]) -> IntGaugeVec {
    registered(name, IntGaugeVec::new(Opts::new(name, help), labels))
}

/// A metric is a constant of the program: a name that is malformed or taken is a mistake that the
/// first test to touch it shows, and no state that a caller could handle.
#[allow(clippy::panic, reason = "a declaration that cannot hold is a bug of the program, found at its first use")]
fn registered<M: Collector + Clone + 'static>(name: &str, made: prometheus::Result<M>) -> M {
    let registered = made.and_then(|metric| prometheus::register(Box::new(metric.clone())).map(|()| metric));
    match registered {
        Ok(metric) => metric,
        Err(error) => panic!("the metric {name} is declared wrongly or twice: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_rendered_under_its_declared_name() {
        let requests = counter_vec("test_requests_total", "Requests.", &["class"]);
        requests.with_label_values(&["2xx"]).inc();
        let waits = histogram("test_wait_seconds", "Waits.", FAST_SECONDS);
        waits.observe(0.0003);
        let text = render();
        assert!(text.contains("test_requests_total{class=\"2xx\"} 1"), "{text}");
        assert!(text.contains("test_wait_seconds_bucket{le=\"0.0005\"} 1"), "{text}");
        assert!(text.contains("test_wait_seconds_bucket{le=\"0.00025\"} 0"), "{text}");
    }

    #[test]
    #[should_panic(expected = "declared wrongly or twice")]
    fn a_name_is_declared_once() {
        counter("test_twice_total", "One.");
        counter("test_twice_total", "Two.");
    }

    #[test]
    fn buckets_grow() {
        for buckets in [FAST_SECONDS, REQUEST_SECONDS, LONG_SECONDS, SIZE_BYTES] {
            assert!(buckets.is_sorted_by(|a, b| a < b));
        }
    }
}
