//! What watchers of a run receive over the bus: frames as they are journaled, and live deltas.

use bytes::Bytes;
use hearth_run_core::Frame;
use hearth_types::{Timestamp, TurnId};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveItem {
    Frame(Frame),
    Text { turn_id: TurnId, text: String, at: Timestamp },
    Thinking { turn_id: TurnId, text: String, at: Timestamp },
}

impl LiveItem {
    pub fn encode(&self) -> Option<Bytes> {
        serde_json::to_vec(self).ok().map(Bytes::from)
    }

    /// `None` for what this program does not understand: watchers then read the journal.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        hearth_types::from_own_json(bytes).ok()
    }
}
