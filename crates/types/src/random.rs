//! Random numbers from a seed, for fault injection and jitter that a test can repeat. Not for secrets.

use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). Shared by
/// reference: each draw takes the next number of one sequence.
#[derive(Debug)]
pub struct SeededRandom(AtomicU64);

impl SeededRandom {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub fn draw(&self) -> u64 {
        let mut z = self.0.fetch_add(Self::STEP, Ordering::Relaxed).wrapping_add(Self::STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From zero up to `bound`, which is not reached; zero when `bound` is.
    pub fn below(&self, bound: u64) -> u64 {
        // The bias of the remainder is below one in 2^32 for every bound under 2^32.
        self.draw().checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_its_sequence() {
        // The reference implementation's first numbers for the seed 1234567.
        let random = SeededRandom::new(1_234_567);
        let drawn = [random.draw(), random.draw(), random.draw()];
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn a_draw_stays_below_its_bound() {
        let random = SeededRandom::new(1);
        assert!((0..1_000).all(|_| random.below(7) < 7));
        assert_eq!(random.below(0), 0);
    }
}
