//! An append made ready for the writer: encoded and summed on the caller's side, so that the one
//! writer thread only moves bytes.

use bytes::Bytes;
use crc32fast::Hasher;

use crate::{Append, Position, RunHead};

#[derive(Debug)]
pub(super) struct Draft {
    pub(super) key: String,
    pub(super) expected: Position,
    pub(super) append_id: String,
    pub(super) frame: Bytes,
    pub(super) head: Option<HeadDraft>,
    pub(super) floor: Position,
}

#[derive(Debug)]
pub(super) struct HeadDraft {
    pub(super) head: RunHead,
    pub(super) checksum: u32,
}

impl Draft {
    pub(super) fn of(append: Append) -> Self {
        let key = append.key.to_string();
        let head = append.head.map(HeadDraft::of);
        let Append { expected, append_id, frame, floor, .. } = append;
        Self { key, expected, append_id, frame, head, floor }
    }

    pub(super) fn bytes(&self) -> usize {
        self.frame.len() + self.head.as_ref().map_or(0, |head| head.head.body.text().len())
    }
}

impl HeadDraft {
    pub(super) fn of(head: RunHead) -> Self {
        let checksum = head_checksum(&head);
        Self { head, checksum }
    }
}

/// Binds a frame to its place, so that a frame that turns up elsewhere is found as well as one whose
/// bytes changed.
pub(super) fn frame_checksum(key: &str, position: Position, frame: &[u8]) -> u32 {
    let mut sum = Hasher::new();
    part(&mut sum, key.as_bytes());
    part(&mut sum, &position.0.to_le_bytes());
    part(&mut sum, frame);
    sum.finalize()
}

pub(super) fn head_checksum(head: &RunHead) -> u32 {
    let mut sum = Hasher::new();
    let parent = head.parent_run_id.as_ref().map_or("", |run| run.as_str());
    let texts = [
        head.run_id.as_str(),
        head.tenant.as_str(),
        head.subject.as_str(),
        head.agent.as_str(),
        head.state.as_str(),
        head.root_run_id.as_str(),
        parent,
        head.session_id.as_str(),
        head.body.text(),
    ];
    for text in texts {
        part(&mut sum, text.as_bytes());
    }
    part(&mut sum, &[u8::from(head.resident), u8::from(head.wake), u8::from(head.due_at.is_some())]);
    part(&mut sum, &head.created_at.as_millis().to_le_bytes());
    part(&mut sum, &head.due_at.unwrap_or_default().as_millis().to_le_bytes());
    sum.finalize()
}

fn part(sum: &mut Hasher, bytes: &[u8]) {
    sum.update(&(bytes.len() as u64).to_le_bytes());
    sum.update(bytes);
}
