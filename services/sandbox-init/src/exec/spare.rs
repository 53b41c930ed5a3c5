//! A supervisor that waits for a command, and how its process for the command is told of it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, Signal, kill_process};

use super::launch::{Job, Launched};
use super::supervise::{WAITS, read_status};
use crate::wire::ExecRequest;

/// Bytes of a request that are handed to a process that waits; for a larger one another is forked.
const MAX_HANDED: usize = 32 * 1024;

/// From the init to a process that waits for its command: one message. Code of the session cannot
/// reach it, as neither side can be traced.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    pub fn pair() -> rustix::io::Result<(Self, Self)> {
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), Self(its)))
    }

    pub const fn fd(&self) -> &OwnedFd {
        &self.0
    }

    pub fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// The waiting side. `None` when nothing will come; an error when what came cannot be carried out.
    pub fn await_job(&self) -> io::Result<Option<Job<ExecRequest>>> {
        let mut bytes = vec![0; MAX_HANDED];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let message = loop {
            match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                other => break other?,
            }
        };
        if message.bytes == 0 {
            return Ok(None);
        }
        let mut files = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let request = ExecRequest::from_bytes(&bytes[..message.bytes]);
        match (request, files.next(), files.next()) {
            (Ok(request), Some(cwd), Some(stdin)) => Ok(Some(Job { request, cwd, stdin })),
            // No room for the files, most likely: the kernel then gives what it can.
            _ => Err(io::Error::other("the command did not come whole")),
        }
    }

    fn hand(&self, job: &Job<&ExecRequest>) -> bool {
        let bytes = job.request.to_bytes();
        let files = [job.cwd.as_fd(), job.stdin.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        bytes.len() <= MAX_HANDED
            && control.push(SendAncillaryMessage::ScmRights(&files))
            && sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags).is_ok_and(|sent| sent == bytes.len())
    }
}

impl From<OwnedFd> for Channel {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

/// A supervisor whose command is yet to come.
#[derive(Debug)]
pub struct Spare {
    launched: Launched,
    channel: Channel,
}

impl Spare {
    pub const fn new(launched: Launched, channel: Channel) -> Self {
        Self { launched, channel }
    }

    pub const fn supervisor(&self) -> Pid {
        self.launched.supervisor
    }

    /// Gives it its command; back comes one that it cannot take.
    pub fn give(self, job: Job<&ExecRequest>) -> Result<Launched, Job<&ExecRequest>> {
        let waiting = match read_status(&self.launched.status) {
            Ok(Some((WAITS, process))) => Pid::from_raw(process),
            // Not yet: what is sent now is found then.
            Err(Errno::AGAIN) => None,
            _ => return Err(job),
        };
        if !self.channel.hand(&job) {
            return Err(job);
        }
        // Code of the same user may have stopped them while they waited. An id that is another's by now would
        // be told to go on, which it does.
        for process in [Some(self.launched.supervisor), waiting].into_iter().flatten() {
            kill_process(process, Signal::CONT).ok();
        }
        Ok(self.launched)
    }
}
