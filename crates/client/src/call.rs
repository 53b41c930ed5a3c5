//! One logical call, and one attempt at it.

use std::time::Duration;

use bytes::Bytes;
use reqwest::{Method, Response};
use serde::Serialize;
use tokio::time::Instant;

use crate::answer::{Reply, read_body};
use crate::error::causes;
use crate::retry::Failure;
use crate::{ApiError, Client, Error};

/// For calls that do not block: longer silence is an outage.
const PROMPT: Duration = Duration::from_secs(30);

/// What is sent, the same at each attempt.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub method: Method,
    /// With the query.
    pub path: String,
    pub body: Option<Bytes>,
    pub key: Option<String>,
    pub headers: Vec<(&'static str, String)>,
    /// Of one attempt. `None`: as long as it takes.
    pub timeout: Option<Duration>,
}

/// An attempt without a result.
pub(crate) enum Attempt {
    /// Repeating it would change nothing.
    Final(Error),
    Outage {
        failure: Failure,
        cause: String,
    },
    /// The server asks for patience.
    Asked(Box<ApiError>),
}

impl Call {
    pub(crate) fn get(path: String) -> Self {
        Self { method: Method::GET, path, body: None, key: None, headers: Vec::new(), timeout: Some(PROMPT) }
    }

    /// A command. `key` is the caller's own, or a fresh one, kept over all attempts.
    pub(crate) fn post<B: Serialize>(path: String, body: &B, key: Option<&str>) -> Result<Self, Error> {
        let bytes = serde_json::to_vec(body).map_err(|error| Error::protocol(&*path, error.to_string()))?;
        let key = key.map_or_else(|| uuid::Uuid::now_v7().to_string(), str::to_owned);
        Ok(Self { method: Method::POST, body: Some(bytes.into()), key: Some(key), ..Self::get(path) })
    }

    /// A command that can be repeated as it is.
    pub(crate) fn put<B: Serialize>(path: String, body: &B) -> Result<Self, Error> {
        Ok(Self { method: Method::PUT, key: None, ..Self::post(path, body, None)? })
    }

    /// The same, of some fields.
    pub(crate) fn patch<B: Serialize>(path: String, body: &B) -> Result<Self, Error> {
        Ok(Self { method: Method::PATCH, ..Self::put(path, body)? })
    }

    pub(crate) fn delete(path: String) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    /// A call that answers when a turn has ended, or after `wait_ms`.
    #[must_use]
    pub(crate) fn blocking(mut self, wait_ms: Option<u64>) -> Self {
        self.timeout = wait_ms.filter(|ms| *ms > 0).map(|ms| PROMPT.saturating_add(Duration::from_millis(ms)));
        self
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    pub(crate) async fn attempt(&self, client: &Client) -> Result<Reply, Attempt> {
        let began = Instant::now();
        let work = async {
            let response = self.start(client, began).await?;
            let broken = |cause| Attempt::Outage { failure: Failure::Broken { after: began.elapsed() }, cause };
            let head = Reply::head(&response);
            let body = read_body(response, &self.name()).await.map_err(|error| error.into_attempt(broken))?;
            self.judge(Reply { body, ..head })
        };
        match self.timeout {
            Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(silent(limit))),
            None => work.await,
        }
    }

    /// Sends the request and returns when the head of the answer is there.
    pub(crate) async fn start(&self, client: &Client, began: Instant) -> Result<Response, Attempt> {
        let mut request = client.request(self);
        if let Some(body) = &self.body {
            request = request.header("content-type", "application/json").body(body.clone());
        }
        if let Some(key) = &self.key {
            request = request.header("idempotency-key", key);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let response = request.send().await.map_err(|error| self.not_sent(&error, began))?;
        client.mark_reached();
        Ok(response)
    }

    fn not_sent(&self, error: &reqwest::Error, began: Instant) -> Attempt {
        let cause = causes(error);
        if error.is_builder() {
            // A token or key that is no header value, a path that is no URL.
            return Attempt::Final(Error::protocol(self.name(), cause));
        }
        let failure = if error.is_connect() || error.is_timeout() {
            Failure::NoAnswer
        } else {
            Failure::Broken { after: began.elapsed() }
        };
        Attempt::Outage { failure, cause }
    }

    pub(crate) fn judge(&self, reply: Reply) -> Result<Reply, Attempt> {
        if (200..300).contains(&reply.status) {
            return Ok(reply);
        }
        let error = reply.into_error(self).map_err(Attempt::Final)?;
        Err(if error.is_outage() {
            Attempt::Asked(Box::new(error))
        } else {
            Attempt::Final(Error::Api(Box::new(error)))
        })
    }
}

fn silent(limit: Duration) -> Attempt {
    Attempt::Outage { failure: Failure::NoAnswer, cause: format!("no answer within {} s", limit.as_secs()) }
}

/// `text` as one segment of a path: an agent's name may hold `/`.
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// `path?name=value&…` from the fields of `query` that are set.
pub(crate) fn with_query<Q: Serialize>(path: &str, query: &Q) -> Result<String, Error> {
    let fields = serde_json::to_value(query).map_err(|error| Error::protocol(path, error.to_string()))?;
    let mut out = path.to_owned();
    let mut mark = '?';
    for (name, value) in fields.as_object().into_iter().flatten() {
        let text = match value {
            serde_json::Value::Null => continue,
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        out.push_str(&format!("{mark}{}={}", segment(name), segment(&text)));
        mark = '&';
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_slash_is_one_segment() {
        assert_eq!(segment("dev/exec"), "dev%2Fexec");
        assert_eq!(segment("a b?ä"), "a%20b%3F%C3%A4");
    }

    #[test]
    fn only_set_fields_make_the_query() {
        let query = serde_json::json!({ "limit": 5, "state": null, "agent": "a/b" });
        assert_eq!(with_query("/v1/runs", &query).unwrap(), "/v1/runs?agent=a%2Fb&limit=5");
        assert_eq!(with_query("/v1/runs", &serde_json::json!({})).unwrap(), "/v1/runs");
    }

    #[test]
    fn every_command_has_a_key_of_its_own_unless_the_caller_brings_one() {
        let fresh = || Call::post("/".to_owned(), &(), None).unwrap().key.unwrap();
        assert_ne!(fresh(), fresh());
        assert_eq!(Call::post("/".to_owned(), &(), Some("mine")).unwrap().key.as_deref(), Some("mine"));
    }
}
