//! Tasks with a name and a rule for their failure.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use tokio::task::JoinHandle;
use tracing::Instrument;

/// Starts a task in the current span. A panic in it is logged under its name and ends it with
/// `None`; the owner keeps the handle and decides when to abort or await it.
#[allow(clippy::disallowed_methods, reason = "the one place that starts tasks")]
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<Option<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // Unwind safety: what the future held is dropped with it, and what it shared with others is
    // theirs to judge, as with any task that ends early.
    let guarded = AssertUnwindSafe(future).catch_unwind().map(move |result| match result {
        Ok(output) => Some(output),
        Err(panic) => {
            tracing::error!(task = name, panic = message(panic.as_ref()), "a task panicked");
            None
        }
    });
    tokio::spawn(guarded.in_current_span())
}

fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_ends_with_nothing_and_takes_nobody_along() {
        let failed = spawn("fails", async { panic!("on purpose") });
        let worked = spawn("works", async { 7 });
        assert_eq!(failed.await.unwrap(), None::<()>);
        assert_eq!(worked.await.unwrap(), Some(7));
    }

    #[tokio::test]
    async fn aborting_the_handle_ends_the_task() {
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        let task = spawn("waits", async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        task.abort();
        assert!(ended.await.is_err());
        assert!(task.await.unwrap_err().is_cancelled());
    }
}
