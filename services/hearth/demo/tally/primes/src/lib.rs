//! Prime numbers below a bound. The compiler runs the sieve, so the program starts with the table
//! ready; that is also why this crate takes its time to compile.

#![allow(long_running_const_eval)]

pub const BOUND: usize = 1_000_000;

static COMPOSITE: [bool; BOUND] = sieve();

const fn sieve() -> [bool; BOUND] {
    let mut composite = [false; BOUND];
    composite[0] = true;
    composite[1] = true;
    let mut n = 2;
    while n * n < BOUND {
        if !composite[n] {
            let mut multiple = n * n;
            while multiple < BOUND {
                composite[multiple] = true;
                multiple += n;
            }
        }
        n += 1;
    }
    composite
}

/// Whether `n` is prime, or `None` past the bound.
pub fn is_prime(n: u64) -> Option<bool> {
    let index = usize::try_from(n).ok()?;
    COMPOSITE.get(index).map(|composite| !composite)
}

/// The smallest prime above `n`, or `None` past the bound.
pub fn next(n: u64) -> Option<u64> {
    (n + 1..BOUND as u64).find(|&candidate| is_prime(candidate) == Some(true))
}
