//! Set-up of logs and traces, propagation of the trace context, the metrics registry, and tasks
//! that have an owner and a name.
//!
//! It does not decide what is worth a span, a log line or a metric: each crate declares its own,
//! with the names of [`names`] and the constructors of [`metrics`].

mod log;
pub mod metrics;
pub mod names;
mod setup;
pub mod task;
mod trace;

pub use log::LogFormat;
pub use setup::{Error, Guard, TelemetryOptions, init};
pub use trace::{adopt, context_from, current_trace, fresh_trace, set_parent, trace_of};
