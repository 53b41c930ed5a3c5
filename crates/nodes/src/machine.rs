//! What this machine has, and how much of it is in use.

use std::path::{Path, PathBuf};

use hearth_registry::NodeUsage;

/// Looks at the machine, again and again.
pub struct Machine {
    /// What lies on the disk that counts.
    folder: PathBuf,
    /// Of the look before.
    ticks: Option<Ticks>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    idle: u64,
    all: u64,
    cpus: u64,
}

impl Machine {
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), ticks: None }
    }

    /// What cannot be read counts as nothing.
    pub fn look(&mut self, execs: u64) -> NodeUsage {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let now = ticks(&read("/proc/stat"));
        let (memory_bytes, memory_free) = memory(&read("/proc/meminfo"));
        let (disk_bytes, disk_free) = rustix::fs::statvfs(&self.folder)
            .map_or((0, 0), |disk| (disk.f_blocks * disk.f_frsize, disk.f_bfree * disk.f_frsize));
        let usage = NodeUsage {
            cpus: now.cpus,
            cpus_used: self.ticks.map_or(0.0, |before| busy(before, now)),
            memory_bytes,
            memory_used_bytes: memory_bytes.saturating_sub(memory_free),
            disk_bytes,
            disk_used_bytes: disk_bytes.saturating_sub(disk_free),
            execs,
        };
        self.ticks = Some(now);
        usage
    }
}

/// The first line sums all CPUs: user, nice, system, idle, iowait and so on; the next ones are one each.
fn ticks(stat: &str) -> Ticks {
    let cpu = |line: &&str| line.starts_with("cpu");
    let cpus = u64::try_from(stat.lines().filter(cpu).count().saturating_sub(1)).unwrap_or(0);
    let sum = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> = sum.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // What guests used is in the first two already.
    let all = fields.iter().take(8).sum();
    Ticks { idle: fields.iter().skip(3).take(2).sum(), all, cpus }
}

fn busy(before: Ticks, now: Ticks) -> f64 {
    let all = now.all.saturating_sub(before.all);
    let idle = now.idle.saturating_sub(before.idle).min(all);
    if all == 0 {
        return 0.0;
    }
    let share = to_float(all - idle) / to_float(all);
    (share * to_float(now.cpus) * 100.0).round() / 100.0
}

/// Of ticks between two beats, which are far below what a float holds.
fn to_float(ticks: u64) -> f64 {
    f64::from(u32::try_from(ticks).unwrap_or(u32::MAX))
}

/// All of it, and what can be had without swapping, in bytes.
fn memory(meminfo: &str) -> (u64, u64) {
    let of = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
        let kb = line.and_then(|rest| rest.trim_start_matches(':').trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kb.unwrap_or(0) * 1_024
    };
    (of("MemTotal"), of("MemAvailable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_cpus_are_what_was_not_idle_between_two_looks() {
        let before =
            ticks("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0\nintr 1\n");
        let now = ticks("cpu  150 0 150 850 50 0 0 0 0 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\n");
        assert_eq!((before.cpus, before.all, before.idle), (2, 1_000, 800));
        assert!((busy(before, now) - 1.0).abs() < f64::EPSILON, "half of two");
        assert!(busy(now, now).abs() < f64::EPSILON);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "MemTotal:        2048 kB\nMemFree:          100 kB\nMemAvailable:    1024 kB\n";
        assert_eq!(memory(text), (2_097_152, 1_048_576));
        assert_eq!(memory(""), (0, 0));
    }

    #[test]
    fn this_machine_has_something() {
        let usage = Machine::new(Path::new("/")).look(3);
        assert!(usage.cpus > 0 && usage.memory_bytes > usage.memory_used_bytes && usage.memory_used_bytes > 0);
        assert!(usage.disk_bytes >= usage.disk_used_bytes && usage.disk_bytes > 0 && usage.execs == 3);
    }
}
