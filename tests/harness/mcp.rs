//! An MCP client over streamable HTTP, written out: JSON-RPC in POSTs, answers as events or as JSON.

use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

/// The version of the protocol that this client speaks; a later one has no sessions.
const VERSION: &str = "2025-06-18";

/// One client of one node.
#[derive(Debug)]
pub struct Mcp {
    client: Client,
    url: String,
    token: Option<String>,
    headers: Vec<(String, String)>,
    pub session: Option<String>,
    next_id: AtomicU64,
}

/// What a tool answered.
#[derive(Debug)]
pub struct Answer {
    pub is_error: bool,
    pub value: Value,
}

impl Answer {
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!(!self.is_error, "refused: {}", self.value);
        self.value
    }

    /// The body of a refusal.
    #[track_caller]
    pub fn refusal(self) -> Value {
        assert!(self.is_error, "not refused: {}", self.value);
        self.value
    }

    #[track_caller]
    pub fn code(self) -> String {
        let body = self.refusal();
        body["error"]["code"].as_str().unwrap_or_else(|| panic!("no code in {body}")).to_owned()
    }
}

impl Mcp {
    pub fn new(base: &str, token: Option<&str>) -> Self {
        Self {
            client: Client::new(),
            url: format!("{base}/mcp"),
            token: token.map(str::to_owned),
            headers: Vec::new(),
            session: None,
            next_id: AtomicU64::new(1),
        }
    }

    /// A header of every request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The handshake.
    #[must_use]
    pub async fn connected(mut self) -> Self {
        let response = self.initialize().await;
        assert_eq!(response.status(), 200, "{:?}", response.text().await);
        self.begin(response).await;
        self
    }

    pub async fn initialize(&self) -> Response {
        let params = json!({
            "protocolVersion": VERSION, "capabilities": {}, "clientInfo": { "name": "harness", "version": "1" },
        });
        self.send("initialize", params).await
    }

    async fn begin(&mut self, response: Response) {
        let session = response.headers().get("mcp-session-id").expect("a session").to_str().expect("text");
        self.session = Some(session.to_owned());
        let answer = read(response).await;
        assert_eq!(answer["result"]["protocolVersion"], VERSION, "{answer}");
        assert!(answer["result"]["capabilities"]["tools"].is_object(), "{answer}");
        let told = self.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).send().await;
        assert_eq!(told.expect("an answer").status(), StatusCode::ACCEPTED);
    }

    pub fn request(&self, method: Method) -> RequestBuilder {
        let mut request =
            self.client.request(method, &self.url).header("accept", "application/json, text/event-stream");
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", VERSION);
        }
        self.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    pub fn post(&self, message: &Value) -> RequestBuilder {
        self.request(Method::POST).json(message)
    }

    /// One request, whatever comes back.
    pub async fn send(&self, method: &str, params: Value) -> Response {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.post(&message).send().await.expect("the node answers")
    }

    /// The whole JSON-RPC message that answers.
    pub async fn ask(&self, method: &str, params: Value) -> Value {
        let response = self.send(method, params).await;
        assert_eq!(response.status(), 200, "{:?}", response.text().await);
        read(response).await
    }

    pub async fn call(&self, tool: &str, arguments: Value) -> Answer {
        let message = self.ask("tools/call", json!({ "name": tool, "arguments": arguments })).await;
        let result = &message["result"];
        assert!(result.is_object(), "{tool} is no tool call: {message}");
        let value = result["structuredContent"].clone();
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {message}"));
        let told: Value = serde_json::from_str(text).expect("the text is JSON");
        assert_eq!(value, told, "the text and the structured content differ");
        Answer { is_error: result["isError"] == true, value }
    }

    /// Opens a session; its id.
    pub async fn open(&self, arguments: Value) -> String {
        let opened = self.call("sandbox_open", arguments).await.ok();
        opened["session_id"].as_str().unwrap_or_else(|| panic!("no session in {opened}")).to_owned()
    }

    pub async fn exec(&self, session: &str, command: &str) -> Value {
        self.call("sandbox_exec", json!({ "session_id": session, "command": command })).await.ok()
    }

    /// The ids of the caller's sessions.
    pub async fn sessions(&self) -> Vec<String> {
        let listed = self.call("sandbox_list", json!({})).await.ok();
        let rows = listed["sandboxes"].as_array().expect("a list");
        rows.iter().map(|row| row["session_id"].as_str().expect("an id").to_owned()).collect()
    }
}

/// The one answer of a response: JSON, or the event that has an id of JSON-RPC.
async fn read(response: Response) -> Value {
    let kind = response.headers().get("content-type").map(|kind| kind.to_str().expect("text").to_owned());
    let text = response.text().await.expect("a body");
    if kind.is_some_and(|kind| kind.starts_with("application/json")) {
        return serde_json::from_str(&text).expect("JSON");
    }
    let events = text.lines().filter_map(|line| line.strip_prefix("data:"));
    let mut messages = events.filter_map(|data| serde_json::from_str::<Value>(data.trim()).ok());
    messages.find(|message| !message["id"].is_null()).unwrap_or_else(|| panic!("no answer in {text:?}"))
}
