//! Commands whose client may go away at any moment.
//!
//! The server drops a handler when its connection ends. A command must not be dropped half-way
//! between its decision and its acceptance, so what is left of it goes on as a task of its own. That
//! gets a little more time to be accepted, and is then given up: what it would go on waiting for is
//! kept by the journal, not by this task.

use std::future::Future;
use std::time::Duration;

use hearth_types::Fault;
use hearth_types::FaultCode;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::gateway::Gateway;

/// Runs a command to its end, or for a while after its client has gone.
///
/// # Errors
/// The command's own; `internal` when it panicked; `deadline_exceeded` when the replica ends first.
pub async fn run<T, F>(gateway: &Gateway, name: &'static str, held: impl Send + 'static, command: F) -> Result<T, Fault>
where
    F: Future<Output = Result<T, Fault>> + Send + 'static,
    T: Send + 'static,
{
    let grace = gateway.options().abandoned_grace;
    let (present, gone) = oneshot::channel::<()>();
    let command = Box::pin(command);
    let rest = hearth_telemetry::task::finish(name, async move {
        let _held = held;
        tokio::select! {
            result = command => Some(result),
            () = left_for(gone, grace) => None,
        }
    });
    let result = tokio::select! {
        result = rest => result,
        () = gateway.expired().cancelled() => return Err(replica_ends()),
    };
    drop(present);
    match result {
        Some(Some(result)) => result,
        // Given up needs a client that has gone, and this is its handler: only a panic is left.
        Some(None) | None => Err(Fault::internal(format!("the task of {name} ended without a result"))),
    }
}

/// Ends `grace` after the handler was dropped.
async fn left_for(gone: oneshot::Receiver<()>, grace: Duration) {
    gone.await.ok();
    tokio::time::sleep(grace).await;
}

pub fn replica_ends() -> Fault {
    Fault::new(
        FaultCode::DeadlineExceeded,
        "this replica ends; what it had accepted goes on elsewhere: repeat with the same key",
    )
    .retry_after(Duration::from_secs(1))
}

/// Runs `cancel` in a task of its own if it is dropped before it was told that all went well; but not
/// when the replica itself ends, because then it is not the client who has gone.
pub struct CancelOnDrop {
    cancel: Option<Box<dyn FnOnce() + Send>>,
    closing: CancellationToken,
}

impl CancelOnDrop {
    pub fn new<F>(gateway: &Gateway, cancel: F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let cancel = Box::pin(cancel);
        let start = move || drop(hearth_telemetry::task::spawn("cancel_on_disconnect", cancel));
        Self { cancel: Some(Box::new(start)), closing: gateway.closing().clone() }
    }

    pub fn disarm(mut self) {
        self.cancel = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancel) = self.cancel.take().filter(|_| !self.closing.is_cancelled()) {
            cancel();
        }
    }
}
