//! Tasks with a name and a rule for their failure.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
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
    tokio::spawn(guarded(name, future).in_current_span())
}

fn guarded<F: Future>(name: &'static str, future: F) -> impl Future<Output = Option<F::Output>> {
    // Unwind safety: what the future held is dropped with it, and what it shared with others is
    // theirs to judge, as with any task that ends early.
    AssertUnwindSafe(future).catch_unwind().map(move |result| match result {
        Ok(output) => Some(output),
        Err(panic) => {
            tracing::error!(task = name, panic = message(panic.as_ref()), "a task panicked");
            None
        }
    })
}

/// Carries a future out where it is awaited; if that is dropped first, the rest goes on as a task of this name. For work
/// that must not end with its caller, without a task for each time that the caller stays. A panic is as in [`spawn`].
pub fn finish<F>(name: &'static str, future: F) -> impl Future<Output = Option<F::Output>> + Send
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Finish { name, rest: Some(Box::pin(guarded(name, future))) }
}

struct Finish<T: 'static> {
    name: &'static str,
    rest: Option<BoxFuture<'static, Option<T>>>,
}

impl<T: 'static> Future for Finish<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let output = std::task::ready!(rest.as_mut().poll(context));
        self.rest = None;
        Poll::Ready(output)
    }
}

impl<T: 'static> Drop for Finish<T> {
    #[allow(clippy::disallowed_methods, reason = "the other place that starts tasks")]
    fn drop(&mut self) {
        let Some(rest) = self.rest.take() else { return };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(rest.map(drop).in_current_span())),
            Err(_) => tracing::warn!(task = self.name, "the process ends before this has"),
        }
    }
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
    async fn what_is_to_be_finished_is_also_when_its_caller_goes_away() {
        assert_eq!(finish("at once", async { 7 }).await, Some(7));
        assert_eq!(finish("fails", async { panic!("on purpose") }).await, None::<()>);
        let (begun, wait) = tokio::sync::oneshot::channel::<()>();
        let (done, hear) = tokio::sync::oneshot::channel();
        let mut work = Box::pin(finish("goes on", async move {
            wait.await.ok();
            done.send(7).ok();
        }));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        begun.send(()).unwrap();
        assert_eq!(hear.await, Ok(7));
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
