//! Load, floors and figures: drives a deployment from the outside, does the same bare work with the
//! plain client libraries beside it, and says how the two compare.
//!
//! It holds nothing that a server needs, and judges nothing from the inside: what it drives is the
//! program that users run.

pub mod bench;
mod error;
mod floors;
mod latencies;
pub mod load;
mod machine;
mod processes;
mod report;
mod seed;
mod stop;

pub use error::Error;
pub use floors::{FloorArgs, serve_floor};
pub use report::{CompareArgs, compare};
pub use seed::{SeedArgs, seed};
