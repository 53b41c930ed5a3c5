//! How often the kernel has killed for want of memory in the session's control group.

use std::fs;

/// Version 2, then version 1, as they are mounted in a container.
const COUNTERS: [&str; 2] = ["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"];

/// `None` when it cannot be known, or when the control group is not the session's own.
#[derive(Debug, Clone, Copy)]
pub struct OomWatch(Option<&'static str>);

impl OomWatch {
    pub fn new(own_group: bool) -> Self {
        Self(COUNTERS.into_iter().find(|path| own_group && count(path).is_some()))
    }

    pub fn kills(self) -> u64 {
        self.0.and_then(count).unwrap_or(0)
    }
}

fn count(path: &str) -> Option<u64> {
    parse(&fs::read_to_string(path).ok()?)
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
