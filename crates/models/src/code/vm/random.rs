//! Random numbers that come out the same whenever a turn runs again.

use std::cell::Cell;

/// xoroshiro128++ (Blackman and Vigna, 2019). Its state is the seed, so that programs of different
/// turns see unrelated numbers. Not for secrets.
#[derive(Debug)]
pub(super) struct Random {
    state: Cell<(u64, u64)>,
}

impl Random {
    /// `seed` is 32 hex digits, as [`hearth_types::derive_hex`] gives them.
    pub fn from_hex(seed: &str) -> Self {
        let bits = u128::from_str_radix(seed, 16).unwrap_or(0);
        // The one state that the generator never leaves.
        let bits = if bits == 0 { 1 } else { bits };
        #[allow(clippy::cast_possible_truncation, reason = "the two halves")]
        let state = ((bits >> 64) as u64, bits as u64);
        Self { state: Cell::new(state) }
    }

    /// A number from 0 up to, and without, 1.
    pub fn next(&self) -> f64 {
        let (low, mut high) = self.state.get();
        let out = low.wrapping_add(high).rotate_left(17).wrapping_add(low);
        high ^= low;
        self.state.set((low.rotate_left(49) ^ high ^ (high << 21), high.rotate_left(28)));
        #[allow(clippy::cast_precision_loss, reason = "53 bits are exact in a double")]
        let fraction = (out >> 11) as f64;
        fraction / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_spread_of_numbers_every_time() {
        let seed = hearth_types::derive_hex(&["a", "b"]);
        let (one, two) = (Random::from_hex(&seed), Random::from_hex(&seed));
        let other = Random::from_hex(&hearth_types::derive_hex(&["a", "c"]));
        let mut sum = 0.0;
        for _ in 0..10_000 {
            let number = one.next();
            assert!((0.0..1.0).contains(&number));
            assert_eq!(number.to_bits(), two.next().to_bits());
            assert_ne!(number.to_bits(), other.next().to_bits());
            sum += number;
        }
        assert!((sum / 10_000.0 - 0.5).abs() < 0.02, "{sum}");
    }
}
