//! What watchers of a run receive over the bus: frames as they are journaled, and live deltas.

use bytes::Bytes;
use hearth_run_core::{FRAME_VERSION, Frame};
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

    /// [`LiveItem::Frame`] of a frame that is encoded already.
    pub fn encode_frame(frame: &[u8]) -> Bytes {
        [b"{\"frame\":".as_slice(), frame, b"}"].concat().into()
    }

    /// `None` for what this program does not understand: watchers then read the journal.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let item: Self = hearth_types::from_own_json(bytes).ok()?;
        (!matches!(&item, Self::Frame(frame) if frame.v > FRAME_VERSION)).then_some(item)
    }
}

#[cfg(test)]
mod tests {
    use hearth_run_core::{Event, FRAME_VERSION};
    use hearth_types::{Epoch, Seq};

    use super::*;

    #[test]
    fn a_frame_that_is_encoded_already_is_told_as_any_other() {
        let frame = Frame {
            v: FRAME_VERSION,
            epoch: Epoch(1),
            append_id: "a".into(),
            prev: 1,
            snapshot: 0,
            floor: 0,
            first_seq: Seq(2),
            at: Timestamp::from_millis(3),
            events: vec![Event::Closed],
        };
        let told = LiveItem::encode_frame(&frame.encode().unwrap());
        assert_eq!(Some(&told), LiveItem::Frame(frame.clone()).encode().as_ref());
        assert_eq!(LiveItem::decode(&told), Some(LiveItem::Frame(frame)));
    }
}
