//! What a client needs to know.

use std::sync::Arc;
use std::time::Duration;

use crate::RetryPolicy;

/// Told before each repetition of a call, so that a person can be told why it takes longer.
pub type RepeatObserver = Arc<dyn Fn(&Repeat) + std::marker::Send + Sync>;

/// One repetition that is about to happen.
#[derive(Debug, Clone)]
pub struct Repeat {
    /// Method and path.
    pub call: String,
    /// What went wrong with the attempt before.
    pub cause: String,
    /// Attempts made so far.
    pub attempts: u32,
    /// The wait before the next one.
    pub delay: Duration,
}

#[derive(Clone)]
pub struct Options {
    /// Such as `http://127.0.0.1:7420`; a path in it is kept as a prefix.
    pub url: String,
    pub token: Option<String>,
    pub retry: RetryPolicy,
    pub on_repeat: Option<RepeatObserver>,
}

impl Options {
    pub fn new(url: impl Into<String>, token: Option<String>) -> Self {
        Self { url: url.into(), token, retry: RetryPolicy::default(), on_repeat: None }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("url", &self.url).field("retry", &self.retry).finish_non_exhaustive()
    }
}
