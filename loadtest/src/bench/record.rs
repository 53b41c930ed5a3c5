//! The last recorded figures, in docs/performance.json, and what is worse than they were.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::figure::{Figure, Kind};
use crate::Error;
use crate::machine::{Machine, today};

/// Ratios of one program on one machine differ by so much without a reason that anybody knows.
const LEAST_NOISE: f64 = 0.05;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Recorded {
    pub date: String,
    pub machine: Machine,
    pub figures: Vec<Figure>,
}

impl Recorded {
    pub(super) fn now(figures: Vec<Figure>) -> Self {
        Self { date: today(), machine: Machine::here(), figures }
    }

    /// `None` when there is none, or none that this program can read.
    pub(super) fn read(root: &Path) -> Option<Self> {
        serde_json::from_str(&std::fs::read_to_string(path(root)).ok()?).ok()
    }

    pub(super) fn write(&self, root: &Path) -> Result<(), Error> {
        let path = path(root);
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(&path, format!("{text}\n")).map_err(Error::io(path.display().to_string()))
    }

    fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.figure == name)
    }

    /// By which share a figure is worse than it was, if that is more than the noise of either run.
    pub(super) fn worse(&self, now: &Figure) -> Option<f64> {
        let before = self.figure(&now.figure)?;
        let (was, is) = (before.compared()?, now.compared()?);
        let kind = Kind::named(&now.figure)?;
        let share = if kind.grows() { was / is } else { is / was } - 1.0;
        let noise = before.noise.unwrap_or(0.0).max(now.noise.unwrap_or(0.0)).max(LEAST_NOISE);
        (share.is_finite() && share > noise * 2.0).then_some(share)
    }
}

fn path(root: &Path) -> PathBuf {
    root.join("docs/performance.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::Measured;

    fn figure(name: &str, ratio: f64, noise: f64) -> Figure {
        let measured = Measured { value: 1.0, floor: Some(1.0), ratio: Some(ratio), noise: Some(noise), remark: None };
        Kind::named(name).unwrap().measured(measured)
    }

    fn recorded(figure: Figure) -> Recorded {
        Recorded { date: "2026-01-01".into(), machine: Machine::default(), figures: vec![figure] }
    }

    #[test]
    fn only_what_is_worse_by_more_than_the_noise_is_flagged() {
        let last = recorded(figure("send_local_p50", 2.0, 0.1));
        assert_eq!(last.worse(&figure("send_local_p50", 2.2, 0.05)), None, "within twice the noise");
        assert!(last.worse(&figure("send_local_p50", 3.0, 0.05)).is_some_and(|share| (share - 0.5).abs() < 1e-9));
        assert_eq!(last.worse(&figure("send_local_p50", 1.0, 0.05)), None, "better");
        assert_eq!(last.worse(&figure("exec_p50", 9.0, 0.05)), None, "never recorded");
    }

    #[test]
    fn a_rate_is_worse_when_it_is_less() {
        let last = recorded(figure("turns_per_s_64", 0.6, 0.02));
        assert!(last.worse(&figure("turns_per_s_64", 0.3, 0.02)).is_some());
        assert_eq!(last.worse(&figure("turns_per_s_64", 0.9, 0.02)), None);
    }
}
