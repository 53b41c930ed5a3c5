//! Tasks with a name and a rule for their failure.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument;

/// Starts a task in the current span. A panic in it is logged under its name; the owner keeps the
/// handle and decides when to abort or await it.
#[allow(clippy::disallowed_methods, reason = "the one place that starts tasks")]
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<Option<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let inner = tokio::spawn(future.in_current_span());
    let abort = AbortOnDrop(inner.abort_handle());
    tokio::spawn(
        async move {
            let result = inner.await;
            drop(abort);
            match result {
                Ok(output) => Some(output),
                Err(error) if error.is_panic() => {
                    tracing::error!(task = name, %error, "a task panicked");
                    None
                }
                Err(_) => None,
            }
        }
        .in_current_span(),
    )
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
