//! Residency: activations and the way to them.
//!
//! One actor per activation owns a run's state; a run without one is rows in the journal. Nothing
//! here decides what a command means: `run-core` does, and this crate appends, performs and answers.

mod actor;
mod commands;
mod drain;
mod effects;
mod error;
mod folding;
mod history;
mod live;
mod log;
mod metrics;
mod missed;
mod peers;
mod quota;
mod reading;
mod remote;
mod residents;
mod restore;
mod session;
mod slots;
mod supervisor;
mod sweep;
mod turn_port;

pub use error::Error;
pub use history::{Page, each_event};
pub use live::LiveItem;
pub use log::{head, read_run};
pub use remote::ask_state;
pub use residents::{Accepted, Cancelled, Created, Deps, Opened, Options, PLACEMENT_SLACK, Residents};
pub use restore::Pages;
pub use session::{Carried, Entry, Joined, Members, Part, compressed, members};
