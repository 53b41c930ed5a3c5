//! The index row of a run: what lists show and sweepers look for, without reading the journal.

use hearth_types::{RunId, RunState, SessionId, Tenant, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// One run as the index knows it. The named columns can be searched; `body` is what lists show
/// besides them, and is opaque here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunHead {
    pub run_id: RunId,
    pub tenant: Tenant,
    pub subject: String,
    pub agent: String,
    pub state: RunState,
    pub root_run_id: RunId,
    pub parent_run_id: Option<RunId>,
    pub session_id: SessionId,
    pub resident: bool,
    pub created_at: Timestamp,
    /// Needs an owner although nobody calls: mid-turn, closing, or with children left to close.
    pub wake: bool,
    /// When something is to happen by itself (idle time, a turn's deadline).
    pub due_at: Option<Timestamp>,
    pub body: RawJson,
}

/// JSON as it was written: encoded once at an append, and read only by whoever shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    pub fn of<T: Serialize>(value: &T) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Self)
    }

    pub(crate) fn parse(text: String) -> serde_json::Result<Self> {
        RawValue::from_string(text).map(Self)
    }

    pub fn text(&self) -> &str {
        self.0.get()
    }

    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        hearth_types::from_own_json(self.text().as_bytes())
    }
}

impl PartialEq for RawJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl From<Value> for RawJson {
    /// A value that was parsed or built here always encodes.
    fn from(value: Value) -> Self {
        Self::of(&value).unwrap_or_else(|_| Self(RawValue::NULL.to_owned()))
    }
}

/// A filter over heads. An absent field admits all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeadQuery {
    pub tenant: Option<Tenant>,
    pub subject: Option<String>,
    pub state: Option<RunState>,
    pub agent: Option<String>,
    pub root_run_id: Option<RunId>,
    pub parent_run_id: Option<RunId>,
    pub session_id: Option<SessionId>,
    pub resident: Option<bool>,
    /// Only runs that are not final.
    pub live: bool,
    pub limit: u32,
    /// Rows strictly after this one in the list's order: its `created_at` and id. It stays valid
    /// while rows are added.
    pub after: Option<(Timestamp, RunId)>,
}

impl HeadQuery {
    /// Whether the filters admit the head; the page's bounds are not looked at.
    pub fn admits(&self, head: &RunHead) -> bool {
        fn same<T: PartialEq>(wanted: Option<&T>, have: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == have)
        }
        same(self.tenant.as_ref(), &head.tenant)
            && same(self.subject.as_ref(), &head.subject)
            && same(self.state.as_ref(), &head.state)
            && same(self.agent.as_ref(), &head.agent)
            && same(self.root_run_id.as_ref(), &head.root_run_id)
            && (self.parent_run_id.is_none() || self.parent_run_id == head.parent_run_id)
            && same(self.session_id.as_ref(), &head.session_id)
            && same(self.resident.as_ref(), &head.resident)
            && !(self.live && head.state.is_final())
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeadPage {
    pub heads: Vec<RunHead>,
    /// Whether rows follow the last one.
    pub more: bool,
}
