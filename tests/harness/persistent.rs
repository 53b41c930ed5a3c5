//! A client that does what the contract asks of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{Api, Reply};

/// How long it goes on before its test fails, unless it is told otherwise.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause after a connection that failed, as a load balancer tries its next server.
const NEXT_SERVER: Duration = Duration::from_millis(50);

/// Goes to one replica after the other, as through a load balancer without stickiness; repeats with its
/// key what was not answered, and comes back when it is told to.
#[derive(Debug)]
pub struct Persistent {
    apis: Vec<Api>,
    next: AtomicUsize,
    /// Answers that asked it to come back.
    refusals: AtomicUsize,
    patience: Duration,
}

impl Persistent {
    pub fn new(apis: Vec<Api>) -> Self {
        Self { apis, next: AtomicUsize::new(0), refusals: AtomicUsize::new(0), patience: PATIENCE }
    }

    #[must_use]
    pub fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    pub fn refusals(&self) -> usize {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Panics at an answer that neither is a good one nor says when to come back.
    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Value {
        self.until_answered(&format!("POST {path}"), |api| {
            api.request("POST", path).header("idempotency-key", key).json(body)
        })
        .await
    }

    pub async fn get(&self, path: &str) -> Value {
        self.until_answered(&format!("GET {path}"), |api| api.request("GET", path)).await
    }

    pub async fn open(&self, key: &str, agent: &str, prompt: &str) -> String {
        let body = serde_json::json!({ "agent": agent, "prompt": prompt });
        let envelope = self.post("/v1/_resident", key, &body).await;
        envelope["child_run_id"].as_str().expect("an id").to_owned()
    }

    pub async fn send(&self, id: &str, key: &str, prompt: &str) -> Value {
        self.post(&format!("/v1/_resident/{id}/send"), key, &serde_json::json!({ "prompt": prompt })).await
    }

    async fn until_answered(&self, what: &str, request: impl Fn(&Api) -> reqwest::RequestBuilder) -> Value {
        let deadline = Instant::now() + self.patience;
        loop {
            let turn = self.next.fetch_add(1, Ordering::Relaxed);
            let api = &self.apis[turn % self.apis.len()];
            let told = match api.try_finish(request(api)).await {
                Ok(reply) if reply.status < 300 => return reply.body,
                Ok(reply) => {
                    let pause =
                        retry_after(&reply).unwrap_or_else(|| panic!("{what}: {} {}", reply.status, reply.text));
                    self.refusals.fetch_add(1, Ordering::Relaxed);
                    sleep(pause).await;
                    reply.text
                }
                Err(error) => {
                    sleep(NEXT_SERVER).await;
                    error.to_string()
                }
            };
            assert!(Instant::now() < deadline, "{what}: not within {:?}: {told}", self.patience);
        }
    }
}

/// When a refusal asks to come back, by its header, which has to be there.
fn retry_after(reply: &Reply) -> Option<Duration> {
    let seconds: u64 = reply.header("retry-after")?.parse().ok()?;
    (reply.body["error"]["retryable"] == true).then(|| Duration::from_secs(seconds))
}
