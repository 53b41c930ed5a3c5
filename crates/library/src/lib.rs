//! Agent and skill definitions: their files, the catalogue that merges them, ceilings, fork and clone.
//!
//! It runs no agent, keeps nothing and asks nobody: except for [`load`], which reads one folder, every
//! function is pure. Whether a caller may create or widen a definition is for the use cases to say.

mod agent_file;
mod catalogue;
mod ceiling;
mod check;
mod fields;
mod file_error;
mod folder;
mod front_matter;
#[cfg(test)]
mod hostile;
mod lineage;
mod narrowing;
mod refusal;
mod skill_file;

pub use catalogue::{Catalogue, Origin, RESERVED_NAMES};
pub use ceiling::{PatternError, check_ceiling, check_pattern, covers};
pub use check::{FieldFault, check, check_agent_name, check_sandbox, check_skill_name};
pub use fields::DefinitionFields;
pub use file_error::FileError;
pub use folder::{Library, MAX_FILE_BYTES, SourceFile, load, parse};
pub use lineage::{clone_agent, fork_agent};
pub use refusal::Refusal;
pub use skill_file::Skill;
