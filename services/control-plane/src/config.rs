//! Settings: from a file, then the environment, then flags, parsed once into strict types.
//!
//! The environment is passed in. Every setting is in [`SETTINGS`]; a name that is not there stops
//! the start, and a bad value is reported with its setting, value, origin and what is allowed.

mod error;
mod settings;
mod sources;
mod table;
mod value;

pub use error::ConfigError;
pub use settings::{Secret, Settings};
pub use sources::Sources;
pub use table::{SETTINGS, Setting};

#[cfg(test)]
mod tests;
