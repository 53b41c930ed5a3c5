//! What an exec wrote: its first bytes in a memory file, the rest counted.
//!
//! A memory file and not the heap: it is not copied when a supervisor is forked, it can be sent
//! while it grows, and its pages count as the session's.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, ioctl_fionread};
use rustix::pipe::{SpliceFlags, splice};

/// Bytes read from one exec before the others get their turn.
const TURN: usize = 256 * 1024;
const CHUNK: usize = 64 * 1024;

/// Output up to a cap.
#[derive(Debug, Default)]
pub struct Output {
    file: Option<Arc<File>>,
    kept: u64,
    total: u64,
    cap: u64,
}

/// What a look into the pipe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    Open,
    /// Nobody can write to it any more.
    Closed,
}

impl Output {
    pub fn with_cap(cap: u64) -> Self {
        Self { cap, ..Self::default() }
    }

    pub const fn kept(&self) -> u64 {
        self.kept
    }

    pub const fn total(&self) -> u64 {
        self.total
    }

    /// What was kept so far. It only grows, so a length taken now stays valid.
    pub fn file(&self) -> Option<Arc<File>> {
        self.file.clone()
    }

    /// Takes what is in the pipe, `TURN` bytes at most. `allowance` is how many more bytes may be kept
    /// in the whole session.
    pub fn absorb(&mut self, pipe: &OwnedFd, null: &OwnedFd, allowance: u64) -> Flow {
        self.take(pipe, null, TURN, allowance)
    }

    /// Takes what is in the pipe now and nothing that is written after.
    pub fn absorb_rest(&mut self, pipe: &OwnedFd, null: &OwnedFd, allowance: u64) {
        let waiting = ioctl_fionread(pipe).unwrap_or(0);
        self.take(pipe, null, usize::try_from(waiting).unwrap_or(TURN), allowance);
    }

    fn take(&mut self, pipe: &OwnedFd, null: &OwnedFd, most: usize, allowance: u64) -> Flow {
        let mut allowance = allowance;
        let mut left = most;
        while left > 0 {
            let room = self.cap.saturating_sub(self.kept).min(allowance);
            let moved = if room > 0 { self.keep(pipe, left, room, &mut allowance) } else { discard(pipe, null, left) };
            match moved {
                Ok(0) => return Flow::Closed,
                Ok(moved) => {
                    self.total = self.total.saturating_add(moved as u64);
                    left = left.saturating_sub(moved);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Flow::Open,
                Err(_) => return Flow::Closed,
            }
        }
        Flow::Open
    }

    fn keep(&mut self, pipe: &OwnedFd, left: usize, room: u64, allowance: &mut u64) -> Result<usize, Errno> {
        // On the heap and not filled: what a fork has to copy later is what was written to.
        let mut chunk = Vec::with_capacity(left.min(CHUNK));
        let read = rustix::io::read(pipe, spare_capacity(&mut chunk))?;
        let keep = usize::try_from(room).unwrap_or(usize::MAX).min(read);
        if self.store(&chunk[..keep]) {
            *allowance = allowance.saturating_sub(keep as u64);
        } else {
            // No memory for more: what there is stays, and counts as cut off.
            self.cap = self.kept;
        }
        Ok(read)
    }

    fn store(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        if self.file.is_none() {
            self.file = memfd_create("output", MemfdFlags::CLOEXEC).ok().map(|fd| Arc::new(File::from(fd)));
        }
        let stored = self.file.as_ref().is_some_and(|file| file.write_all_at(bytes, self.kept).is_ok());
        if stored {
            self.kept += bytes.len() as u64;
        }
        stored
    }
}

/// Empties the pipe without copying what is in it, where the kernel can.
pub fn discard(pipe: &OwnedFd, null: &OwnedFd, most: usize) -> Result<usize, Errno> {
    match splice(pipe.as_fd(), None, null.as_fd(), None, most, SpliceFlags::NONBLOCK) {
        Err(Errno::INVAL | Errno::NOSYS) => {
            let mut chunk = Vec::with_capacity(most.min(CHUNK));
            rustix::io::read(pipe, spare_capacity(&mut chunk))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use rustix::pipe::{PipeFlags, pipe_with};

    fn null() -> OwnedFd {
        open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    fn filled(bytes: &[u8]) -> (OwnedFd, OwnedFd) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        assert_eq!(rustix::io::write(&writer, bytes).unwrap(), bytes.len());
        (reader, writer)
    }

    #[test]
    fn output_of_exactly_the_cap_is_whole_and_one_byte_more_is_not() {
        for (len, kept) in [(9_u64, 9_u64), (10, 10), (11, 10), (4_000, 10)] {
            let (reader, writer) = filled(&vec![b'x'; usize::try_from(len).unwrap()]);
            drop(writer);
            let mut output = Output::with_cap(10);
            assert_eq!(output.absorb(&reader, &null(), u64::MAX), Flow::Closed);
            assert_eq!((output.kept(), output.total()), (kept, len));
        }
    }

    #[test]
    fn a_spent_allowance_cuts_off_before_the_cap_does() {
        let (reader, _writer) = filled(b"0123456789");
        let mut output = Output::with_cap(100);
        assert_eq!(output.absorb(&reader, &null(), 4), Flow::Open);
        assert_eq!((output.kept(), output.total()), (4, 10));
    }

    #[test]
    fn taking_the_rest_ends_although_the_pipe_stays_open() {
        let (reader, _writer) = filled(b"tail");
        let mut output = Output::with_cap(100);
        output.absorb_rest(&reader, &null(), u64::MAX);
        let mut text = [0; 4];
        output.file().unwrap().read_exact_at(&mut text, 0).unwrap();
        assert_eq!(&text, b"tail");
    }
}
