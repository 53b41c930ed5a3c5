//! What a person sees while it runs, and at the end.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::drive::Counts;
use super::outcome::Outcome;
use super::world::World;
use crate::report::number;

pub(super) fn stage(name: &str) {
    eprintln!("== {name}");
}

/// Ends each second and shows it: on one line of a terminal, else on a line of its own.
pub(super) fn watch(world: Arc<World>, counts: Arc<Counts>, warm_up: Duration, span: Duration) -> JoinHandle<()> {
    let began = Instant::now();
    let redraws = std::io::stderr().is_terminal();
    #[allow(clippy::disallowed_methods, reason = "its handle is the caller's, who ends it")]
    tokio::spawn(async move {
        tokio::time::sleep(warm_up).await;
        let mut seconds = tokio::time::interval_at(Instant::now() + Duration::from_secs(1), Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            seconds.tick().await;
            let said = world.recorder.tick();
            let at = began.elapsed().saturating_sub(warm_up).as_secs();
            let state = if at > span.as_secs() { "still in flight" } else { "in flight" };
            let line = format!("{at:>4} s of {}  {said}  {} {state}", span.as_secs(), counts.in_flight());
            let mut screen = std::io::stderr().lock();
            // Nobody may be looking any more.
            if redraws {
                write!(screen, "\r\x1b[K{line}").and_then(|()| screen.flush()).ok();
            } else {
                writeln!(screen, "{line}").ok();
            }
        }
    })
}

pub(super) fn summary(outcome: &Outcome) {
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
    for stage in &outcome.stages {
        println!("\n{}: {} rounds a second", stage.name, number(stage.achieved_per_s));
        if stage.unstarted > 0 {
            println!("  {} rounds never began: the target or this machine did not keep up", stage.unstarted);
        }
        if stage.cut_off > 0 {
            println!("  {} rounds were not answered in time, and are in no line below", stage.cut_off);
        }
        println!(
            "  {:<14} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "operation", "count", "1/s", "p50 ms", "p99 ms", "p99.9", "max"
        );
        for operation in &stage.operations {
            let of = &operation.ms;
            println!(
                "  {:<14} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
                operation.name,
                operation.count,
                number(operation.per_s),
                number(of.p50),
                number(of.p99),
                number(of.p999),
                number(of.max),
            );
            for (code, count) in &operation.errors {
                println!("  {:<14} {count:>9} {code}", "");
            }
        }
    }
    if let Some(rate) = outcome.sustained_per_s {
        let end = if outcome.saturated { "more is too much" } else { "the ramp ended before it was too much" };
        println!("\nkept up with {} rounds a second; {end}", number(rate));
    }
    for check in &outcome.checks {
        println!("{} {}: {}", if check.held { "ok    " } else { "BROKEN" }, check.what, check.detail);
    }
}
