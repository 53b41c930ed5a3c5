//! A figure, what it is compared with, and what it should be.

use serde::{Deserialize, Serialize};

/// What a figure should be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    AtMost(f64),
    RatioAtMost(f64),
    RatioAtLeast(f64),
    /// It is told, and held to nothing but its last value.
    None,
}

/// A figure as it is known before it is measured.
#[derive(Debug)]
pub(crate) struct Kind {
    pub name: &'static str,
    pub unit: &'static str,
    pub target: Target,
    /// What is measured.
    pub what: &'static str,
    /// What its floor does, and why that.
    pub floor: &'static str,
}

const fn kind(name: &'static str, unit: &'static str, target: Target, what: &'static str, floor: &'static str) -> Kind {
    Kind { name, unit, target, what, floor }
}

const COMMITS: &str = "two commits in SQLite, one after the other, with the same frames and index rows: a turn needs \
    one append before it is accepted and one when it ends";
const SERVED_COMMITS: &str = "an HTTP echo with the same bodies whose server makes those two commits";
const LOCAL: &str = "an HTTP echo with the same bodies whose server makes the two appends to JetStream: expected \
    sequence, message id, the row in a header, acknowledgement awaited";
const CROSS: &str = "the same with one NATS request to a third process, which makes the two appends, and an event from \
    it that ends the wait";
const ENGINE_EXEC: &str = "the Engine's own exec of the same command: create, start, read, inspect";

/// All figures, in the order of the table.
pub(crate) const FIGURES: &[Kind] = &[
    kind(
        "send_local_p50",
        "ms",
        Target::RatioAtMost(2.0),
        "a `send` to a resident of `mock`, embedded, one caller",
        COMMITS,
    ),
    kind("send_local_p99", "ms", Target::None, "the same, its slowest hundredth", COMMITS),
    kind(
        "send_within_p50",
        "ms",
        Target::RatioAtMost(2.0),
        "a `send` without HTTP: a replica within the measuring process, as the floor is",
        COMMITS,
    ),
    kind("send_cpu_ms", "ms", Target::None, "CPU time of the server for one of them", "none"),
    kind(
        "turns_per_s_64",
        "1/s",
        Target::RatioAtLeast(0.5),
        "turns a second with 64 callers, embedded",
        SERVED_COMMITS,
    ),
    kind(
        "turns_per_s_512",
        "1/s",
        Target::RatioAtLeast(0.5),
        "turns a second with 512 callers, embedded",
        SERVED_COMMITS,
    ),
    kind(
        "turns_within_64",
        "1/s",
        Target::RatioAtLeast(0.5),
        "turns a second with 64 callers, without HTTP as well",
        COMMITS,
    ),
    kind("send_cluster_p50", "ms", Target::RatioAtMost(1.5), "a `send` in a cluster, to the owner", LOCAL),
    kind("send_cluster_p99", "ms", Target::None, "the same, its slowest hundredth", LOCAL),
    kind("send_cross_p50", "ms", Target::RatioAtMost(1.5), "a `send` by way of a replica that is not the owner", CROSS),
    kind("send_cross_p99", "ms", Target::None, "the same, its slowest hundredth", CROSS),
    kind(
        "cluster_turns_per_s_64",
        "1/s",
        Target::RatioAtLeast(0.5),
        "turns a second with 64 callers, each `send` to the next of three replicas",
        "the two floors above in the same shares: one send in three meets the owner",
    ),
    kind(
        "cluster_turns_per_s_512",
        "1/s",
        Target::RatioAtLeast(0.5),
        "the same with 512 callers",
        "the two floors above in the same shares: one send in three meets the owner",
    ),
    kind(
        "failover_p99",
        "s",
        Target::AtMost(6.0),
        "from `kill -9` of the owner to the answer of a `send` that was blocked on another replica, the turn's own \
         work done anew included",
        "the lease: nobody can be known to be dead before it has run out",
    ),
    kind("failover_max", "s", Target::AtMost(6.0), "the slowest of them", "the lease"),
    kind("exec_p50", "ms", Target::RatioAtMost(0.02), "the program `true` in a session, at the node", ENGINE_EXEC),
    kind("exec_p99", "ms", Target::AtMost(5.0), "the same, its slowest hundredth", ENGINE_EXEC),
    kind("exec_shell_p50", "ms", Target::None, "a command that needs a `bash`, which takes most of it", ENGINE_EXEC),
    kind(
        "exec_grpc_p50",
        "ms",
        Target::None,
        "the program `true` in a session, by a client of the node's gRPC",
        ENGINE_EXEC,
    ),
    kind(
        "execs_per_s_64",
        "1/s",
        Target::None,
        "the program `true` in 64 sessions at once, in each again and again",
        "the Engine's own exec of it in the same containers, as many at once",
    ),
    kind(
        "session_bytes",
        "B",
        Target::None,
        "memory of an idle session that has run commands: its container's, and what the node holds for it",
        "a container of the same image and limits that sleeps",
    ),
    kind(
        "open_warm_p50",
        "ms",
        Target::AtMost(20.0),
        "opening a session from the pool, in bursts up to the pool's size",
        "the Engine's create and start of a container with the same limits",
    ),
    kind(
        "open_warm_p99",
        "ms",
        Target::AtMost(100.0),
        "the same, its slowest hundredth",
        "the Engine's create and start of a container with the same limits",
    ),
    kind(
        "open_cold_p50",
        "ms",
        Target::RatioAtMost(1.1),
        "opening a session without a pool",
        "the Engine's create and start of a container with the same limits",
    ),
    kind(
        "output_mb_s",
        "MB/s",
        Target::None,
        "output of a command that is read to its end, most of it past the cap",
        "the same command as a bare process, its output read from a pipe",
    ),
    kind(
        "output_cpu_s_gb",
        "s",
        Target::None,
        "CPU time for a GB of it, of the node and of all that runs in the session",
        "CPU time of the same command as a bare process, and of the one that reads the pipe",
    ),
    kind(
        "parked_bytes",
        "B",
        Target::AtMost(64.0),
        "memory of a server with 100,000 parked residents above that of an empty one, for each",
        "none: it should be nothing; what is left is the caches, which are bounded",
    ),
    kind(
        "active_bytes",
        "B",
        Target::AtMost(16_384.0),
        "memory for each of 10,000 residents that are active and idle",
        "none",
    ),
    kind(
        "list_page_p99",
        "ms",
        Target::AtMost(20.0),
        "a page of 50 residents out of 100,000",
        "an HTTP echo with an answer of the same size",
    ),
    kind(
        "restart_s",
        "s",
        Target::AtMost(3.0),
        "from the start after `kill -9` to `readyz`, with 100,000 residents",
        "the same with none",
    ),
];

/// A figure as it was measured, or why it was not.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub figure: String,
    pub unit: String,
    pub value: Option<f64>,
    pub floor: Option<f64>,
    pub ratio: Option<f64>,
    pub target: Option<String>,
    pub met: Option<bool>,
    /// Half the distance between the quarters of the rounds' ratios, as a share of the middle one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A value, its floor if it has one, and the noise of their ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub value: f64,
    pub floor: Option<f64>,
    /// The middle of the rounds' ratios, where there were rounds; else it is value over floor.
    pub ratio: Option<f64>,
    pub noise: Option<f64>,
    /// Set when it is of something else than the target is about.
    pub remark: Option<&'static str>,
}

impl Measured {
    pub(crate) fn alone(value: f64) -> Self {
        Self { value, floor: None, ratio: None, noise: None, remark: None }
    }

    pub(crate) fn over(value: f64, floor: f64) -> Self {
        Self { floor: Some(floor), ..Self::alone(value) }
    }
}

impl Kind {
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        FIGURES.iter().find(|kind| kind.name == name)
    }

    pub(crate) fn measured(&self, measured: Measured) -> Figure {
        let by_division = measured.floor.filter(|floor| *floor > 0.0).map(|floor| measured.value / floor);
        let ratio = measured.ratio.or(by_division);
        let met = match self.target {
            _ if measured.remark.is_some() => None,
            Target::AtMost(most) => Some(measured.value <= most),
            Target::RatioAtMost(most) => ratio.map(|ratio| ratio <= most),
            Target::RatioAtLeast(least) => ratio.map(|ratio| ratio >= least),
            Target::None => None,
        };
        Figure {
            value: Some(measured.value),
            floor: measured.floor,
            ratio,
            met,
            noise: measured.noise,
            ..self.missing(measured.remark.unwrap_or_default().to_owned())
        }
    }

    /// The figure without a value.
    pub(crate) fn missing(&self, reason: String) -> Figure {
        Figure {
            figure: self.name.to_owned(),
            unit: self.unit.to_owned(),
            value: None,
            floor: None,
            ratio: None,
            target: self.target_text(),
            met: None,
            noise: None,
            reason: Some(reason).filter(|reason| !reason.is_empty()),
        }
    }

    fn target_text(&self) -> Option<String> {
        match self.target {
            Target::AtMost(most) => Some(format!("<= {most} {}", self.unit)),
            Target::RatioAtMost(most) => Some(format!("ratio <= {most}")),
            Target::RatioAtLeast(least) => Some(format!("ratio >= {least}")),
            Target::None => None,
        }
    }

    /// Whether more is better.
    pub(crate) fn grows(&self) -> bool {
        self.unit.ends_with("/s")
    }
}

impl Figure {
    /// What is compared from one recorded run to the next: the ratio where there is one.
    pub(crate) fn compared(&self) -> Option<f64> {
        self.ratio.or(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_held_against_the_ratio_or_the_value_as_it_says() {
        let of = |name: &str| Kind::named(name).unwrap();
        assert_eq!(of("send_local_p50").measured(Measured::over(3.0, 2.0)).met, Some(true));
        assert_eq!(of("send_local_p50").measured(Measured::over(5.0, 2.0)).met, Some(false));
        assert_eq!(of("turns_per_s_64").measured(Measured::over(50.0, 100.0)).met, Some(true));
        assert_eq!(of("list_page_p99").measured(Measured::over(19.0, 1.0)).met, Some(true));
        assert_eq!(of("send_local_p99").measured(Measured::over(19.0, 1.0)).met, None);
    }

    #[test]
    fn what_was_not_measured_has_a_reason_and_no_value() {
        let figure = Kind::named("exec_p50").unwrap().missing("no Docker daemon answers".to_owned());
        let json = serde_json::to_value(&figure).unwrap();
        assert!(json["value"].is_null() && json["met"].is_null());
        assert_eq!(json["target"], "ratio <= 0.02");
        assert_eq!(json["reason"], "no Docker daemon answers");
    }
}
