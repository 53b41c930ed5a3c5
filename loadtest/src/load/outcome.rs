//! Results, as they are written and compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::latencies::Latencies;
use crate::machine::Machine;

/// Of the file. Another number is not read.
pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub format: u32,
    pub scenario: String,
    pub started_at: String,
    pub targets: Vec<String>,
    pub machine: Machine,
    pub settings: serde_json::Value,
    /// The highest rate of a ramp that was kept up with.
    pub sustained_per_s: Option<f64>,
    /// A ramp ended because the target no longer kept up.
    pub saturated: bool,
    pub checks: Vec<Check>,
    pub stages: Vec<Stage>,
}

/// Something that the scenario looked at besides times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Check {
    pub what: String,
    pub held: bool,
    pub detail: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stage {
    pub name: String,
    pub offered_per_s: Option<f64>,
    pub users: Option<u32>,
    pub seconds: f64,
    /// Rounds of the scenario that ended, in a second.
    pub achieved_per_s: f64,
    /// Rounds that were to begin and never did.
    pub unstarted: u64,
    /// Rounds that were in flight when the patience with them was over.
    #[serde(default)]
    pub cut_off: u64,
    pub operations: Vec<Operation>,
    /// What was done to the target meanwhile.
    #[serde(default)]
    pub marks: Vec<Mark>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub second: f64,
    pub what: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub name: String,
    /// Those that succeeded.
    pub count: u64,
    pub per_s: f64,
    /// From the moment at which the call was to begin.
    pub ms: Times,
    /// From the moment at which it began.
    pub service_ms: Times,
    pub errors: BTreeMap<String, u64>,
    /// Quantile and milliseconds.
    pub curve: Vec<(f64, f64)>,
    pub timeline: Vec<Tick>,
}

impl Operation {
    pub(crate) fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Times {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Times {
    pub(crate) fn of(latencies: &Latencies) -> Self {
        Self {
            mean: latencies.mean_ms(),
            p50: latencies.ms(0.5),
            p90: latencies.ms(0.9),
            p99: latencies.ms(0.99),
            p999: latencies.ms(0.999),
            max: latencies.max_ms(),
        }
    }
}

/// One second of one operation.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Tick {
    pub second: u32,
    pub count: u64,
    pub errors: u64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}
