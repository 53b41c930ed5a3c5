//! How long each phase took.

use std::time::{Duration, Instant};

/// Measures one phase after the other.
#[derive(Debug, Default)]
pub struct Stopwatch {
    laps: Vec<(&'static str, Duration)>,
}

impl Stopwatch {
    /// Runs one phase under a headline.
    #[allow(clippy::disallowed_methods, reason = "a chore has no paused clock")]
    pub fn phase<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        println!("\n== {name}");
        let start = Instant::now();
        let done = work();
        let took = start.elapsed();
        println!("== {name}: {:.1} s", took.as_secs_f64());
        self.laps.push((name, took));
        done
    }

    /// One line that names every phase so far.
    pub fn summary(&self) -> String {
        let laps = self.laps.iter().map(|(name, took)| format!("{name} {:.0} s", took.as_secs_f64()));
        laps.collect::<Vec<_>>().join(" · ")
    }
}
