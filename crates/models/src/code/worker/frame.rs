//! What passes between a process and its worker: a length, four bytes with the lowest first, and
//! that much JSON.

use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::code::CodeBounds;
use crate::code::record::Answered;
use crate::code::vm::{Event, Program};

/// A program is started by `Start`, its recorded calls in order, and `Go`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToWorker {
    /// Once, at first.
    Hello(Arc<CodeBounds>),
    Start(u64, Arc<Program>),
    Recorded(u64, Arc<Answered>),
    Go(u64),
    Answer(u64, Arc<Answered>),
    Drop(u64),
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromWorker {
    Told(u64, Event),
    /// The program's thread and memory are gone.
    Gone(u64),
}

/// Bytes of one frame: an output of 16 MiB whose every byte is escaped, and some more.
const MAX_BYTES: usize = 128 << 20;

pub(super) fn encode(frame: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, frame)?;
    let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// The length that a header announces.
pub(super) fn length(header: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_le_bytes(header) as usize;
    if length > MAX_BYTES {
        return Err(io::Error::other(format!("a frame of {length} bytes is longer than any should be")));
    }
    Ok(length)
}
