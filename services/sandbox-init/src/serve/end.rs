//! The end of the session: every process dies before those who asked for it are told.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};

use super::{Answer, Body, Parked, Session, awake_ms, getpid};
use crate::tree;

/// How long the end may take before the init goes all the same. Only a process that the kernel itself
/// holds on to, in a read from a dead disk for instance, outlives a KILL.
const PATIENCE_MS: u64 = 10_000;
/// Between two sweeps.
const SWEEP: Duration = Duration::from_millis(5);
/// How long the last answer may take to be taken.
const FAREWELL_MS: u64 = 1_000;

impl Session {
    pub(super) fn end(mut self, socket: &Path) {
        // Nobody is to connect to what is about to go.
        std::fs::remove_file(socket).ok();
        kill_everything();
        let now = awake_ms();
        let asked: Vec<u64> =
            self.peers.iter().filter(|(_, peer)| peer.parked() == Some(&Parked::Session)).map(|(id, _)| *id).collect();
        for id in asked {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.stream().set_nonblocking(false).ok();
                peer.stream().set_write_timeout(Some(Duration::from_millis(FAREWELL_MS))).ok();
            }
            self.answer(id, &Answer::Done, Body::none(), now);
        }
    }
}

/// Kills all that runs below this process, until there is nobody left to wait for.
fn kill_everything() {
    let own = getpid();
    let give_up = awake_ms().saturating_add(PATIENCE_MS);
    while awake_ms() < give_up {
        if own == Pid::INIT {
            // All of the namespace but this process, and in one step.
            kill_process_group(Pid::INIT, Signal::KILL).ok();
        } else {
            tree::kill_below(&[own.as_raw_nonzero().get()], &BTreeSet::new());
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        std::thread::sleep(SWEEP);
    }
}
