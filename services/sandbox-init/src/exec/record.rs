//! One exec, from its start until nothing of it is left.
//!
//! It *ends* when its command ends; from then on its result stands. What the command left behind
//! lives on below the supervisor, and its output is thrown away, until the session ends or the exec is
//! killed. A time-out or a kill before that end takes the whole tree, and then the exec ends when the
//! tree is dead. A time-out that has not struck when the command ends never does.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::launch::Launched;
use super::output::{Flow, Output, discard};
use super::supervise::{NEVER_STARTED, WAITS, read_status};
use crate::oom::OomWatch;
use crate::tree;
use crate::wire::Report;

/// From TERM to KILL.
const GRACE_MS: u64 = 2_000;
/// Between two tries to kill what forked away from the one before.
const KILL_AGAIN_MS: u64 = 20;
/// How long a supervisor may take to notice that its tree is dead before it is taken for stopped.
const SUPERVISOR_MS: u64 = 1_000;
/// Bytes of a left-behind process's output that are thrown away before others get their turn.
const DISCARD_TURN: usize = 1024 * 1024;

/// The tree is being ended.
#[derive(Debug, Clone, Copy)]
struct Killing {
    kill_at: u64,
    next: u64,
}

#[derive(Debug)]
pub struct Exec {
    /// Of what makes it this command and not another.
    pub fingerprint: u64,
    /// Its output was given up for want of room; its tree may still live.
    pub evicted: bool,
    output: Output,
    pipe: Option<OwnedFd>,
    status: Option<OwnedFd>,
    /// Until it was waited for, so that its id cannot be another's.
    supervisor: Option<Pid>,
    started: u64,
    deadline: u64,
    /// The command's code and signal, once it has ended.
    exit: Option<(i32, i32)>,
    /// The result, once it stands.
    result: Option<Report>,
    killing: Option<Killing>,
    timed_out: bool,
    killed: bool,
    /// The supervisor died before its tree; what it held is below the init now.
    bereft: bool,
    oom: OomWatch,
    oom_before: u64,
    /// No other command ran while this one did.
    alone: bool,
    /// There was no process for it.
    never_started: bool,
}

impl Exec {
    pub fn new(launched: Launched, fingerprint: u64, cap: u64, timeout_ms: u64, oom: OomWatch, now: u64) -> Self {
        Self {
            fingerprint,
            evicted: false,
            output: Output::with_cap(cap),
            pipe: Some(launched.output),
            status: Some(launched.status),
            supervisor: Some(launched.supervisor),
            started: now,
            deadline: now.saturating_add(timeout_ms),
            exit: None,
            result: None,
            killing: None,
            timed_out: false,
            killed: false,
            bereft: false,
            oom_before: oom.kills(),
            oom,
            alone: true,
            never_started: false,
        }
    }

    /// Another command runs at the same time.
    pub const fn accompany(&mut self) {
        self.alone = false;
    }

    /// Whether it came to nothing for want of a process.
    pub const fn never_started(&self) -> bool {
        self.never_started
    }

    /// Whether its result stands.
    pub const fn ended(&self) -> bool {
        self.result.is_some()
    }

    /// Whether nothing of it is left but the record.
    pub const fn gone(&self) -> bool {
        self.result.is_some() && self.supervisor.is_none() && !self.bereft
    }

    pub const fn bereft(&self) -> bool {
        self.bereft
    }

    pub const fn supervisor(&self) -> Option<Pid> {
        self.supervisor
    }

    pub const fn kept(&self) -> u64 {
        self.output.kept()
    }

    pub const fn pipe(&self) -> Option<&OwnedFd> {
        self.pipe.as_ref()
    }

    pub const fn status(&self) -> Option<&OwnedFd> {
        self.status.as_ref()
    }

    pub fn report(&self, now: u64) -> Report {
        self.result.clone().unwrap_or_else(|| Report {
            output_bytes: self.output.total(),
            duration_ms: now.saturating_sub(self.started),
            ..Report::default()
        })
    }

    /// The output kept so far and its length.
    pub fn output(&self) -> Option<(Arc<File>, u64)> {
        self.output.file().map(|file| (file, self.output.kept()))
    }

    pub fn drop_output(&mut self) {
        self.output = Output::default();
        self.evicted = true;
    }

    /// The pipe has something.
    pub fn on_output(&mut self, null: &OwnedFd, allowance: u64) {
        let Some(pipe) = &self.pipe else { return };
        let closed = if self.ended() {
            // Left behind: closing the pipe would kill whoever writes to it.
            !matches!(discard(pipe, null, DISCARD_TURN), Ok(1..) | Err(Errno::AGAIN | Errno::INTR))
        } else {
            self.output.absorb(pipe, null, allowance) == Flow::Closed
        };
        if closed {
            self.pipe = None;
        }
    }

    /// The supervisor has a word on the command, or is gone.
    pub fn on_status(&mut self, null: &OwnedFd, allowance: u64, now: u64) {
        while let Some(status) = &self.status {
            match read_status(status) {
                Ok(Some((WAITS, _))) | Err(Errno::INTR) => {}
                Ok(Some((NEVER_STARTED, _))) => {
                    self.never_started = true;
                    return;
                }
                Ok(Some(exit)) => {
                    if self.exit.is_none() {
                        self.exit = Some(exit);
                    }
                    if self.killing.is_none() && !self.ended() {
                        self.settle(null, allowance, now);
                    }
                    return;
                }
                Err(Errno::AGAIN) => return,
                // Its end is seen when it is waited for.
                Ok(None) | Err(_) => self.status = None,
            }
        }
    }

    /// The supervisor was waited for. `well`: because its tree was empty.
    pub fn on_reaped(&mut self, well: bool, null: &OwnedFd, allowance: u64, now: u64) {
        // What it said before it went comes first.
        self.on_status(null, allowance, now);
        self.supervisor = None;
        self.status = None;
        self.bereft = !well;
        if well {
            self.finish(null, allowance, now);
        }
    }

    /// Nothing below the init is without a supervisor any more.
    pub fn on_strays_cleared(&mut self, null: &OwnedFd, allowance: u64, now: u64) {
        self.bereft = false;
        self.finish(null, allowance, now);
    }

    fn finish(&mut self, null: &OwnedFd, allowance: u64, now: u64) {
        self.killing = None;
        if !self.ended() {
            self.settle(null, allowance, now);
        }
        self.pipe = None;
    }

    /// The result stands from here on.
    fn settle(&mut self, null: &OwnedFd, allowance: u64, now: u64) {
        if let Some(pipe) = &self.pipe {
            self.output.absorb_rest(pipe, null, allowance);
        }
        let (code, signal) = self.exit.unwrap_or((128 + libc::SIGKILL, libc::SIGKILL));
        let ours = self.timed_out || self.killed;
        // A child may have been killed of a command that went on and ended well; whose it was is clear only if no
        // other command ran.
        let may_be_its = code != 0 || self.alone;
        self.result = Some(Report {
            exit_code: Some(code),
            signal: u32::try_from(signal).unwrap_or(0),
            timed_out: self.timed_out,
            killed: self.killed,
            oom_killed: !ours && may_be_its && self.oom.kills() > self.oom_before,
            output_bytes: self.output.total(),
            duration_ms: now.saturating_sub(self.started),
        });
    }

    /// Ends the tree: asks now, kills after the grace.
    pub fn kill(&mut self, now: u64) {
        if self.supervisor.is_none() || self.killing.is_some() {
            return;
        }
        self.killed = self.killed || !self.ended();
        self.begin_killing(now);
    }

    fn begin_killing(&mut self, now: u64) {
        if let Some(supervisor) = self.supervisor {
            tree::terminate_below(supervisor.as_raw_nonzero().get());
            let kill_at = now.saturating_add(GRACE_MS);
            self.killing = Some(Killing { kill_at, next: kill_at });
        }
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_tick(&self) -> Option<u64> {
        match self.killing {
            Some(killing) => Some(killing.next),
            None if !self.ended() && self.supervisor.is_some() => Some(self.deadline),
            None => None,
        }
    }

    pub fn tick(&mut self, now: u64) {
        if self.killing.is_none() && !self.ended() && self.supervisor.is_some() && now >= self.deadline {
            self.timed_out = true;
            self.begin_killing(now);
        }
        let Some(killing) = &mut self.killing else { return };
        if now < killing.next {
            return;
        }
        killing.next = now.saturating_add(KILL_AGAIN_MS);
        let overdue = now > killing.kill_at.saturating_add(SUPERVISOR_MS);
        if let Some(supervisor) = self.supervisor {
            let left = tree::kill_below(&[supervisor.as_raw_nonzero().get()], &std::collections::BTreeSet::new());
            // Code of the same user may have stopped it. It is this process's child and was not waited
            // for, so the id is still its own.
            kill_process(supervisor, Signal::CONT).ok();
            if overdue && left == 0 {
                kill_process(supervisor, Signal::KILL).ok();
            }
        }
    }
}
