//! Every subject there is.

use std::fmt;

use hearth_types::{ReplicaId, RunId};

/// A typed subject. Ids are subject tokens by their form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Journaled events and live deltas of a run.
    RunEvents(RunId),
    /// Commands to the activations of one replica.
    Commands(ReplicaId),
    /// Questions of sandbox nodes to one replica, whether a run lives: all that a node may ask, and so apart from commands.
    Liveness(ReplicaId),
}

impl Subject {
    /// The subject without the name of the cluster that it starts with.
    pub fn path(&self) -> String {
        match self {
            Self::RunEvents(run) => format!("run.{run}.events"),
            Self::Commands(replica) => format!("replica.{replica}.commands"),
            Self::Liveness(replica) => format!("replica.{replica}.liveness"),
        }
    }

    /// The subject without its ids.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::RunEvents(_) => "run_events",
            Self::Commands(_) => "commands",
            Self::Liveness(_) => "liveness",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hearth.{}", self.path())
    }
}
