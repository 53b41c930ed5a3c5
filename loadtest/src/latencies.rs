//! Times, kept as a histogram: small, mergeable, and exact to three digits.

use std::time::Duration;

use hdrhistogram::Histogram;

#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    #[allow(clippy::expect_used, reason = "one to five digits are allowed")]
    fn default() -> Self {
        Self(Histogram::new(3).expect("three digits are allowed"))
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        // It grows to hold any time that can be measured.
        self.0.record(nanos).ok();
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        // It resizes itself, and two digits of the same kind always fit.
        self.0.add(&other.0).ok();
    }

    pub(crate) fn len(&self) -> u64 {
        self.0.len()
    }

    /// Milliseconds at a quantile; zero when nothing was recorded.
    pub(crate) fn ms(&self, quantile: f64) -> f64 {
        millis(self.0.value_at_quantile(quantile))
    }

    pub(crate) fn max_ms(&self) -> f64 {
        millis(self.0.max())
    }

    pub(crate) fn mean_ms(&self) -> f64 {
        self.0.mean() / 1e6
    }

    /// Points of the curve of quantiles, closer to each other the nearer they are to the end.
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        const QUANTILES: [f64; 17] =
            [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9995, 0.9999];
        // Past the slowest call there is nothing to see.
        #[allow(clippy::cast_precision_loss, reason = "a count of calls")]
        let known = |quantile: &&f64| self.len() as f64 * (1.0 - **quantile) >= 0.999;
        QUANTILES.iter().filter(known).map(|quantile| (*quantile, self.ms(*quantile))).collect()
    }
}

#[allow(clippy::cast_precision_loss, reason = "a time far below 2^52 nanoseconds")]
fn millis(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

/// The middle value, and half the distance between the quarters beside it.
pub(crate) fn middle(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let index = ((sorted.len() - 1) as f64 * share).round() as usize;
        sorted.get(index).copied().unwrap_or_default()
    };
    Some((at(0.5), (at(0.75) - at(0.25)) / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_to_three_digits_and_merge() {
        let (mut low, mut high) = (Latencies::default(), Latencies::default());
        (1..=500).for_each(|ms| low.record(Duration::from_millis(ms)));
        (501..=1_000).for_each(|ms| high.record(Duration::from_millis(ms)));
        low.merge(&high);
        assert_eq!(low.len(), 1_000);
        assert!((low.ms(0.5) - 500.0).abs() < 1.0, "{}", low.ms(0.5));
        assert!((low.ms(0.99) - 990.0).abs() < 1.5, "{}", low.ms(0.99));
        assert!(low.curve().windows(2).all(|pair| pair[0].1 <= pair[1].1));
    }

    #[test]
    fn the_middle_is_not_moved_by_one_that_is_far_off() {
        let (middle, spread) = middle(&[1.0, 1.1, 0.9, 1.0, 50.0]).unwrap();
        assert!((middle - 1.0).abs() < 1e-9 && spread < 0.1, "{middle} {spread}");
    }
}
