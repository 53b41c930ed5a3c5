//! A process that makes supervisors ahead of their commands.
//!
//! A fork of its own, so that neither the init nor a command is held up while it forks, and the init's memory is not
//! shared with what it makes: then the kernel need not copy it, page by page, when the init goes on.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recv,
    recvmsg, send, sendmsg,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process, setsid, waitid};

use super::launch::{Base, Launched, Source, start_supervisor};
use super::spare::{Channel, Spare};
use super::supervise;

/// The init's side.
#[derive(Debug)]
pub struct Maker {
    process: Pid,
    line: OwnedFd,
    asked: bool,
}

/// What the maker has said.
pub enum Made {
    Spare(Spare),
    Nothing,
    Gone,
}

impl Maker {
    pub fn start(base: &Base) -> io::Result<Self> {
        let (ours, its) = Channel::pair()?;
        let init = getpid();
        // SAFETY: this process has one thread, so the child may do whatever the parent might; it never
        // returns from `serve`, and so drops nothing that the parent still owns.
        match unsafe { libc::fork() } {
            0 => serve(base, its.fd(), init),
            pid => {
                let process = Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error)?;
                Ok(Self { process, line: ours.into_fd(), asked: false })
            }
        }
    }

    pub const fn process(&self) -> Pid {
        self.process
    }

    pub const fn line(&self) -> &OwnedFd {
        &self.line
    }

    pub const fn asked(&self) -> bool {
        self.asked
    }

    /// Asks for one, unless it is being made; whether that worked.
    pub fn ask(&mut self) -> bool {
        // Code of the same user may have stopped it.
        kill_process(self.process, Signal::CONT).ok();
        self.asked = self.asked || send(&self.line, &[1], SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok();
        self.asked
    }

    pub fn take(&mut self) -> Made {
        if !self.asked {
            return Made::Nothing;
        }
        let mut pid = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let read = match recvmsg(&self.line, &mut [IoSliceMut::new(&mut pid)], &mut control, flags) {
            Ok(message) => message.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Made::Nothing,
            Err(_) => return Made::Gone,
        };
        let mut files = control.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        self.asked = false;
        match (read, Pid::from_raw(i32::from_le_bytes(pid)), files.next(), files.next(), files.next()) {
            // One that has ended and was waited for before it was known here would never be heard of again.
            (4, Some(supervisor), Some(output), Some(status), Some(channel)) if is_child(supervisor) => {
                Made::Spare(Spare::new(Launched { supervisor, output, status }, Channel::from(channel)))
            }
            // It could not, this time.
            (4, ..) => Made::Nothing,
            _ => Made::Gone,
        }
    }
}

/// Whether it is this process's and was not waited for, so that the id is its own.
fn is_child(process: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(process), look).is_ok()
}

/// The life of the maker. Runs in the forked process and never returns.
fn serve(base: &Base, line: &OwnedFd, init: Pid) -> ! {
    // The init's end is seen at the line; what it blocks and ignores is what supervisors do.
    setsid().ok();
    supervise::keep_only(vec![line.as_raw_fd()]);
    let mut asked = [0];
    while getppid() == Some(init) {
        match recv(line, &mut asked, RecvFlags::empty()) {
            Ok((1.., _)) => {}
            Err(Errno::INTR) => continue,
            _ => break,
        }
        let told = match make(base, init) {
            Ok((made, channel)) => tell(line, &made, &channel),
            Err(_) => send(line, &0_i32.to_le_bytes(), SendFlags::NOSIGNAL).is_ok(),
        };
        if !told {
            break;
        }
    }
    supervise::end(0)
}

fn make(base: &Base, init: Pid) -> io::Result<(Launched, Channel)> {
    let (ours, its) = Channel::pair()?;
    let flags = libc::c_long::from(libc::CLONE_PARENT | libc::SIGCHLD);
    let launched = start_supervisor(base, Source::Awaited(its), init, |plan| {
        // SAFETY: as for `fork`, of which this is the same with another parent: the init, whose child each
        // supervisor is. No stack and no memory is shared.
        match unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) } {
            0 => supervise::supervise(plan),
            pid => i32::try_from(pid).unwrap_or(-1),
        }
    })?;
    Ok((launched, ours))
}

fn tell(line: &OwnedFd, made: &Launched, channel: &Channel) -> bool {
    let files = [made.output.as_fd(), made.status.as_fd(), channel.fd().as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let pid = made.supervisor.as_raw_nonzero().get().to_le_bytes();
    control.push(SendAncillaryMessage::ScmRights(&files))
        && sendmsg(line, &[IoSlice::new(&pid)], &mut control, SendFlags::NOSIGNAL).is_ok()
}
