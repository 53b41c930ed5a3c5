//! Bounds and defaults of the contract that more than one crate needs.

use std::time::Duration;

/// Bytes of a request body.
pub const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;
/// Levels of nesting of a JSON body.
pub const MAX_JSON_DEPTH: usize = 128;
/// Characters of an idempotency key.
pub const MAX_KEY_CHARS: usize = 128;
/// How long a key counts.
pub const KEY_WINDOW: Duration = Duration::from_secs(24 * 3600);
/// Keys of a run that count however old they are.
pub const KEY_WINDOW_MIN: usize = 1_024;
/// Keys of a run that are kept at the most.
pub const KEY_WINDOW_MAX: usize = 16_384;
/// Prompts that wait behind the running turn.
pub const MAX_QUEUED_TURNS: usize = 16;
/// Residents that a run may hold.
pub const MAX_RESIDENT_CHILDREN: u32 = 8;
/// Levels below the root of a run tree.
pub const MAX_DEPTH: u32 = 3;
/// Spawns in one `parallel_spawn`.
pub const MAX_PARALLEL_SPAWNS: usize = 32;
/// Spawns of one `parallel_spawn` that run at once.
pub const PARALLEL_SPAWN_WIDTH: usize = 4;
/// Idle time of a resident.
pub const IDLE_TTL: Duration = Duration::from_secs(30 * 60);
/// Bytes of a turn's output that are kept; what is past it is counted and marked.
pub const MAX_OUTPUT_BYTES: usize = 16 * 1024 * 1024;
/// Bytes that are said in one run: prompts, texts, calls and their results. Past them it takes no more turns.
pub const MAX_SAID_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// Model steps of one turn, where the definition names none.
pub const MAX_ITERATIONS: u32 = 200;
/// Page size of a list, and its largest.
pub const LIST_LIMIT: u32 = 50;
pub const LIST_LIMIT_MAX: u32 = 500;
/// Activations in a row without progress after which a turn ends `failed`.
pub const MAX_FRUITLESS_ACTIVATIONS: u32 = 3;
