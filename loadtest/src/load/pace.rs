//! When calls begin.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Operation, Stage};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StagePace {
    /// So many callers, each at its next call when the one before is answered.
    Closed { users: u32 },
    /// So many calls begin in a second, whatever the answers do.
    Open { rate: f64 },
}

/// The time of a stage that counts: after the warm-up, and before what is left in flight has ended. As many
/// rounds reach into it from before as reach out of it, so that long ones do not count as lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub from: Instant,
    pub until: Instant,
}

impl Window {
    pub(super) fn holds(self, at: Instant) -> bool {
        self.from <= at && at < self.until
    }
}

/// Rates that grow by the same factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ramp {
    from: f64,
    to: f64,
    steps: u32,
}

impl Ramp {
    pub(crate) fn rates(&self) -> Vec<f64> {
        let factor = (self.to / self.from).powf(1.0 / f64::from(self.steps.saturating_sub(1).max(1)));
        (0..self.steps).map(|step| self.from * factor.powf(f64::from(step))).collect()
    }
}

pub(super) fn ramp(text: &str) -> Result<Ramp, String> {
    let parsed = || {
        let mut parts = text.split(':');
        let from = parts.next()?.parse::<f64>().ok()?;
        let to = parts.next()?.parse::<f64>().ok()?;
        let steps = parts.next()?.parse::<u32>().ok()?;
        let fits = from >= 0.01 && from < to && to <= 200_000.0 && (2..=50).contains(&steps);
        (parts.next().is_none() && fits).then_some(Ramp { from, to, steps })
    };
    parsed().ok_or_else(|| "FROM:TO:STEPS, such as 50:5000:10: FROM below TO, 2 to 50 steps".to_owned())
}

/// The moments at which calls are to begin, by a thread of its own: the timers of the runtime are a
/// millisecond coarse, which would count as the target's. A moment that passed while nobody could begin
/// is given late and not left out.
pub(super) fn moments(rate: f64, span: Duration) -> mpsc::Receiver<Instant> {
    let (give, given) = mpsc::channel(1_024);
    std::thread::spawn(move || {
        let began = Instant::now();
        let mut number = 0_u32;
        loop {
            let after = Duration::from_secs_f64(f64::from(number) / rate);
            if after >= span {
                return;
            }
            let moment = began + after;
            std::thread::sleep(moment.saturating_duration_since(Instant::now()));
            if give.blocking_send(moment).is_err() {
                return;
            }
            number += 1;
        }
    });
    given
}

/// How many calls an open stage should have begun.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bounded, positive count")]
pub(super) fn planned(rate: f64, span: Duration) -> u64 {
    (rate * span.as_secs_f64()).ceil() as u64
}

/// Whether the target no longer kept up: calls left over, errors, or times beyond the limit.
pub(super) fn is_saturated(stage: &Stage, limit_ms: f64) -> bool {
    let offered = stage.offered_per_s.unwrap_or(0.0);
    let answered: u64 = stage.operations.iter().map(|operation| operation.count).sum();
    let failed = stage.operations.iter().map(Operation::failed).sum::<u64>() + stage.cut_off;
    stage.achieved_per_s < offered * 0.95
        || failed * 100 > answered + failed
        || stage.operations.iter().any(|operation| operation.ms.p99 > limit_ms)
}

/// The highest rate that was kept up with.
pub(super) fn sustained(stages: &[Stage], limit_ms: f64) -> Option<f64> {
    let kept = |stage: &&Stage| !is_saturated(stage, limit_ms);
    stages.iter().filter(kept).map(|stage| stage.achieved_per_s).reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_moment_that_nobody_could_begin_at_is_given_late_and_not_left_out() {
        let mut moments = moments(2_000.0, Duration::from_millis(100));
        let first = moments.recv().await.unwrap();
        // Whoever drives is held up for longer than all of it lasts.
        std::thread::sleep(Duration::from_millis(150));
        let mut all = vec![first];
        while let Some(moment) = moments.recv().await {
            all.push(moment);
        }
        assert_eq!(all.len(), 200);
        let gaps: Vec<Duration> = all.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap < Duration::from_millis(1)), "evenly as planned: {gaps:?}");
    }
}
