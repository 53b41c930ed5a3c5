//! What a program, and all programs together, may use.

use std::num::NonZeroUsize;
use std::time::Duration;

use hearth_types::limits;
use serde::{Deserialize, Serialize};

/// Bounds of code agents. A program that passes one fails with an error that names it, except where
/// a field says otherwise.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CodeBounds {
    /// Memory of one program. At the bound its allocations fail, as an exception it may catch.
    pub memory_bytes: usize,
    /// Stack of one program. At the bound calls throw `RangeError`, which it may catch.
    pub stack_bytes: usize,
    /// Processor time between two calls, not time that passes: a busy machine fails no program.
    pub cpu: Duration,
    /// How long one built-in operation may keep the program from being stopped (searching a huge
    /// string, say). The turn fails; its thread ends when the operation does and counts until then.
    pub unresponsive: Duration,
    /// Calls of one turn.
    pub calls: usize,
    /// JSON of one call's arguments. Past it the call throws.
    pub argument_bytes: usize,
    /// JSON of one call's result. Past it the call throws.
    pub result_bytes: usize,
    /// JSON of all results of a turn, which are kept until its end.
    pub record_bytes: usize,
    /// What `run` returns.
    pub output_bytes: usize,
    /// Console output between two calls. What is past it is dropped, and the last line says so.
    pub log_bytes: usize,
    /// Programs in memory, each on a thread of its own. At the bound the one that has waited longest
    /// for a tool leaves memory and runs again, from the record, when its result is there.
    pub live: NonZeroUsize,
    /// Programs that compute at the same time; the others wait their turn.
    pub computing: NonZeroUsize,
}

impl Default for CodeBounds {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            memory_bytes: 64 << 20,
            stack_bytes: 384 << 10,
            cpu: Duration::from_secs(5),
            unresponsive: Duration::from_secs(10),
            calls: 1_000,
            argument_bytes: 8 << 20,
            result_bytes: 16 << 20,
            record_bytes: 128 << 20,
            output_bytes: limits::MAX_OUTPUT_BYTES,
            log_bytes: 256 << 10,
            live: NonZeroUsize::MIN.saturating_add(511),
            computing: NonZeroUsize::MIN.saturating_add(cores.saturating_mul(2).saturating_sub(1)),
        }
    }
}
