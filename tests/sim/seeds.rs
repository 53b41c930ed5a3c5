//! Thousands of seeds.

use crate::plan::Plan;
use crate::run;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// The seeds are run in so many tests, so that as many processors are used.
const SLICES: u64 = 4;

/// One slice of the seeds: those that leave this remainder.
fn slice(remainder: u64) {
    let seeds = number("SIM_SEEDS").unwrap_or(2_000);
    let first = number("SIM_FIRST").unwrap_or(0);
    if number("SIM_SEED").is_some() {
        return;
    }
    let (mut frames, mut failed) = (0, Vec::new());
    for seed in (first..first + seeds).filter(|seed| seed % SLICES == remainder) {
        let outcome = run::seed(seed, Plan::of(seed), None, false);
        frames += outcome.frames;
        if let Some(breach) = outcome.breach {
            println!("seed {seed}: {breach}");
            failed.push((seed, breach));
        }
    }
    println!("{} seeds, {frames} frames, {} failed", seeds / SLICES, failed.len());
    if let Some((seed, breach)) = failed.first() {
        println!("\nthe story of seed {seed}:\n{}", run::seed(*seed, Plan::of(*seed), None, true).story);
        panic!("SIM_SEED={seed} cargo test -p hearth-sim one_seed runs this one alone: {breach}");
    }
}

#[test]
fn every_seed_keeps_every_promise_1_of_4() {
    slice(0);
}

#[test]
fn every_seed_keeps_every_promise_2_of_4() {
    slice(1);
}

#[test]
fn every_seed_keeps_every_promise_3_of_4() {
    slice(2);
}

#[test]
fn every_seed_keeps_every_promise_4_of_4() {
    slice(3);
}

/// The one that `SIM_SEED` names, with its story.
#[test]
fn one_seed() {
    let seed = number("SIM_SEED").unwrap_or(0);
    let outcome = run::seed(seed, Plan::of(seed), None, true);
    println!("{}", outcome.story);
    assert!(outcome.breach.is_none(), "seed {seed}: {}", outcome.breach.unwrap());
}

/// Seeds that once found a fault, beyond those of every run.
#[test]
fn seeds_that_found_something_keep_every_promise() {
    // An activation that was superseded, and waited for, stayed in memory for half a minute.
    // A repeat of a message to a session began another run: where the first could not be read at that moment, and where
    // the first ended between the look for the key and the look for a live run.
    for seed in [9_298, 80_322, 94_086, 96_831] {
        let outcome = run::seed(seed, Plan::of(seed), None, false);
        assert!(outcome.breach.is_none(), "seed {seed}: {}", outcome.breach.unwrap());
    }
}

#[test]
fn a_seed_gives_the_same_history_each_time() {
    for seed in 0..12 {
        let [first, again] = [(); 2].map(|()| run::seed(seed, Plan::of(seed), None, true));
        assert_eq!(first.story, again.story, "seed {seed}");
    }
}
