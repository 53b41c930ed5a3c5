//! Processes that a server left behind: those that name its folder.

use std::fmt;
use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// A process and its command line.
#[derive(Debug)]
pub struct Leftover {
    pid: i32,
    line: String,
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.pid, self.line)
    }
}

/// Every process but this one whose command line, working folder, environment or mounts name the
/// folder. The folder's name is unique, so a process that names it belongs to the server.
pub fn of(folder: &Path) -> Vec<Leftover> {
    let name = folder.file_name().expect("a temporary folder has a name").to_string_lossy().into_owned();
    let own = i32::try_from(std::process::id()).expect("a process id is positive");
    let entries = fs::read_dir("/proc").expect("/proc is there").filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse::<i32>().ok());
    // What is mounted for this process too is mounted for all, and says nothing about any of them.
    let shared = fs::read_to_string("/proc/self/mountinfo").map_or(true, |mounts| mounts.contains(&name));
    pids.filter(|pid| *pid != own).filter_map(|pid| names(pid, &name, !shared)).collect()
}

fn names(pid: i32, name: &str, by_mounts: bool) -> Option<Leftover> {
    let base = Path::new("/proc").join(pid.to_string());
    let read = |part: &str| {
        fs::read(base.join(part)).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
    };
    let state = read("stat");
    // A zombie holds nothing and is its parent's to reap.
    if state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) {
        return None;
    }
    let folder = fs::read_link(base.join("cwd")).map(|path| path.display().to_string()).unwrap_or_default();
    let line = read("cmdline").replace('\0', " ");
    let mounts = if by_mounts { read("mountinfo") } else { String::new() };
    let places = [line.clone(), folder, read("environ"), mounts];
    places.iter().any(|place| place.contains(name)).then_some(Leftover { pid, line })
}

/// Removes the containers and networks of the nodes that have their state in the folder.
pub fn remove_containers(folder: &Path) {
    let docker = |args: &[&str]| std::process::Command::new("docker").args(args).output().ok();
    for owner in identities(folder, 4) {
        let label = format!("label=hearth.owner={owner}");
        for (list, remove) in [(["ps", "-a"], ["rm", "-fv"]), (["network", "ls"], ["network", "rm"])] {
            let Some(found) = docker(&[&list[..], &["-q", "--filter", &label]].concat()) else { return };
            let found = String::from_utf8_lossy(&found.stdout).into_owned();
            let ids: Vec<&str> = found.split_whitespace().collect();
            if !ids.is_empty() {
                docker(&[&remove[..], &ids].concat());
            }
        }
    }
}

/// Who the nodes with their state in the folder are.
fn identities(folder: &Path, depth: usize) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && depth > 0 {
            found.extend(identities(&entry.path(), depth - 1));
        } else if entry.file_name() == "identity" {
            found.extend(fs::read_to_string(entry.path()).map(|text| text.trim().to_owned()));
        }
    }
    found
}

/// Ends them, each by its id.
pub fn end(leftovers: &[Leftover]) {
    for leftover in leftovers {
        if let Some(pid) = Pid::from_raw(leftover.pid) {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}
