//! Who calls.

use serde::{Deserialize, Serialize};

/// A tenant's name, of the form of an id: it is part of derived ids, paths and subjects.
pub type Tenant = String;

/// What a caller may do. The order is the order of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Runs of its own subject.
    Member,
    /// Its own tenant: definitions, drain, import, runs of other subjects.
    Operator,
    /// Every tenant.
    Admin,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Principal {
    pub tenant: Tenant,
    pub subject: String,
    pub role: Role,
}
