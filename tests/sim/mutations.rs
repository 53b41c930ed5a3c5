//! The simulation is broken on purpose, in one way after the other, and must notice each.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use hearth_run_core::breaks::BREAKS;

use crate::broken::Broken;
use crate::plan::Plan;
use crate::run;

/// Seeds within which a break must show.
const WITHIN: u64 = 1_200;

/// No driver reports one call twice to one activation: the random histories of the state machine
/// notice this, and no cluster can.
const BEYOND_REACH: &str = "take a result twice";

const PORTS: [Broken; 6] = [
    Broken::NoFence,
    Broken::AcknowledgeFirst,
    Broken::ForgetQueue,
    Broken::ForgetResults,
    Broken::ForgetChildren,
    Broken::LeaveSandboxes,
];

/// The first seed that notices, and what it says.
fn noticed(broken: Broken) -> Option<(u64, String)> {
    (0..WITHIN).find_map(|seed| Some((seed, run::seed(seed, Plan::of(seed), Some(broken), false).breach?)))
}

#[test]
fn every_break_of_the_protocol_is_noticed() {
    let machines = BREAKS.iter().filter(|machine| machine.name != BEYOND_REACH);
    let all: Vec<Broken> = machines.map(|machine| Broken::Machine(*machine)).chain(PORTS).collect();
    let (next, unnoticed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(broken) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match noticed(*broken) {
                        Some((seed, breach)) => println!("{}: seed {seed}: {breach}", broken.name()),
                        None => unnoticed.lock().unwrap().push(broken.name()),
                    }
                }
            });
        }
    });
    let unnoticed = unnoticed.into_inner().unwrap();
    assert!(unnoticed.is_empty(), "{unnoticed:?} of {} breaks", all.len());
}
