//! The history of a run of the simulation, for a person to read.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

/// What happened, in order. Kept only where somebody will read it.
pub struct Story {
    lines: Option<Mutex<Vec<(u128, String)>>>,
    began: Instant,
}

impl Story {
    pub fn new(told: bool) -> Self {
        Self { lines: told.then(Mutex::default), began: Instant::now() }
    }

    pub fn tell(&self, line: impl FnOnce() -> String) {
        if let Some(lines) = &self.lines {
            let at = self.began.elapsed().as_millis();
            lines.lock().unwrap_or_else(PoisonError::into_inner).push((at, line()));
        }
    }

    /// All of it, ids by short names in the order in which they first appear.
    pub fn text(&self) -> String {
        let Some(lines) = &self.lines else { return String::new() };
        let lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names = Names::default();
        let mut text = String::new();
        for (at, line) in lines.iter() {
            writeln!(text, "{:>4}.{:03}  {}", at / 1000, at % 1000, names.shorten(line)).unwrap();
        }
        text
    }
}

/// Short names for derived ids.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

const KINDS: [&str; 6] = ["run_", "turn_", "call_", "exec_", "sbx_", "sess_"];

impl Names {
    fn shorten(&mut self, line: &str) -> String {
        let mut rest = line;
        let mut short = String::new();
        while let Some((at, kind)) = KINDS.iter().filter_map(|kind| Some((rest.find(kind)?, kind))).min() {
            let tail = &rest[at + kind.len()..];
            let len = tail.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(tail.len());
            short.push_str(&rest[..at]);
            if len == 32 {
                let next = 1 + self.0.keys().filter(|id| id.starts_with(kind)).count();
                let id = rest[at..at + kind.len() + len].to_owned();
                short.push_str(self.0.entry(id).or_insert_with(|| format!("{kind}{next}")));
            } else {
                short.push_str(&rest[at..at + kind.len() + len]);
            }
            rest = &tail[len..];
        }
        short.push_str(rest);
        short
    }
}
