//! What a check of a journal finds.

use serde::Serialize;

/// One thing that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A log and position (`run/run_1@7`), an index row, or the file.
    pub place: String,
    pub what: String,
}

/// The outcome of a check: what was walked, and at most [`Report::MAX_FINDINGS`] findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    pub logs: u64,
    pub frames: u64,
    pub heads: u64,
    pub findings: Vec<Finding>,
    /// Findings past the bound, counted only.
    pub further: u64,
}

impl Report {
    pub const MAX_FINDINGS: usize = 100;

    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn add(&mut self, place: impl Into<String>, what: impl Into<String>) {
        if self.findings.len() < Self::MAX_FINDINGS {
            self.findings.push(Finding { place: place.into(), what: what.into() });
        } else {
            self.further += 1;
        }
    }
}
