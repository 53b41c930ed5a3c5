//! Thousands of seeds, on as many threads as there are processors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::plan::Plan;
use crate::run;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

#[test]
fn every_seed_keeps_every_promise() {
    if let Some(seed) = number("SIM_SEED") {
        let outcome = run::seed(seed, Plan::of(seed), None, true);
        println!("{}", outcome.story);
        assert!(outcome.breach.is_none(), "seed {seed}: {}", outcome.breach.unwrap());
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(2_000);
    let first = number("SIM_FIRST").unwrap_or(0);
    let next = AtomicU64::new(first);
    let (failed, frames) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let outcome = run::seed(seed, Plan::of(seed), None, false);
                    frames.fetch_add(outcome.frames, Ordering::Relaxed);
                    if let Some(breach) = outcome.breach {
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push((seed, breach));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{seeds} seeds, {} frames", frames.into_inner());
    if let Some((seed, breach)) = failed.first() {
        for (seed, breach) in failed.iter().take(40) {
            println!("seed {seed}: {breach}");
        }
        println!("\nthe story of seed {seed}:\n{}", run::seed(*seed, Plan::of(*seed), None, true).story);
        panic!("{} of {seeds} seeds; SIM_SEED={seed} cargo test -p hearth-sim runs this one: {breach}", failed.len());
    }
}
