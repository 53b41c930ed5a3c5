//! The operator's commands. Each decodes its arguments, makes one call, and shows the answer.

pub mod agents;
pub mod completion;
mod definition_file;
mod download;
pub mod end;
mod interrupt;
pub mod journal;
pub mod list;
pub mod nodes;
mod pages;
pub mod replicas;
pub mod resident;
pub mod run;
pub mod sandbox;
pub mod show;
pub mod skills;
pub mod snapshot;
pub mod tail;
mod view;
