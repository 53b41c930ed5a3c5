//! Waiting for a condition.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How long a condition may take to come true before its test fails.
pub const WITHIN: Duration = Duration::from_secs(30);

/// Asks again and again until there is an answer.
pub async fn eventually<T>(what: &str, ask: impl AsyncFnMut() -> Option<T>) -> T {
    within(WITHIN, what, ask).await
}

/// The same, with a time of its own.
pub async fn within<T>(limit: Duration, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
