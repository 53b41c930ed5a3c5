//! The HTTP surface as one caller sees it.

use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{Events, Mcp, Reply};

/// A caller: a base address and, mostly, a token.
#[derive(Debug, Clone)]
pub struct Api {
    client: Client,
    base: String,
    token: Option<String>,
}

/// The prompt that makes the built-in agent `mock` do this.
pub fn mock(turn: Value) -> String {
    json!({ "mock": turn }).to_string()
}

impl Api {
    pub(crate) fn new(base: String, token: Option<String>) -> Self {
        let client = Client::builder().timeout(Duration::from_secs(120)).build().expect("an HTTP client");
        Self { client, base, token }
    }

    /// The same server, another caller.
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub fn without_token(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    /// The same server and caller, over MCP.
    pub fn mcp(&self) -> Mcp {
        Mcp::new(&self.base, self.token.as_deref())
    }

    /// A request that can still be changed, for [`Api::finish`].
    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let request = self.client.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub async fn finish(&self, request: RequestBuilder) -> Reply {
        self.try_finish(request).await.expect("the server answers")
    }

    /// An error where the connection fails.
    pub async fn try_finish(&self, request: RequestBuilder) -> Result<Reply, reqwest::Error> {
        Reply::read(request.send().await?).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.finish(self.request("GET", path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.finish(self.request("POST", path).json(&body)).await
    }

    pub async fn post_with_key(&self, path: &str, key: &str, body: Value) -> Reply {
        self.finish(self.request("POST", path).header("idempotency-key", key).json(&body)).await
    }

    /// `POST /v1/runs`, to its end.
    pub async fn run(&self, agent: &str, prompt: &str) -> Value {
        self.post("/v1/runs", json!({ "agent": agent, "prompt": prompt })).await.ok()
    }

    /// Opens a resident that is the root of its own tree; its id.
    pub async fn open(&self, agent: &str, prompt: &str) -> String {
        let reply = self.post("/v1/_resident", json!({ "agent": agent, "prompt": prompt })).await;
        id_of(&reply.ok(), "child_run_id")
    }

    /// Opens a resident below a run; its id.
    pub async fn open_below(&self, parent: &str, agent: &str, prompt: &str) -> String {
        let body = json!({ "agent": agent, "prompt": prompt, "parent_run_id": parent });
        id_of(&self.post("/v1/_resident", body).await.ok(), "child_run_id")
    }

    /// Sends and waits for the end of its turn.
    pub async fn send(&self, id: &str, prompt: &str) -> Value {
        self.post(&format!("/v1/_resident/{id}/send"), json!({ "prompt": prompt })).await.ok()
    }

    /// Sends without waiting; the turn's id.
    pub async fn start(&self, id: &str, prompt: &str) -> String {
        let body = json!({ "prompt": prompt, "timeout_ms": 1 });
        let envelope = self.post(&format!("/v1/_resident/{id}/send"), body).await.ok();
        assert_eq!(envelope["state"], "running", "{envelope}");
        id_of(&envelope, "turn_id")
    }

    /// Gives it an input; the turn's id.
    pub async fn input(&self, id: &str, prompt: &str) -> String {
        let reply = self.post(&format!("/v1/runs/{id}/input"), json!({ "text": prompt })).await;
        id_of(&reply.with_status(202), "turn_id")
    }

    /// A snapshot of the newest turn.
    pub async fn poll(&self, id: &str) -> Value {
        self.get(&format!("/v1/_resident/{id}")).await.ok()
    }

    /// A snapshot of one turn.
    pub async fn poll_turn(&self, id: &str, turn: &str) -> Value {
        self.get(&format!("/v1/_resident/{id}?turn_id={turn}")).await.ok()
    }

    /// Waits for the end of one turn.
    pub async fn end_of(&self, id: &str, turn: &str) -> Value {
        let envelope = self.get(&format!("/v1/_resident/{id}?turn_id={turn}&timeout_ms=60000")).await.ok();
        assert_ne!(envelope["state"], "running", "{envelope}");
        envelope
    }

    pub async fn get_run(&self, id: &str) -> Value {
        self.get(&format!("/v1/runs/{id}")).await.ok()
    }

    pub async fn close(&self, id: &str) -> Value {
        self.post(&format!("/v1/_resident/{id}/close"), json!({})).await.ok()
    }

    /// The sum over all series of one metric; 0 where it was not touched yet.
    pub async fn metric(&self, name: &str) -> f64 {
        let reply = self.get("/metrics").await;
        assert_eq!(reply.status, 200, "{}", reply.text);
        let of_series = |line: &str| {
            let rest = line.strip_prefix(name)?;
            rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok()).flatten()
        };
        reply.text.lines().filter_map(of_series).sum()
    }

    /// The residents that are listed, of one page.
    pub async fn residents(&self, query: &str) -> Vec<Value> {
        let page = self.get(&format!("/v1/_resident?limit=500&{query}")).await.ok();
        page["resident"].as_array().expect("a list").clone()
    }

    /// The stream of a run, from its first event or after one that was seen.
    pub async fn stream(&self, id: &str, after: Option<u64>) -> Events {
        let request = self.request("GET", &format!("/v1/runs/{id}/stream")).header("accept", "text/event-stream");
        let request = match after {
            Some(seen) => request.header("last-event-id", seen.to_string()),
            None => request,
        };
        Events::open(request).await
    }
}

#[track_caller]
fn id_of(body: &Value, field: &str) -> String {
    body[field].as_str().unwrap_or_else(|| panic!("no `{field}` in {body}")).to_owned()
}
