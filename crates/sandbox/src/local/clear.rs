//! Clearing away what a session leaves when its init could not do it: processes found by their marks,
//! and the folder.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use hearth_sandbox_init::tree::{self, Process};
use hearth_types::SandboxId;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::{Error, ErrorKind, SessionUsage};

/// The variable that every process of a session inherits.
pub const MARK: &str = "HEARTH_SESSION";
/// The option by which inits are told apart in the list of processes, which shows arguments also
/// of those whose environment it hides.
pub const NAME_OPTION: &str = "--name";

/// Ticks in a second, as the kernel shows them to programs, whatever it counts in.
const USER_HZ: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(15);
/// Looks in a row when nobody can say that all are dead.
pub const LOOKS: u32 = 3;

/// Kills every process that carries the session's mark, with all below it, until `looks` looks in a
/// row have found none. One is enough after an init has said that all are dead; else more are needed,
/// since a process that is becoming another program shows no mark for a moment.
pub async fn kill_marked(session: &SandboxId, looks: u32) -> Result<(), Error> {
    let give_up = Instant::now() + PATIENCE;
    let mut clean = 0;
    loop {
        let id = session.clone();
        let killed = tokio::task::spawn_blocking(move || kill_once(&id)).await;
        let killed = killed.map_err(io::Error::other).flatten().map_err(no_list)?;
        clean = if killed == 0 { clean + 1 } else { 0 };
        if clean >= looks {
            return Ok(());
        }
        if Instant::now() >= give_up {
            let message = format!("{killed} processes of the sandbox session survive being killed");
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        sleep(AGAIN).await;
    }
}

/// Whether any process carries the session's mark.
pub async fn any_marked(session: &SandboxId) -> Result<bool, Error> {
    let id = session.clone();
    let found = tokio::task::spawn_blocking(move || marked(&id).map(|found| !found.is_empty())).await;
    found.map_err(io::Error::other).flatten().map_err(no_list)
}

/// What the processes of a session use. Time that ended ones used is with those that reaped them; memory that
/// several share counts for each.
pub async fn usage(session: &SandboxId) -> Result<SessionUsage, Error> {
    let id = session.clone();
    let found = tokio::task::spawn_blocking(move || marked(&id)).await;
    let found = found.map_err(io::Error::other).flatten().map_err(no_list)?;
    let mut usage = SessionUsage { processes: found.len() as u64, ..SessionUsage::default() };
    for process in found {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
        usage.cpu_seconds += Duration::from_millis(ticks(&stat) * 1_000 / USER_HZ).as_secs_f64();
        let status = std::fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
        usage.memory_bytes += resident(&status);
    }
    Ok(usage)
}

/// Of the line of `/proc/PID/stat`: CPU time of the process and of the children that it reaped, in ticks. The name
/// in front may hold anything.
fn ticks(stat: &str) -> u64 {
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// Of `/proc/PID/status`, in bytes.
fn resident(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1_024
}

fn no_list(error: io::Error) -> Error {
    Error::caused(ErrorKind::Internal, "the processes of this host cannot be listed", error)
}

/// How many there were that live.
fn kill_once(session: &SandboxId) -> io::Result<usize> {
    let found = marked(session)?;
    let roots: Vec<i32> = found.iter().map(|process| process.pid).collect();
    tree::kill_below(&roots, &BTreeSet::new());
    for process in &found {
        tree::signal(*process, Signal::KILL);
    }
    Ok(found.len())
}

fn marked(session: &SandboxId) -> io::Result<Vec<Process>> {
    let all = tree::all()?;
    Ok(all.into_iter().filter(|process| !process.zombie && is_marked(process.pid, session)).collect())
}

fn is_marked(pid: i32, session: &SandboxId) -> bool {
    let mark = format!("{MARK}={session}");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    if environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes()) {
        return true;
    }
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
    words.windows(3).any(|words| words == [b"serve", NAME_OPTION.as_bytes(), session.as_str().as_bytes()])
}

/// Removes a session's folder with all in it. Build caches like to take the write permission from
/// their folders, so it is given back where it is missing.
pub async fn remove(folder: &Path) -> Result<(), Error> {
    let path = folder.to_owned();
    let removed = tokio::task::spawn_blocking(move || match std::fs::remove_dir_all(&path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            make_writable(&path)?;
            std::fs::remove_dir_all(&path)
        }
        other => other,
    });
    match removed.await.map_err(io::Error::other).flatten() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::caused(ErrorKind::Unavailable, "the folder of the sandbox session cannot be removed", error))
        }
        _ => Ok(()),
    }
}

fn make_writable(folder: &Path) -> io::Result<()> {
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_writable(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_processes_with_the_sessions_own_mark_are_killed() {
        let session = SandboxId::generate();
        let sleeper =
            |name: &str, value: &str| std::process::Command::new("sleep").arg("300").env(name, value).spawn().unwrap();
        let mut own = sleeper(MARK, session.as_str());
        let mut others = [sleeper(MARK, &format!("{session}x")), sleeper("OTHER", session.as_str())];
        // The mark is in the environment once the new program is.
        while !any_marked(&session).await.unwrap() {
            tokio::task::yield_now().await;
        }
        kill_marked(&session, LOOKS).await.unwrap();
        assert!(own.try_wait().unwrap().is_some());
        for other in &mut others {
            assert!(other.try_wait().unwrap().is_none());
            other.kill().unwrap();
            other.wait().unwrap();
        }
    }

    #[test]
    fn the_time_of_reaped_children_counts_and_a_name_hides_nothing() {
        let line = "7 (a) R 9 9) S 1 7 7 0 -1 4194560 10 20 0 0 100 50 30 20 20 0 1 0 5 1000 77 9 0";
        assert_eq!((ticks(line), ticks("")), (200, 0));
        assert_eq!(resident("Name: x\nVmRSS:     2048 kB\n"), 2_097_152);
    }

    #[tokio::test]
    async fn a_folder_without_write_permission_is_removed_and_links_are_not_followed() {
        let base = tempfile::tempdir().unwrap();
        let outside = base.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        let folder = base.path().join("session");
        std::fs::create_dir_all(folder.join("mod/cache")).unwrap();
        std::fs::write(folder.join("mod/cache/file"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, folder.join("link")).unwrap();
        std::fs::set_permissions(folder.join("mod/cache"), std::fs::Permissions::from_mode(0o500)).unwrap();
        remove(&folder).await.unwrap();
        remove(&folder).await.unwrap();
        assert!(!folder.exists() && outside.exists());
    }
}
