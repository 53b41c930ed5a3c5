//! Load, floors and figures: drives a deployment from the outside, does the same bare work with the
//! plain client libraries beside it, and says how the two compare.
//!
//! It holds nothing that a server needs. What it drives is the program that users run, but for one
//! comparison with a floor that is called, not served.

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
mod within;

pub use error::Error;
pub use floors::{FloorArgs, serve_floor};
pub use report::{CompareArgs, compare};
pub use seed::{SeedArgs, seed};
pub use within::Within;
