//! Set-up of logs and traces, propagation of the trace context, the metrics registry, and tasks
//! that have an owner and a name.

pub mod task;
