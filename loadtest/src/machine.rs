//! What the figures were taken on, and what a process uses.

use std::process::Command;

use serde::{Deserialize, Serialize};

/// The machine and the versions of what took part.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_gib: u64,
    pub kernel: String,
    pub versions: Vec<(String, String)>,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| -> String {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let total = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = total.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let versions = [
            ("hearth", env!("CARGO_PKG_VERSION").to_owned()),
            ("nats-server", said("nats-server", &["--version"])),
            ("redis-server", said("redis-server", &["--version"])),
            ("docker", said("docker", &["version", "--format", "{{.Server.Version}}"])),
            ("SQLite", rusqlite::version().to_owned()),
        ];
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_gib: kib.div_ceil(1024 * 1024),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            versions: versions.into_iter().map(|(name, version)| (name.to_owned(), version)).collect(),
        }
    }
}

/// The first line of what a program says of itself.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default().trim().to_owned();
    if line.is_empty() { "not there".to_owned() } else { line }
}

/// Bytes of a process's own memory that are in use: no files, nothing shared.
pub(crate) fn private_bytes(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// CPU seconds that a process has used.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    cpu_seconds_with(pid, false)
}

/// The same and, if they count, of its children that have ended and were waited for.
pub(crate) fn cpu_seconds_with(pid: u32, children: bool) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in brackets and may hold anything.
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u32>().ok());
    let own = f64::from(ticks()?) + f64::from(ticks()?);
    let of_children = f64::from(ticks()?) + f64::from(ticks()?);
    // A hundred ticks a second is what Linux shows to programs on every machine.
    Some((if children { own + of_children } else { own }) / 100.0)
}

/// The date in UTC, as `2026-01-31`.
pub(crate) fn today() -> String {
    let now = hearth_types::SystemClock::shared().now().to_string();
    now.split('T').next().unwrap_or_default().to_owned()
}
