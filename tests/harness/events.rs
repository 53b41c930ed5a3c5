//! Reading an event stream.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::Value;
use tokio::time::timeout;

use crate::WITHIN;

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The number of a journaled event; a live delta has none.
    pub id: Option<u64>,
    pub name: String,
    pub data: Value,
}

impl Event {
    /// Whether it is the one event that ends a turn.
    pub fn ends_turn(&self) -> bool {
        matches!(self.name.as_str(), "awaiting_input" | "done")
    }
}

/// A stream that is read as it comes.
#[derive(Debug)]
pub struct Events {
    response: Response,
    buffer: String,
    /// Comment lines so far.
    pub comments: usize,
}

impl Events {
    /// Panics unless the answer is a stream.
    pub async fn open(request: RequestBuilder) -> Self {
        // A stream has no end of its own: the client's time-out must not cut it.
        let response = request.timeout(Duration::from_secs(600)).send().await.expect("the server answers");
        let kind =
            response.headers().get("content-type").and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
        let status = response.status();
        assert!(status == 200 && kind.starts_with("text/event-stream"), "{status} {kind}");
        Self { response, buffer: String::new(), comments: 0 }
    }

    /// The next event; `None` once the server has closed the stream.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.buffer.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.buffer = rest;
                if let Some(event) = self.parse(&block) {
                    return Some(event);
                }
                continue;
            }
            let chunk = timeout(WITHIN, self.response.chunk()).await.expect("an event in time");
            match chunk {
                Ok(Some(bytes)) => self.buffer.push_str(&String::from_utf8_lossy(&bytes).replace('\r', "")),
                Ok(None) | Err(_) => return None,
            }
        }
    }

    fn parse(&mut self, block: &str) -> Option<Event> {
        let mut event = Event { id: None, name: "message".to_owned(), data: Value::Null };
        let mut data = String::new();
        let mut is_event = false;
        for line in block.lines() {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            is_event |= !field.is_empty();
            match field {
                "" => self.comments += 1,
                "id" => event.id = Some(value.parse().expect("an id is a number")),
                "event" => value.clone_into(&mut event.name),
                "data" => data.push_str(value),
                "retry" => {}
                other => panic!("the stream has a field {other:?}"),
            }
        }
        if is_event && !data.is_empty() {
            event.data = serde_json::from_str(&data).expect("data is JSON");
        }
        (is_event && !data.is_empty()).then_some(event)
    }

    /// All events up to the first that fits, with it.
    pub async fn until(&mut self, fits: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut seen = Vec::new();
        while let Some(event) = self.next().await {
            let found = fits(&event);
            seen.push(event);
            if found {
                return seen;
            }
        }
        panic!("the stream ended before the event: {seen:#?}");
    }

    /// All events up to the stream's end.
    pub async fn to_end(&mut self) -> Vec<Event> {
        let mut seen = Vec::new();
        while let Some(event) = self.next().await {
            seen.push(event);
        }
        seen
    }
}
