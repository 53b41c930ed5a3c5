//! Process trees: who descends from whom, and signals that cannot hit a stranger.
//!
//! A process id may be given to another process between the look and the signal, and a local session
//! shares its ids with the whole host. So a signal goes through a descriptor of the process, opened
//! first and then compared with what was seen.

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, io};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

/// Looks at most this often for processes that were forked while the others were stopped.
const STOP_ROUNDS: usize = 16;

/// A process as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Clock ticks from the start of the machine to its own: with the id, its identity.
    pub started: u64,
    /// Dead, and not yet waited for.
    pub zombie: bool,
}

/// The process with this id, while there is one.
pub fn process(pid: i32) -> Option<Process> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(pid, &stat)
}

/// The name of a process is in parentheses and may hold anything, more parentheses too.
fn parse_stat(pid: i32, stat: &[u8]) -> Option<Process> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let zombie = matches!(fields.next()?, "Z" | "X" | "x");
    let parent = fields.next()?.parse().ok()?;
    // Field 22 of the line; the state is field 3.
    let started = fields.nth(17)?.parse().ok()?;
    Some(Process { pid, parent, started, zombie })
}

/// All processes that can be seen.
pub fn all() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        found.extend(pid.and_then(process));
    }
    Ok(found)
}

/// Those below `roots`, without the roots. What is below one in `spare` is left out, as is that one.
pub fn below(all: &[Process], roots: &[i32], spare: &BTreeSet<i32>) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(*process);
    }
    let mut found = Vec::new();
    let mut ahead: Vec<i32> = roots.to_vec();
    let mut seen: BTreeSet<i32> = roots.iter().copied().collect();
    while let Some(parent) = ahead.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if !spare.contains(&child.pid) && seen.insert(child.pid) {
                found.push(*child);
                ahead.push(child.pid);
            }
        }
    }
    found
}

/// Signals exactly this process; whether it was there to be signalled.
pub fn signal(target: Process, signal: Signal) -> bool {
    let Some(pid) = Pid::from_raw(target.pid) else { return false };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => {
            let same = process(target.pid).is_some_and(|now| now.started == target.started);
            same && pidfd_send_signal(fd, signal).is_ok()
        }
        // A kernel without such descriptors: only user-space kernels, which hold no strangers.
        Err(rustix::io::Errno::NOSYS) => kill_process(pid, signal).is_ok(),
        Err(_) => false,
    }
}

/// Asks all below `root` to end; how many there were that live.
pub fn terminate_below(root: i32) -> usize {
    let targets = living_below(&[root], &BTreeSet::new());
    for target in &targets {
        signal(*target, Signal::TERM);
    }
    targets.len()
}

/// Kills all below `roots` that are not in or below `spare`; how many there were that live. Stops
/// them first, until no new ones turn up: what is stopped cannot fork away from the killing.
pub fn kill_below(roots: &[i32], spare: &BTreeSet<i32>) -> usize {
    let mut stopped: BTreeMap<i32, Process> = BTreeMap::new();
    for _ in 0..STOP_ROUNDS {
        let mut fresh = false;
        for target in living_below(roots, spare) {
            let known = stopped.get(&target.pid).is_some_and(|seen| seen.started == target.started);
            if !known {
                signal(target, Signal::STOP);
                stopped.insert(target.pid, target);
                fresh = true;
            }
        }
        if !fresh {
            break;
        }
    }
    for target in stopped.values() {
        signal(*target, Signal::KILL);
    }
    stopped.len()
}

fn living_below(roots: &[i32], spare: &BTreeSet<i32>) -> Vec<Process> {
    let all = all().unwrap_or_default();
    below(&all, roots, spare).into_iter().filter(|process| !process.zombie).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pid: i32, parent: i32) -> Process {
        Process { pid, parent, started: 1, zombie: false }
    }

    #[test]
    fn a_name_full_of_parentheses_does_not_shift_the_fields() {
        let stat = b"42 (a) R 7 (x)) S 9 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 777 1 1 1";
        let process = parse_stat(42, stat).unwrap();
        assert_eq!((process.parent, process.started, process.zombie), (9, 777, false));
        assert_eq!(parse_stat(42, b"42 (a"), None);
    }

    #[test]
    fn the_tree_below_a_process_has_all_generations_and_nothing_spared() {
        let all = [line(2, 1), line(3, 2), line(4, 3), line(5, 1), line(6, 5), line(7, 7)];
        let pids = |spare: &[i32]| {
            let spare = spare.iter().copied().collect();
            below(&all, &[1], &spare).iter().map(|process| process.pid).collect::<BTreeSet<_>>()
        };
        assert_eq!(pids(&[]), [2, 3, 4, 5, 6].into());
        assert_eq!(pids(&[3]), [2, 5, 6].into());
    }

    #[test]
    fn a_signal_for_an_earlier_holder_of_the_id_hits_nobody() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let real = process(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(!signal(Process { started: real.started + 1, ..real }, Signal::KILL));
        assert!(child.try_wait().unwrap().is_none());
        assert!(signal(real, Signal::KILL));
        child.wait().unwrap();
    }
}
