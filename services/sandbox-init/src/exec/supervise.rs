//! An exec's supervisor: a fork of the init that starts the command, waits for it and for everything
//! that it leaves behind, and ends when nothing of it is left.
//!
//! Being a subreaper, it inherits whatever detaches itself from the command, so that "the tree of
//! this exec" is always what is below this one process. The init kills by that; this process only
//! waits, except when the init has died: then it clears the tree away itself.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, getppid, set_child_subreaper, set_parent_process_death_signal, setsid, wait,
};
use rustix::thread::sched_yield;

use super::launch::{Plan, Program, Source, pointers};
use super::plain::Plain;
use crate::signals::{Signals, reset_for_command};
use crate::wire::ExecRequest;
use crate::{confine, tree};

/// How a command ended: the exit code and the signal, as two little-endian `i32`.
const STATUS_BYTES: usize = 8;
/// In place of an exit code: there was no process for the command, which has done nothing.
pub const NEVER_STARTED: i32 = i32::MIN;
/// In place of an exit code: the process for the command is there, with its id in place of the signal. Said before the
/// command is known.
pub const WAITS: i32 = i32::MIN + 1;
/// Between two tries to kill what is left after the init has died.
const CLEARING: Duration = Duration::from_millis(10);

/// The life of a supervisor. Runs in the forked process and never returns.
pub fn supervise(plan: &Plan<'_>) -> ! {
    setsid().ok();
    set_child_subreaper(Some(getpid())).ok();
    set_parent_process_death_signal(Some(Signal::TERM)).ok();
    keep_only(plan.descriptors());
    let Ok(signals) = Signals::block() else { end(1) };
    // SAFETY: this process has one thread, as the init that it was forked from.
    let command = match unsafe { libc::fork() } {
        0 => become_command(plan),
        pid => pid,
    };
    if command < 0 {
        tell(plan, NEVER_STARTED, 0);
        end(0);
    }
    if matches!(plan.source, Source::Awaited(_)) {
        tell(plan, WAITS, command);
    }
    // The pipe is to end when the command's processes have closed it.
    plan.descriptors().into_iter().filter(|fd| *fd != plan.status.as_raw_fd()).for_each(close);
    loop {
        reap(plan, command);
        if getppid() != Some(plan.init) {
            tree::kill_below(&[getpid().as_raw_nonzero().get()], &BTreeSet::new());
            std::thread::sleep(CLEARING);
            continue;
        }
        let mut fds = [PollFd::new(signals.fd(), PollFlags::IN)];
        poll(&mut fds, None).ok();
        signals.take();
    }
}

/// Waits for all that have ended, and ends itself when there is nobody left to wait for.
fn reap(plan: &Plan<'_>, command: i32) {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == command => {
                let signal = status.terminating_signal().unwrap_or(0);
                tell(plan, status.exit_status().unwrap_or(128 + signal), signal);
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return,
            Err(_) => {
                // Whoever waits for the word just given goes first: to end takes longer than to be told.
                sched_yield();
                end(0)
            }
        }
    }
}

fn tell(plan: &Plan<'_>, code: i32, signal: i32) {
    let mut message = [0; STATUS_BYTES];
    message[..4].copy_from_slice(&code.to_le_bytes());
    message[4..].copy_from_slice(&signal.to_le_bytes());
    // An init that is gone does not listen; then there is nobody to tell.
    rustix::io::write(&plan.status, &message).ok();
}

/// Turns this fork of the supervisor into the command.
fn become_command(plan: &Plan<'_>) -> ! {
    setsid().ok();
    reset_for_command();
    confine::mark_for_oom();
    match &plan.source {
        Source::Known(job) => become_job(plan, job.request, &job.cwd, &job.stdin),
        Source::Awaited(channel) => match channel.await_job() {
            Ok(Some(job)) => become_job(plan, &job.request, &job.cwd, &job.stdin),
            Ok(None) => end(0),
            Err(error) => not_started(plan, &error),
        },
    }
}

fn become_job(plan: &Plan<'_>, request: &ExecRequest, cwd: &OwnedFd, stdin: &OwnedFd) -> ! {
    let error = match plan.base.program(request) {
        Ok(program) => become_program(plan, &program, cwd, stdin),
        Err(error) => error,
    };
    not_started(plan, &error)
}

fn not_started(plan: &Plan<'_>, error: &io::Error) -> ! {
    say(plan.output.as_raw_fd(), &format!("the shell could not be started: {error}\n"));
    end(if error.raw_os_error() == Some(libc::ENOENT) { 127 } else { 126 })
}

/// Returns why there is no program.
fn become_program(plan: &Plan<'_>, program: &Program, cwd: &OwnedFd, stdin: &OwnedFd) -> io::Error {
    let (argv, envp) = (pointers(&program.argv), pointers(&program.envp));
    // SAFETY: the descriptors are open, the strings and the arrays that end with a null live until the
    // process becomes another program, and nothing else runs in this one.
    unsafe {
        let ready = libc::fchdir(cwd.as_raw_fd()) == 0
            && libc::dup2(stdin.as_raw_fd(), 0) >= 0
            && libc::dup2(plan.output.as_raw_fd(), 1) >= 0
            && libc::dup2(plan.output.as_raw_fd(), 2) >= 0;
        if ready {
            if let Some(plain) = &program.plain {
                become_plain(plain);
            }
            libc::execve(plan.base.shell.as_ptr(), argv.as_ptr(), envp.as_ptr());
        }
    }
    io::Error::last_os_error()
}

/// Returns if the command cannot be started without a shell, which says why.
fn become_plain(plain: &Plain) {
    let Some(cwd) = std::env::current_dir().ok().filter(|cwd| cwd.is_absolute()) else { return };
    let Some(program) = plain.find() else { return };
    let entry = |name: &[u8], value: &[u8]| CString::new([name, b"=", value].concat());
    let (Ok(file), Ok(last), Ok(pwd)) = (
        CString::new(program.as_os_str().as_bytes()),
        entry(b"_", program.as_os_str().as_bytes()),
        entry(b"PWD", cwd.as_os_str().as_bytes()),
    ) else {
        return;
    };
    let argv = pointers(&plain.argv);
    let mut envp = pointers(&plain.envp);
    envp.splice(..0, [last.as_ptr(), pwd.as_ptr()]);
    // SAFETY: the strings and the arrays that end with a null live until the process becomes another
    // program, or until this returns.
    unsafe {
        libc::execve(file.as_ptr(), argv.as_ptr(), envp.as_ptr());
    }
}

/// Closes the init's own files: other execs' pipes must not be held open from here.
pub fn keep_only(mut keep: Vec<RawFd>) {
    keep.sort_unstable();
    let mut first = 3;
    for fd in keep {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: this forked process never drops the values that own these descriptors in the init.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if result != 0 {
        let open = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 16);
        let end = RawFd::try_from(open).unwrap_or(RawFd::MAX).min(1 << 16);
        (first..=last.min(end)).for_each(close);
    }
}

fn close(fd: RawFd) {
    // SAFETY: as above; and each descriptor is closed at most once here, or was never open.
    unsafe {
        libc::close(fd);
    }
}

fn say(fd: RawFd, text: &str) {
    // SAFETY: the output of the plan is open until this process ends or has closed it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::io::write(fd, text.as_bytes()).ok();
}

/// Without running anything that the init registered for its own end.
pub fn end(code: i32) -> ! {
    // SAFETY: `_exit` takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// Reads a supervisor's word on how the command ended; `None` when there will be none any more.
pub fn read_status(status: &OwnedFd) -> Result<Option<(i32, i32)>, Errno> {
    let mut message = [0; STATUS_BYTES];
    if rustix::io::read(status, &mut message)? != STATUS_BYTES {
        return Ok(None);
    }
    let [a, b, c, d, e, f, g, h] = message;
    Ok(Some((i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h]))))
}

/// Whether a supervisor ended because its tree was empty.
pub fn ended_well(status: rustix::process::WaitStatus) -> bool {
    status.exit_status() == Some(0)
}

/// All children of this process that have ended since the last look.
pub fn reap_all() -> Vec<(Pid, rustix::process::WaitStatus)> {
    let mut reaped = Vec::new();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(child)) => reaped.push(child),
            Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return reaped,
        }
    }
}
