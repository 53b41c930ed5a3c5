//! Why a fork, a clone or a lookup of definitions was refused.

use hearth_types::{Fault, FaultCode};

use crate::{FieldFault, PatternError};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the tool pattern {pattern:?} is not allowed: {error}")]
    BadPattern { pattern: String, error: PatternError },
    #[error("the tool pattern {pattern:?} is not under the ceiling; ask for a tool that the ceiling covers")]
    AboveCeiling { pattern: String },
    /// A fork would be allowed more than its source.
    #[error("a fork may only narrow, and `{field}` would widen: {reason}")]
    Widens { field: &'static str, reason: String },
    #[error("a fork keeps the name {name:?}; use clone for a new agent")]
    Renames { name: String },
    #[error("the name {name:?} belongs to a built-in agent")]
    Reserved { name: String },
    #[error("{0}")]
    Field(FieldFault),
}

impl Refusal {
    /// The fault that callers see: what a ceiling or a policy forbids is `tool_refused`, what is
    /// malformed is `invalid_argument`.
    pub fn fault(&self) -> Fault {
        match self {
            Self::AboveCeiling { .. } | Self::Widens { .. } => Fault::new(FaultCode::ToolRefused, self.to_string()),
            Self::BadPattern { pattern, .. } => {
                Fault::invalid("tools", pattern, "a tool's name, or a prefix that ends in `*`")
            }
            Self::Renames { name } => Fault::invalid("name", name, "the name of the agent that is forked"),
            Self::Reserved { name } => Fault::invalid("name", name, "a name that no built-in agent has"),
            Self::Field(fault) => Fault::invalid(fault.field, &fault.value, fault.allowed),
        }
    }
}
