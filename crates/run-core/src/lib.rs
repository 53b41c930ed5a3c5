//! The run's state machine: commands, events, effects, fold.
//!
//! It performs nothing: no clock, no store, no runtime. `decide` says which events a command leads to
//! and which effects follow once they stand; `Run::apply` folds events; `pending_effects` says what is
//! under way in a run that was just taken over.

mod apply;
#[cfg(any(test, feature = "breaks"))]
pub mod breaks;
mod decide;
mod effects;
mod event;
mod frame;
#[cfg(any(test, feature = "laws"))]
pub mod laws;
mod refusal;
mod relocate;
mod run;
mod spec;
#[cfg(test)]
mod tests;
mod view;

pub use decide::{
    Accept, Cancel, ChildEnd, Close, Command, Decision, OpenChild, Reply, StepReport, ToolReport, create, decide,
};
pub use effects::{Effect, pending_effects};
pub use event::{Event, Mark, Recorded};
pub use frame::{FRAME_VERSION, Frame, FrameError};
pub use refusal::Refusal;
pub use relocate::relocate;
pub use run::{CallRecord, Child, EndedTurn, KeyRecord, KeyResult, QueuedTurn, Run, StepRecord, Turn};
pub use spec::{ChildKind, KeyUse, Parent, RunSpec};
pub use view::HeadBody;
