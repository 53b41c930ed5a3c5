//! One connection: reads one message at a time, waits or answers, and is given up when it stalls.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::event::PollFlags;

use crate::wire::{Answer, PREFIX, frame, lengths};

/// From the first byte of a message to its last, and from an answer to the moment it was taken.
pub const STALL_MS: u64 = 10_000;
/// Bytes moved for one peer before the others get their turn.
const TURN: usize = 1024 * 1024;
const CHUNK: usize = 64 * 1024;

/// What a peer waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parked {
    /// The result of an exec, at the latest at `until`.
    Result { id: String, until: u64 },
    /// The death of an exec's whole tree.
    Tree { id: String },
    /// The end of the session.
    Session,
}

/// A whole message.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

/// What reading came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// More is to come.
    Partial,
    Message(Message),
    /// Gone, or not worth keeping.
    Gone,
}

#[derive(Debug)]
struct Outgoing {
    front: Vec<u8>,
    /// Sent after the front: this much of the file.
    tail: Option<(Arc<File>, u64)>,
    sent: u64,
}

#[derive(Debug)]
pub struct Peer {
    stream: UnixStream,
    /// Not of this session, as far as that can be known.
    outside: bool,
    input: Vec<u8>,
    outgoing: Option<Outgoing>,
    parked: Option<Parked>,
    /// When it last got something done.
    since: u64,
}

impl Peer {
    pub fn new(stream: UnixStream, now: u64) -> Self {
        let outside = is_outside(&stream);
        Self { stream, outside, input: Vec::new(), outgoing: None, parked: None, since: now }
    }

    pub const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    pub const fn outside(&self) -> bool {
        self.outside
    }

    pub const fn parked(&self) -> Option<&Parked> {
        self.parked.as_ref()
    }

    pub fn park(&mut self, parked: Parked) {
        self.parked = Some(parked);
    }

    /// Whether it neither waits for an answer nor is being sent one.
    pub const fn idle(&self) -> bool {
        self.parked.is_none() && self.outgoing.is_none()
    }

    pub const fn since(&self) -> u64 {
        self.since
    }

    /// When it will have stalled, unless something happens.
    pub fn stalls_at(&self) -> Option<u64> {
        let under_way = self.outgoing.is_some() || !self.input.is_empty();
        under_way.then(|| self.since.saturating_add(STALL_MS))
    }

    /// Bytes of memory that it takes, or will once its message is whole.
    pub fn bytes(&self) -> usize {
        let out = self.outgoing.as_ref().map_or(0, |outgoing| outgoing.front.len());
        self.claimed().max(self.input.len()) + out
    }

    fn claimed(&self) -> usize {
        self.prefix().and_then(lengths).map_or(0, |(head, body)| PREFIX + head + body)
    }

    fn prefix(&self) -> Option<[u8; PREFIX]> {
        self.input.first_chunk().copied()
    }

    pub fn interest(&self) -> PollFlags {
        if self.outgoing.is_some() {
            PollFlags::OUT
        } else if self.parked.is_some() {
            // Further requests wait in the socket; only its end is of interest.
            PollFlags::RDHUP
        } else {
            PollFlags::IN
        }
    }

    /// Reads what has come, up to the end of one message.
    pub fn read(&mut self, now: u64) -> Progress {
        for _ in 0..TURN / CHUNK {
            let goal = match self.prefix() {
                None => PREFIX,
                Some(prefix) => match lengths(prefix) {
                    Some((head, body)) => PREFIX + head + body,
                    None => return Progress::Gone,
                },
            };
            if self.input.len() == goal && goal > PREFIX {
                return Progress::Message(self.take_message());
            }
            // A message without a head says nothing.
            if self.input.len() == goal {
                return Progress::Gone;
            }
            let mut chunk = [0_u8; CHUNK];
            let want = (goal - self.input.len()).min(CHUNK);
            match self.stream.read(&mut chunk[..want]) {
                Ok(0) => return Progress::Gone,
                Ok(read) => {
                    if self.input.is_empty() {
                        self.since = now;
                    }
                    self.input.extend_from_slice(&chunk[..read]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Progress::Partial,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Progress::Gone,
            }
        }
        Progress::Partial
    }

    fn take_message(&mut self) -> Message {
        let mut head = std::mem::take(&mut self.input);
        let (head_len, _) = self.lengths_of(&head);
        head.drain(..PREFIX);
        let body = head.split_off(head_len.min(head.len()));
        Message { head, body }
    }

    fn lengths_of(&self, input: &[u8]) -> (usize, usize) {
        input.first_chunk().copied().and_then(lengths).unwrap_or((0, 0))
    }

    /// Queues an answer. `false` when it could not be framed, which is a bug of the caller's.
    pub fn answer(&mut self, answer: &Answer, body: Body, now: u64) -> bool {
        self.parked = None;
        self.since = now;
        let body_len = body.len();
        let Some(mut front) = frame(&answer.encode(), body_len) else { return false };
        let tail = match body {
            Body::Bytes(bytes) => {
                front.extend_from_slice(&bytes);
                None
            }
            Body::File(file, len) => Some((file, len)),
        };
        self.outgoing = Some(Outgoing { front, tail, sent: 0 });
        true
    }

    /// Sends what the peer takes; `false` when it is gone.
    pub fn send(&mut self, now: u64) -> bool {
        let Some(outgoing) = &mut self.outgoing else { return true };
        for _ in 0..TURN / CHUNK {
            match outgoing.step(&mut self.stream) {
                Ok(true) => {
                    self.outgoing = None;
                    self.since = now;
                    return true;
                }
                Ok(false) => self.since = now,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    Bytes(Vec<u8>),
    /// The first bytes of a file that only grows.
    File(Arc<File>, u64),
}

impl Body {
    pub const fn none() -> Self {
        Self::Bytes(Vec::new())
    }

    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::File(_, len) => usize::try_from(*len).unwrap_or(usize::MAX),
        }
    }
}

impl Outgoing {
    /// Sends a piece; `true` after the last.
    fn step(&mut self, stream: &mut UnixStream) -> std::io::Result<bool> {
        let front = self.front.len() as u64;
        if self.sent < front {
            let at = usize::try_from(self.sent).unwrap_or(usize::MAX);
            self.sent += stream.write(self.front.get(at..).unwrap_or_default())? as u64;
        } else if let Some((file, len)) = &self.tail {
            let at = self.sent - front;
            let mut chunk = [0_u8; CHUNK];
            let want = usize::try_from(len.saturating_sub(at)).unwrap_or(CHUNK).min(CHUNK);
            let read = file.read_at(&mut chunk[..want], at)?;
            if read == 0 && want > 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            self.sent += stream.write(&chunk[..read])? as u64;
        }
        Ok(self.sent == front + self.tail.as_ref().map_or(0, |(_, len)| *len))
    }
}

/// Whether the other end is a process that this one's namespace has no number for. Where this is the first process of
/// one, all that runs in the session has a number, and the node has none; elsewhere they look alike.
fn is_outside(stream: &UnixStream) -> bool {
    if rustix::process::getpid() != rustix::process::Pid::INIT {
        return true;
    }
    let mut peer = libc::ucred { pid: -1, uid: 0, gid: 0 };
    let mut len = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: the descriptor is open, and `peer` has room for the `len` bytes that are written.
    let known = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast::<libc::c_void>(),
            &raw mut len,
        )
    };
    known == 0 && peer.pid == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{MAX_BODY, Request};

    fn pair() -> (UnixStream, Peer) {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, Peer::new(server, 0))
    }

    #[test]
    fn a_message_in_pieces_is_read_whole_and_the_next_one_is_left_alone() {
        let (mut client, mut peer) = pair();
        let head = Request::Ping.encode();
        let mut bytes = frame(&head, 3).unwrap();
        bytes.extend_from_slice(b"abc");
        let twice = [bytes.clone(), bytes].concat();
        for piece in twice[..twice.len() / 2].chunks(5) {
            assert_eq!(peer.read(0), Progress::Partial);
            client.write_all(piece).unwrap();
        }
        client.write_all(&twice[twice.len() / 2..]).unwrap();
        for _ in 0..2 {
            assert_eq!(peer.read(0), Progress::Message(Message { head: head.clone(), body: b"abc".to_vec() }));
        }
        drop(client);
        assert_eq!(peer.read(0), Progress::Gone);
    }

    #[test]
    fn a_message_that_claims_too_much_is_refused_unread() {
        let (mut client, mut peer) = pair();
        let body = u32::try_from(MAX_BODY + 1).unwrap();
        client.write_all(&[2_u32.to_le_bytes(), body.to_le_bytes()].concat()).unwrap();
        assert_eq!(peer.read(0), Progress::Gone);
    }

    #[test]
    fn what_a_message_claims_counts_before_it_has_come() {
        let (mut client, mut peer) = pair();
        client.write_all(&frame(&Request::Ping.encode(), 1_000_000).unwrap()).unwrap();
        assert_eq!(peer.read(0), Progress::Partial);
        assert!(peer.bytes() > 1_000_000);
        assert_eq!(peer.stalls_at(), Some(STALL_MS));
    }
}
