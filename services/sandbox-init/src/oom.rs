//! How often the kernel has killed for want of memory in the session's control group.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

/// Version 2, then version 1, as they are mounted in a container.
const COUNTERS: [&str; 2] = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];

/// Bytes of such a file.
const MAX_BYTES: usize = 1024;

/// `None` when it cannot be known, or when the control group is not the session's own.
#[derive(Debug, Clone)]
pub struct OomWatch(Option<Arc<File>>);

impl OomWatch {
    pub fn new(own_group: bool) -> Self {
        let mut files = COUNTERS.into_iter().filter(|_| own_group).filter_map(|path| File::open(path).ok());
        Self(files.find(|file| count(file).is_some()).map(Arc::new))
    }

    pub fn kills(&self) -> u64 {
        self.0.as_deref().and_then(count).unwrap_or(0)
    }
}

/// What it says now: the kernel writes it anew for each look at its start.
fn count(file: &File) -> Option<u64> {
    let mut text = [0; MAX_BYTES];
    let read = file.read_at(&mut text, 0).ok()?;
    parse(std::str::from_utf8(text.get(..read)?).ok()?)
}

fn parse(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_counters_are_read() {
        assert_eq!(parse("low 0\nhigh 0\nmax 7\noom 1\noom_kill 3\noom_group_kill 0\n"), Some(3));
        assert_eq!(parse("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"), Some(2));
        assert_eq!(parse("oom_kill_disable 0\n"), None);
    }
}
