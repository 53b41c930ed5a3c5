//! One decision, as the journal stores it: all its events in one append, so that nothing tears.

use hearth_types::{Epoch, Seq, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Event, Recorded};

/// The version that this program writes and the newest it reads.
pub const FRAME_VERSION: u32 = 1;

#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a frame is not readable: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("a frame has version {found}; this program reads up to {FRAME_VERSION}: upgrade it")]
    Newer { found: u32 },
    #[error("a frame begins at event {found}, but event {expected} is next: frames are missing")]
    Gap { expected: Seq, found: Seq },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    pub v: u32,
    /// The activation that wrote it.
    pub epoch: Epoch,
    pub append_id: String,
    /// The store's position of the frame before: a reader that meets a gap reloads.
    pub prev: u64,
    /// The store's position of the last frame before this one that holds a snapshot; zero for none.
    /// Reading may begin there.
    #[serde(default)]
    pub snapshot: u64,
    /// The store's position of the frame that holds the oldest snapshot which reading may still begin
    /// at; zero for the first frame.
    #[serde(default)]
    pub floor: u64,
    /// The number of the first event.
    pub first_seq: Seq,
    pub at: Timestamp,
    pub events: Vec<Event>,
}

impl Frame {
    pub fn encode(&self) -> Result<Vec<u8>, FrameError> {
        Ok(serde_json::to_vec(self)?)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        #[derive(Deserialize)]
        struct Version {
            v: u32,
        }
        let Version { v } = hearth_types::from_own_json(bytes)?;
        if v > FRAME_VERSION {
            return Err(FrameError::Newer { found: v });
        }
        let frame: Self = hearth_types::from_own_json(bytes)?;
        // What is read is counted on from: no run comes near this many events.
        if frame.first_seq.0 > u64::MAX >> 1 {
            return Err(FrameError::Malformed(serde::de::Error::custom("its number is out of range")));
        }
        Ok(frame)
    }

    /// The events with their numbers.
    pub fn recorded(self) -> impl Iterator<Item = Recorded> {
        let (first, at) = (self.first_seq.0, self.at);
        self.events.into_iter().zip(first..).map(move |(event, seq)| Recorded { seq: Seq(seq), at, event })
    }

    pub fn is_snapshot(&self) -> bool {
        matches!(self.events.first(), Some(Event::Snapshot { .. }))
    }

    pub fn last_seq(&self) -> Seq {
        Seq(self.first_seq.0 + self.events.len() as u64 - u64::from(!self.events.is_empty()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_a_newer_version_is_refused_by_its_version_alone() {
        let error = Frame::decode(br#"{"v": 99, "something": "else"}"#).unwrap_err();
        assert!(matches!(error, FrameError::Newer { found: 99 }));
    }

    #[test]
    fn events_are_numbered_from_the_frames_first() {
        let frame = Frame {
            v: 1,
            epoch: Epoch(1),
            append_id: "a".into(),
            prev: 0,
            snapshot: 0,
            floor: 0,
            first_seq: Seq(7),
            at: Timestamp::from_millis(0),
            events: vec![Event::Closed, Event::Closed],
        };
        assert_eq!(frame.last_seq(), Seq(8));
        let again = Frame::decode(&frame.encode().unwrap()).unwrap();
        let seqs: Vec<u64> = again.recorded().map(|r| r.seq.0).collect();
        assert_eq!(seqs, [7, 8]);
    }
}
