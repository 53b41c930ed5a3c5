//! Signals as something to poll for. Blocked signals wait in a descriptor, so that there are no
//! handlers and nothing runs between two instructions. Blocking also lets process 1 of a PID
//! namespace receive TERM, which the kernel would drop there if it were merely not handled.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A descriptor that is readable when a child ended or somebody asks this process to end.
#[derive(Debug)]
pub struct Signals(OwnedFd);

/// What has arrived since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Arrived {
    pub child: bool,
    pub end: bool,
}

impl Signals {
    pub fn block() -> io::Result<Self> {
        // SAFETY: the set lives on this stack and is initialised by `sigemptyset` before its use; all
        // calls only read it or write into it. The descriptor is fresh and owned by nobody else.
        unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT] {
                libc::sigaddset(&raw mut set, signal);
            }
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // Writing past a file-size limit is to be an error here, not the end.
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            Ok(Self(OwnedFd::from_raw_fd(fd)))
        }
    }

    pub const fn fd(&self) -> &OwnedFd {
        &self.0
    }

    pub fn take(&self) -> Arrived {
        let mut arrived = Arrived::default();
        loop {
            // SAFETY: an all-zero `signalfd_siginfo` is a valid one; the kernel writes at most its size
            // into it, and signalfd returns whole records only.
            let (read, signal, sender) = unsafe {
                let mut record = std::mem::zeroed::<libc::signalfd_siginfo>();
                let size = size_of::<libc::signalfd_siginfo>();
                let read = libc::read(self.0.as_raw_fd(), (&raw mut record).cast(), size);
                (read, record.ssi_signo, record.ssi_pid)
            };
            if read <= 0 {
                return arrived;
            }
            if signal == libc::SIGCHLD as u32 {
                arrived.child = true;
            } else if !is_from_inside(sender) {
                arrived.end = true;
            }
        }
    }
}

/// Whether code of the session sent it: what process 1 is told from outside of its namespace has no sender
/// that could be named in it. A command that asks everything to end does not end its session.
fn is_from_inside(sender: u32) -> bool {
    std::process::id() == 1 && sender != 0
}

/// Gives a process that is about to run a command what a fresh one has: no blocked signals, and the
/// default for those that this program or its runtime ignores.
pub fn reset_for_command() {
    // SAFETY: the set is initialised before its use; the calls change only this process's own signal
    // state, and no handler is installed that could run.
    unsafe {
        for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}
