//! Runs and sessions.

use std::collections::BTreeMap;

use hearth_types::{InputMode, Isolation, RunState, SandboxSpec, TurnId};
use serde::Serialize;
use serde_json::{Value, json};

use crate::call::{Call, segment, with_query};
use crate::{Answer, CancelReply, Client, CloseReply, Error, EventStream, RunReply};

/// `POST /v1/runs`. `key`, here and below, is the idempotency key; absent, each call gets its own.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CreateRun {
    pub agent: String,
    pub prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interactive: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_timeout_seconds: Option<u64>,
    /// Absent or 0: until the run parks or ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    #[serde(skip)]
    pub key: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Input {
    pub text: String,
    pub mode: InputMode,
    #[serde(skip)]
    pub key: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct SessionMessage {
    pub prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip)]
    pub key: Option<String>,
}

/// The filters of the lists of runs and residents.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ListRuns {
    pub state: Option<RunState>,
    pub agent: Option<String>,
    pub root_run_id: Option<String>,
    pub parent_run_id: Option<String>,
    pub resident: Option<bool>,
    pub limit: Option<u32>,
    pub cursor: Option<String>,
    /// For admins: one tenant only.
    pub tenant: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Page {
    pub limit: Option<u32>,
    pub cursor: Option<String>,
}

impl Client {
    pub async fn create_run(&self, request: &CreateRun) -> Result<Answer<RunReply>, Error> {
        let call = Call::post("/v1/runs".to_owned(), request, request.key.as_deref())?;
        self.fetch(call.blocking(request.wait_ms)).await
    }

    pub async fn run(&self, run: &str) -> Result<Value, Error> {
        self.read(format!("/v1/runs/{}", segment(run))).await
    }

    /// The page as the server answers it: `{"runs": […], "next_cursor", "as_of"}`.
    pub async fn list_runs(&self, filter: &ListRuns) -> Result<Value, Error> {
        self.read(with_query("/v1/runs", filter)?).await
    }

    /// The events of a run from `from_seq` on (0 or 1: all of them).
    pub fn stream(&self, run: &str, from_seq: u64) -> EventStream {
        EventStream::new(self.clone(), run, from_seq)
    }

    /// `{run_id, turn_id, delivered}`.
    pub async fn input(&self, run: &str, request: &Input) -> Result<Value, Error> {
        let path = format!("/v1/runs/{}/input", segment(run));
        Ok(self.fetch::<Value>(Call::post(path, request, request.key.as_deref())?).await?.body)
    }

    /// Ends a turn; the current one if none is named. Works for residents too.
    pub async fn cancel(
        &self,
        run: &str,
        turn: Option<&TurnId>,
        reason: Option<&str>,
    ) -> Result<Answer<CancelReply>, Error> {
        let path = format!("/v1/runs/{}/cancel", segment(run));
        let body = without_nulls(json!({ "turn_id": turn, "reason": reason }));
        self.fetch(Call::post(path, &body, None)?.blocking(None)).await
    }

    /// Ends the run and its descendants, and answers when all of them are final. Works for residents too.
    pub async fn close(&self, run: &str, reason: Option<&str>) -> Result<Answer<CloseReply>, Error> {
        let path = format!("/v1/runs/{}/close", segment(run));
        let body = without_nulls(json!({ "reason": reason }));
        self.fetch(Call::post(path, &body, None)?.blocking(None)).await
    }

    pub async fn message(&self, session: &str, request: &SessionMessage) -> Result<Answer<RunReply>, Error> {
        let path = format!("/v1/sessions/{}/messages", segment(session));
        self.fetch(Call::post(path, request, request.key.as_deref())?.blocking(None)).await
    }

    /// `{session_id, messages, next_cursor}`.
    pub async fn transcript(&self, session: &str, page: &Page) -> Result<Value, Error> {
        self.read(with_query(&format!("/v1/sessions/{}/transcript", segment(session)), page)?).await
    }

    pub(crate) async fn fetch<T: serde::de::DeserializeOwned>(&self, call: Call) -> Result<Answer<T>, Error> {
        let name = call.name();
        self.perform(call).await?.decode(&name)
    }

    pub(crate) async fn read(&self, path: String) -> Result<Value, Error> {
        Ok(self.fetch::<Value>(Call::get(path)).await?.body)
    }
}

fn without_nulls(mut body: Value) -> Value {
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    body
}
