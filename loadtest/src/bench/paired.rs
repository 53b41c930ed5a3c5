//! Two kinds of work in turns, so that what else the machine does falls on both alike.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::figure::Measured;
use crate::Error;
use crate::latencies::{Latencies, middle};

/// One side of a comparison, over all rounds and for each.
#[derive(Debug, Default)]
pub(crate) struct Side {
    all: Latencies,
    rounds: Vec<Latencies>,
}

impl Side {
    /// Does the work a number of times and keeps how long each took.
    pub(crate) async fn round(
        &mut self,
        times: u64,
        mut work: impl AsyncFnMut(u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut round = Latencies::default();
        for number in 0..times {
            let began = Instant::now();
            work(number).await?;
            round.record(began.elapsed());
        }
        self.keep(round);
        Ok(())
    }

    /// The same by a caller that is a task of its own: one outside of the runtime is woken by another thread each time.
    pub(crate) async fn calls(&mut self, times: u64, call: &Caller) -> Result<(), Error> {
        let (call, before) = (call.clone(), self.count());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut round = Latencies::default();
            for number in 0..times {
                let began = Instant::now();
                call(0, before + number).await?;
                round.record(began.elapsed());
            }
            Ok::<_, Error>(round)
        });
        let ended = task.join_next().await.unwrap_or_else(|| Ok(Ok(Latencies::default())));
        self.keep(ended.map_err(|error| Error::program("a caller", error.to_string()))??);
        Ok(())
    }

    pub(crate) fn keep(&mut self, round: Latencies) {
        self.all.merge(&round);
        self.rounds.push(round);
    }

    pub(crate) fn ms(&self, quantile: f64) -> f64 {
        self.all.ms(quantile)
    }

    pub(crate) fn count(&self) -> u64 {
        self.all.len()
    }

    /// Ours at a quantile over the floor at the same, with the noise of the rounds.
    pub(crate) fn over(&self, floor: &Self, quantile: f64) -> Measured {
        let ratios: Vec<f64> = self
            .rounds
            .iter()
            .zip(&floor.rounds)
            .map(|(ours, floor)| ours.ms(quantile) / floor.ms(quantile).max(1e-6))
            .collect();
        compare(self.ms(quantile), floor.ms(quantile), &ratios)
    }
}

pub(crate) fn compare(value: f64, floor: f64, ratios: &[f64]) -> Measured {
    let (ratio, spread) = middle(ratios).unwrap_or_default();
    let known = !ratios.is_empty() && ratio > 0.0;
    Measured {
        value,
        floor: Some(floor),
        ratio: known.then_some(ratio),
        noise: (known && ratios.len() > 2).then(|| spread / ratio),
        remark: None,
    }
}

/// Work of one of many callers: its number, and how often it has worked before.
pub(crate) type Caller = Arc<dyn Fn(u64, u64) -> BoxFuture<'static, Result<(), Error>> + Send + Sync>;

/// A caller whose call failed lets the other side breathe.
const PAUSE: Duration = Duration::from_millis(50);

/// Many callers, each at its next call as soon as the one before is answered, for a time: answers a second.
/// A hundredth of the calls may fail; they are not counted.
pub(crate) async fn crowd(callers: u64, span: Duration, before: &[AtomicU64], call: &Caller) -> Result<f64, Error> {
    let began = Instant::now();
    let until = began + span;
    let mut tasks = JoinSet::new();
    for caller in 0..callers {
        let call = call.clone();
        let count = before.get(usize::try_from(caller).unwrap_or(0));
        let first = count.map_or(0, |count| count.load(Ordering::Relaxed));
        tasks.spawn(async move {
            let (mut tried, mut failed, mut why) = (0, 0, None);
            while Instant::now() < until {
                if let Err(error) = call(caller, first + tried).await {
                    failed += 1;
                    why = Some(error);
                    tokio::time::sleep(PAUSE).await;
                }
                tried += 1;
            }
            (caller, tried, failed, why)
        });
    }
    let (mut tried, mut failed, mut why) = (0, 0, None);
    while let Some(ended) = tasks.join_next().await {
        let (caller, its_tries, its_failures, its_why) =
            ended.map_err(|error| Error::program("a caller", error.to_string()))?;
        if let Some(count) = before.get(usize::try_from(caller).unwrap_or(0)) {
            count.fetch_add(its_tries, Ordering::Relaxed);
        }
        tried += its_tries;
        failed += its_failures;
        why = its_why.or(why);
    }
    match why {
        Some(error) if failed * 100 > tried => {
            Err(Error::Answer(format!("{failed} of {tried} calls failed, one with: {error}")))
        }
        #[allow(clippy::cast_precision_loss, reason = "a count of calls")]
        _ => Ok((tried - failed) as f64 / began.elapsed().as_secs_f64()),
    }
}

/// Two crowds in turns: calls a second of ours over those of the floor.
pub(crate) async fn crowds(
    callers: u64,
    rounds: u32,
    span: Duration,
    ours: &Caller,
    floor: &Caller,
) -> Result<Measured, Error> {
    let counts = || (0..callers).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
    let (our_counts, floor_counts) = (counts(), counts());
    let (mut our_rates, mut floor_rates) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let our_rate = crowd(callers, span, &our_counts, ours).await?;
        let floor_rate = crowd(callers, span, &floor_counts, floor).await?;
        // The first round warms both up.
        if round > 0 {
            our_rates.push(our_rate);
            floor_rates.push(floor_rate);
        }
    }
    let ratios: Vec<f64> = our_rates.iter().zip(&floor_rates).map(|(ours, floor)| ours / floor.max(1e-6)).collect();
    let of = |rates: &[f64]| middle(rates).map_or(0.0, |(middle, _)| middle);
    Ok(compare(of(&our_rates), of(&floor_rates), &ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_ratio_is_the_middle_of_the_rounds_and_not_moved_by_one_of_them() {
        let (mut ours, mut floor) = (Side::default(), Side::default());
        for round in 0..5 {
            let disturbed = if round == 2 { 50 } else { 2 };
            ours.round(20, async |_| {
                tokio::time::sleep(Duration::from_millis(disturbed)).await;
                Ok(())
            })
            .await
            .unwrap();
            floor
                .round(20, async |_| {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    Ok(())
                })
                .await
                .unwrap();
        }
        let measured = ours.over(&floor, 0.5);
        assert!((measured.ratio.unwrap() - 2.0).abs() < 0.1, "{measured:?}");
        assert!(measured.noise.unwrap() < 0.1, "{measured:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_counts_what_was_answered() {
        let call: Caller = Arc::new(|_, _| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(())
            })
        });
        let rate = crowd(4, Duration::from_secs(1), &[], &call).await.unwrap();
        assert!((rate - 400.0).abs() < 20.0, "{rate}");
    }
}
