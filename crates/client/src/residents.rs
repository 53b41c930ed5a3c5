//! Residents: opened once, sent to for hours.

use hearth_types::{Envelope, Isolation, SandboxSpec};
use serde::Serialize;
use serde_json::Value;

use crate::call::{Call, segment, with_query};
use crate::{Answer, Client, Error, ListRuns};

#[derive(Debug, Clone, Default, Serialize)]
pub struct OpenResident {
    pub agent: String,
    pub prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ttl_seconds: Option<u64>,
    /// Absent or 0: until the first turn ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSpec>,
    #[serde(skip)]
    pub key: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Send {
    pub prompt: String,
    /// Absent or 0: until the turn ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(skip)]
    pub key: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Poll {
    /// Absent or 0: a snapshot.
    pub timeout_ms: Option<u64>,
    /// Absent: the newest.
    pub turn_id: Option<String>,
}

impl Client {
    pub async fn open(&self, request: &OpenResident) -> Result<Answer<Envelope>, Error> {
        let call = Call::post("/v1/_resident".to_owned(), request, request.key.as_deref())?;
        self.fetch(call.blocking(request.timeout_ms)).await
    }

    /// Blocks until the turn has ended, through any number of lost connections and restarts of the
    /// server: each attempt carries the same key and re-attaches to the same turn.
    pub async fn send(&self, child: &str, request: &Send) -> Result<Answer<Envelope>, Error> {
        let path = format!("/v1/_resident/{}/send", segment(child));
        let call = Call::post(path, request, request.key.as_deref())?;
        self.fetch(call.blocking(request.timeout_ms)).await
    }

    pub async fn poll(&self, child: &str, request: &Poll) -> Result<Answer<Envelope>, Error> {
        let path = with_query(&format!("/v1/_resident/{}", segment(child)), request)?;
        let snapshot = request.timeout_ms.is_none_or(|ms| ms == 0);
        let call = Call::get(path);
        self.fetch(if snapshot { call } else { call.blocking(request.timeout_ms) }).await
    }

    /// The page as the server answers it: `{"resident": […], "next_cursor", "as_of"}`.
    pub async fn list_residents(&self, filter: &ListRuns) -> Result<Value, Error> {
        self.read(with_query("/v1/_resident", filter)?).await
    }
}
