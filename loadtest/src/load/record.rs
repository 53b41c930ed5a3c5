//! What happened, by operation: times, errors by code, and how it went second by second.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::outcome::{Mark, Operation, Tick, Times};
use crate::latencies::Latencies;

#[derive(Debug, Default)]
struct Kept {
    latency: Latencies,
    service: Latencies,
    errors: BTreeMap<String, u64>,
    second: Latencies,
    second_errors: u64,
    timeline: Vec<Tick>,
}

#[derive(Debug, Default)]
struct Table {
    /// What was to begin before this is warm-up and not kept.
    from: Option<Instant>,
    operations: BTreeMap<&'static str, Kept>,
    seconds: u32,
    marks: Vec<Mark>,
}

/// Shared by all callers.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<Table>);

/// The moments of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moments {
    /// When it was to begin.
    pub intended: Instant,
    pub began: Instant,
    pub ended: Instant,
}

impl Recorder {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything; keeps what is to begin from then on.
    pub(crate) fn restart(&self, from: Instant) {
        *self.table() = Table { from: Some(from), ..Table::default() };
    }

    pub(crate) fn record(&self, operation: &'static str, moments: Moments, failed: Option<&str>) {
        let mut table = self.table();
        if table.from.is_some_and(|from| moments.intended < from) {
            return;
        }
        let kept = table.operations.entry(operation).or_default();
        if let Some(code) = failed {
            *kept.errors.entry(code.to_owned()).or_default() += 1;
            kept.second_errors += 1;
            return;
        }
        let latency = moments.ended.saturating_duration_since(moments.intended);
        kept.latency.record(latency);
        kept.second.record(latency);
        kept.service.record(moments.ended.saturating_duration_since(moments.began));
    }

    /// Something that was done to the target now.
    pub(crate) fn mark(&self, what: String) {
        let mut table = self.table();
        let second = table.from.map_or(0.0, |from| from.elapsed().as_secs_f64());
        table.marks.push(Mark { second, what });
    }

    pub(crate) fn marks(&self) -> Vec<Mark> {
        self.table().marks.clone()
    }

    /// Ends the last second if most of it has passed: whoever ticks may have been ended a moment before.
    pub(crate) fn end(&self) {
        let (from, seconds) = {
            let table = self.table();
            (table.from, table.seconds)
        };
        if from.is_some_and(|from| from.elapsed().as_secs_f64() > f64::from(seconds) + 0.5) {
            self.tick();
        }
    }

    /// Ends a second; a line of it for the screen.
    pub(crate) fn tick(&self) -> String {
        let mut table = self.table();
        table.seconds += 1;
        let second = table.seconds;
        let mut said = Vec::new();
        for (name, kept) in &mut table.operations {
            let tick = Tick {
                second,
                count: kept.second.len(),
                errors: kept.second_errors,
                p50: kept.second.ms(0.5),
                p99: kept.second.ms(0.99),
                max: kept.second.max_ms(),
            };
            let errors = if tick.errors > 0 { format!(" {} ERRORS", tick.errors) } else { String::new() };
            said.push(format!("{name} {}/s {:.1}/{:.1} ms{errors}", tick.count, tick.p50, tick.p99));
            kept.timeline.push(tick);
            kept.second = Latencies::default();
            kept.second_errors = 0;
        }
        said.join("  ")
    }

    pub(crate) fn operations(&self, span: Duration) -> Vec<Operation> {
        let table = self.table();
        let operation = |(name, kept): (&&'static str, &Kept)| Operation {
            name: (*name).to_owned(),
            count: kept.latency.len(),
            #[allow(clippy::cast_precision_loss, reason = "a count of calls")]
            per_s: kept.latency.len() as f64 / span.as_secs_f64().max(1e-9),
            ms: Times::of(&kept.latency),
            service_ms: Times::of(&kept.service),
            errors: kept.errors.clone(),
            curve: kept.latency.curve(),
            timeline: kept.timeline.clone(),
        };
        table.operations.iter().map(operation).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(origin: Instant, intended: u64, began: u64, ended: u64) -> Moments {
        let at = |ms| origin + Duration::from_millis(ms);
        Moments { intended: at(intended), began: at(began), ended: at(ended) }
    }

    #[test]
    fn a_time_counts_from_the_moment_at_which_the_call_was_to_begin() {
        let (recorder, origin) = (Recorder::default(), Instant::now());
        recorder.record("send", moments(origin, 0, 90, 100), None);
        let operation = &recorder.operations(Duration::from_secs(1))[0];
        assert!((operation.ms.p50 - 100.0).abs() < 1.0 && (operation.service_ms.p50 - 10.0).abs() < 1.0);
    }

    #[test]
    fn warm_up_is_not_kept_and_errors_are_counted_by_code() {
        let (recorder, origin) = (Recorder::default(), Instant::now());
        recorder.restart(origin + Duration::from_millis(10));
        recorder.record("send", moments(origin, 0, 0, 5), None);
        recorder.record("send", moments(origin, 20, 20, 25), Some("queue_full"));
        recorder.record("send", moments(origin, 30, 30, 35), None);
        let operation = &recorder.operations(Duration::from_secs(1))[0];
        assert_eq!((operation.count, operation.errors.get("queue_full")), (1, Some(&1)));
    }
}
