//! All execs of the session, and the bounds on them.
//!
//! | bound | what happens past it |
//! |---|---|
//! | [`MAX_RUNNING`] commands at once, [`MAX_LIVE`] with processes left | the next is refused as busy |
//! | [`MAX_KEPT_BYTES`] of kept output | results that ended first go, so that one more fits; else output is cut off |
//! | [`MAX_RESULTS`] results | those that ended first go |
//! | [`MAX_REMEMBERED`] ids of results that went | the oldest are forgotten |
//!
//! While the id of a result that went is remembered, asking for it again is refused: running the
//! command a second time is not what was asked.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::Hasher as _;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, WaitStatus, getpid};

use super::launch::Launcher;
use super::record::Exec;
use super::supervise::ended_well;
use crate::files::Fence;
use crate::oom::OomWatch;
use crate::tree;
use crate::wire::{ExecRequest, MAX_BODY, Refusal, RefusalKind};

pub const MAX_RUNNING: usize = 64;
pub const MAX_LIVE: usize = 128;
pub const MAX_RESULTS: usize = 256;
pub const MAX_KEPT_BYTES: u64 = 64 * 1024 * 1024;
pub const MAX_REMEMBERED: usize = 4_096;
/// The longest time-out: a day.
const MAX_TIMEOUT_MS: u64 = 24 * 3600 * 1000;
/// Between two sweeps for processes that have lost their supervisor.
const STRAYS_AGAIN_MS: u64 = 20;

#[derive(Debug)]
pub struct Execs {
    launcher: Launcher,
    oom: OomWatch,
    null: OwnedFd,
    all: BTreeMap<String, Exec>,
    /// Those that ended, in that order.
    ended: VecDeque<String>,
    remembered: VecDeque<u64>,
    /// Ids of those for which there was no process, until they are asked for again.
    unstarted: VecDeque<u64>,
    strays_at: Option<u64>,
}

impl Execs {
    pub fn new(launcher: Launcher, oom: OomWatch, null: OwnedFd) -> Self {
        let (ended, remembered, unstarted) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { launcher, oom, null, all: BTreeMap::new(), ended, remembered, unstarted, strays_at: None }
    }

    /// See [`Launcher::prepare`].
    pub fn prepare(&mut self) {
        self.launcher.prepare();
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Exec)> {
        self.all.iter().map(|(id, exec)| (id.as_str(), exec))
    }

    /// Those that run or have left processes behind.
    pub fn live(&self) -> usize {
        self.all.values().filter(|exec| !exec.gone()).count()
    }

    pub fn running(&self) -> usize {
        self.all.values().filter(|exec| !exec.ended()).count()
    }

    pub fn get(&self, id: &str) -> Result<&Exec, Refusal> {
        match self.all.get(id) {
            Some(exec) if exec.evicted => Err(evicted()),
            Some(exec) => Ok(exec),
            None if self.unstarted.contains(&hash(&id)) => Err(no_process(&"the limit of processes is reached")),
            None if self.remembered.contains(&hash(&id)) => Err(evicted()),
            None => Err(Refusal::new(RefusalKind::NotFound, "there is no exec with this id in the session")),
        }
    }

    /// Whether nothing of it is left but, perhaps, the record.
    pub fn gone(&self, id: &str) -> bool {
        self.all.get(id).is_none_or(Exec::gone)
    }

    /// Starts the command, unless its id is known.
    pub fn start(&mut self, request: &ExecRequest, stdin: &[u8], fence: &Fence, now: u64) -> Result<(), Refusal> {
        let fingerprint = hash(&(&request.command, &request.cwd, stdin));
        let id = hash(&request.id.as_str());
        self.unstarted.retain(|other| *other != id);
        match self.get(&request.id) {
            Ok(exec) if exec.fingerprint == fingerprint => return Ok(()),
            Ok(_) => return Err(Refusal::new(RefusalKind::Conflict, "this exec id belongs to another command")),
            Err(refusal) if refusal.kind == RefusalKind::NotFound => {}
            Err(refusal) => return Err(refusal),
        }
        if self.running() >= MAX_RUNNING || self.live() >= MAX_LIVE {
            let message = format!("{MAX_RUNNING} commands run, or {MAX_LIVE} have left processes; end some first");
            return Err(Refusal::new(RefusalKind::Busy, message));
        }
        let cwd = fence.folder(request.cwd.as_deref())?;
        let launched = self.launcher.launch(request, stdin, cwd).map_err(|error| no_process(&error))?;
        let cap = request.keep.min(MAX_BODY as u64);
        let timeout_ms = request.timeout_ms.min(MAX_TIMEOUT_MS);
        let mut exec = Exec::new(launched, fingerprint, cap, timeout_ms, self.oom.clone(), now);
        for other in self.all.values_mut().filter(|other| !other.ended()) {
            other.accompany();
            exec.accompany();
        }
        self.all.insert(request.id.clone(), exec);
        Ok(())
    }

    pub fn kill(&mut self, id: &str, now: u64) -> Result<(), Refusal> {
        match self.all.get_mut(id) {
            // Also one whose output was given up: its processes may still live.
            Some(exec) => {
                exec.kill(now);
                Ok(())
            }
            None => self.get(id).map(drop),
        }
    }

    /// Drops the result; an exec that still runs keeps its record.
    pub fn forget(&mut self, id: &str) -> Result<(), Refusal> {
        if !self.get(id)?.ended() {
            return Err(Refusal::new(RefusalKind::Busy, "the exec still runs"));
        }
        self.evict(id);
        self.ended.retain(|other| other != id);
        Ok(())
    }

    /// What the maker of supervisors is heard by.
    pub fn maker(&self) -> Option<&OwnedFd> {
        self.launcher.line()
    }

    pub fn on_made(&mut self) {
        self.launcher.take_made();
    }

    pub fn on_output(&mut self, id: &str) {
        self.with(id, |exec, null, allowance| exec.on_output(null, allowance));
    }

    pub fn on_status(&mut self, id: &str, now: u64) {
        self.with(id, |exec, null, allowance| exec.on_status(null, allowance, now));
    }

    /// A child of the init has ended: a supervisor, or a process that had lost its own.
    pub fn on_reaped(&mut self, pid: Pid, status: WaitStatus, now: u64) {
        if self.launcher.forget(pid) {
            // What waited below it ends when it hears nothing; whatever became of it goes with the others.
            self.strays_at = Some(now);
            return;
        }
        let Some(id) = self.all.iter().find(|(_, exec)| exec.supervisor() == Some(pid)).map(|(id, _)| id.clone())
        else {
            return;
        };
        self.with(&id, |exec, null, allowance| exec.on_reaped(ended_well(status), null, allowance, now));
        if !ended_well(status) {
            self.strays_at = Some(now);
        }
    }

    /// When [`Self::tick`] has something to do.
    pub fn next_tick(&self) -> Option<u64> {
        self.all.values().filter_map(Exec::next_tick).chain(self.strays_at).min()
    }

    pub fn tick(&mut self, now: u64) {
        for exec in self.all.values_mut() {
            exec.tick(now);
        }
        if self.strays_at.is_some_and(|at| now >= at) {
            self.clear_strays(now);
        }
        // Those with processes left stay as long as these, but not their output.
        while self.ended.len() > MAX_RESULTS && self.evict_oldest(|_| true) {}
        self.drop_evicted();
    }

    /// Kills what has lost its supervisor: nobody could say any more whose it is.
    fn clear_strays(&mut self, now: u64) {
        let supervisors = self.all.values().filter_map(Exec::supervisor).chain(self.launcher.own());
        let spared: BTreeSet<i32> = supervisors.map(|pid| pid.as_raw_nonzero().get()).collect();
        if tree::kill_below(&[getpid().as_raw_nonzero().get()], &spared) > 0 {
            self.strays_at = Some(now.saturating_add(STRAYS_AGAIN_MS));
            return;
        }
        self.strays_at = None;
        let bereft: Vec<_> = self.all.iter().filter(|(_, exec)| exec.bereft()).map(|(id, _)| id.clone()).collect();
        for id in bereft {
            self.with(&id, |exec, null, allowance| exec.on_strays_cleared(null, allowance, now));
        }
    }

    /// Makes room for output, acts on one exec, and notes when that made it end.
    fn with(&mut self, id: &str, act: impl FnOnce(&mut Exec, &OwnedFd, u64)) {
        while self.allowance() < MAX_BODY as u64 && self.evict_oldest(|exec| exec.kept() > 0) {}
        let allowance = self.allowance();
        let Some(exec) = self.all.get_mut(id) else { return };
        let before = exec.ended();
        act(exec, &self.null, allowance);
        if exec.ended() && !before {
            self.ended.push_back(id.to_owned());
        } else if exec.never_started() {
            self.all.remove(id);
            if self.unstarted.len() == MAX_RUNNING {
                self.unstarted.pop_front();
            }
            self.unstarted.push_back(hash(&id));
        }
    }

    /// Bytes of output that may still be kept.
    fn allowance(&self) -> u64 {
        MAX_KEPT_BYTES.saturating_sub(self.all.values().map(Exec::kept).sum())
    }

    /// Gives up the result that ended first of those that qualify; whether there was one.
    fn evict_oldest(&mut self, qualifies: impl Fn(&Exec) -> bool) -> bool {
        let qualifies = |id: &String| self.all.get(id).is_none_or(&qualifies);
        let Some(id) = self.ended.iter().position(qualifies).and_then(|at| self.ended.remove(at)) else { return false };
        self.evict(&id);
        true
    }

    fn evict(&mut self, id: &str) {
        if let Some(exec) = self.all.get_mut(id) {
            exec.drop_output();
        }
        self.drop_evicted();
    }

    fn drop_evicted(&mut self) {
        let gone: Vec<_> =
            self.all.iter().filter(|(_, exec)| exec.evicted && exec.gone()).map(|(id, _)| id.clone()).collect();
        for id in gone {
            self.all.remove(&id);
            if self.remembered.len() == MAX_REMEMBERED {
                self.remembered.pop_front();
            }
            self.remembered.push_back(hash(&id.as_str()));
        }
    }
}

fn no_process(why: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        RefusalKind::Busy,
        format!(
            "no process could be started in the session: {why}; end what a command has left running with sandbox_kill \
             and its exec_id, and try again"
        ),
    )
}

fn evicted() -> Refusal {
    Refusal::new(RefusalKind::Evicted, "the exec ended, and its result is no longer kept")
}

fn hash(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
