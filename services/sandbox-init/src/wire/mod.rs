//! What the init and its clients say to each other.
//!
//! A message is `u32 head length, u32 body length, head, body`, lengths little-endian. The head holds
//! the fields, the body what may be large: standard input, output, the content of a file. A client
//! sends a request and reads the answer; it may then send the next on the same connection. Both
//! lengths are bounded ([`MAX_HEAD`], [`MAX_BODY`]), and a longer message is refused unread.

mod answer;
mod codec;
mod request;

pub use answer::{Answer, Refusal, RefusalKind, Report, Stamp};
pub use codec::{Decoder, Encoder, Malformed};
pub use request::{ExecRequest, Request};

/// Goes up when a message changes in a way that an older init or client would misread. Fields added
/// at the end of a head do not.
pub const VERSION: u8 = 1;
/// Bytes of a head: a command, its environment, and room.
pub const MAX_HEAD: usize = 1024 * 1024;
/// Bytes of a body.
pub const MAX_BODY: usize = 16 * 1024 * 1024;
/// Bytes of a command: what the kernel takes as one argument (`MAX_ARG_STRLEN`), less its NUL.
pub const MAX_COMMAND: usize = 128 * 1024 - 1;
/// Bytes of an exec's environment, names and separators included.
pub const MAX_ENV: usize = 512 * 1024;
/// Bytes of an exec id.
pub const MAX_ID: usize = 128;
/// Bytes of a path.
pub const MAX_PATH: usize = 4095;
/// Bytes before the head.
pub const PREFIX: usize = 8;

/// The two lengths at the front of a message; `None` when one of them is past its bound.
pub fn lengths(prefix: [u8; PREFIX]) -> Option<(usize, usize)> {
    let [a, b, c, d, e, f, g, h] = prefix;
    let head = usize::try_from(u32::from_le_bytes([a, b, c, d])).ok()?;
    let body = usize::try_from(u32::from_le_bytes([e, f, g, h])).ok()?;
    (head <= MAX_HEAD && body <= MAX_BODY).then_some((head, body))
}

/// The lengths and the head, ready to be sent before `body_len` bytes of body; `None` past a bound.
pub fn frame(head: &[u8], body_len: usize) -> Option<Vec<u8>> {
    if head.len() > MAX_HEAD || body_len > MAX_BODY {
        return None;
    }
    let mut frame = Vec::with_capacity(PREFIX + head.len());
    frame.extend_from_slice(&u32::try_from(head.len()).ok()?.to_le_bytes());
    frame.extend_from_slice(&u32::try_from(body_len).ok()?.to_le_bytes());
    frame.extend_from_slice(head);
    Some(frame)
}
