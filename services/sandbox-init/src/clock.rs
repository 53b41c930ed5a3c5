//! Time that no one can set: milliseconds since the machine started.

use rustix::time::{ClockId, clock_gettime};

/// Milliseconds while the machine was awake, for the time-outs of commands.
pub fn awake_ms() -> u64 {
    read(ClockId::Monotonic)
}

/// Milliseconds with those asleep, for the end of the session.
pub fn boot_ms() -> u64 {
    read(ClockId::Boottime)
}

/// Wall-clock milliseconds since the Unix epoch; read once, to place the deadline.
pub fn unix_ms() -> u64 {
    read(ClockId::Realtime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(u64::try_from(time.tv_nsec / 1_000_000).unwrap_or(0))
}
