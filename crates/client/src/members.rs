//! Replicas and sandbox sessions, for operators.

use hearth_types::SandboxSpec;
use serde_json::{Value, json};

use crate::call::{Call, segment, with_query};
use crate::{Client, Error, Page};

impl Client {
    /// What a run and its descendants open as their sandbox from now on. The answer is the server's.
    pub async fn override_sandbox(&self, run: &str, sandbox: &SandboxSpec) -> Result<Value, Error> {
        let path = format!("/v1/runs/{}/sandbox", segment(run));
        Ok(self.fetch::<Value>(Call::put(path, sandbox)?).await?.body)
    }

    pub async fn clear_sandbox_override(&self, run: &str) -> Result<Value, Error> {
        Ok(self.fetch::<Value>(Call::delete(format!("/v1/runs/{}/sandbox", segment(run)))).await?.body)
    }

    pub async fn list_replicas(&self, page: &Page) -> Result<Value, Error> {
        self.read(with_query("/v1/_replicas", page)?).await
    }

    /// Has a replica hand everything over and end: its row.
    pub async fn drain_replica(&self, replica: &str) -> Result<Value, Error> {
        let path = format!("/v1/_replicas/{}/drain", segment(replica));
        Ok(self.fetch::<Value>(Call::post(path, &json!({}), None)?).await?.body)
    }

    pub async fn list_nodes(&self, page: &Page) -> Result<Value, Error> {
        self.read(with_query("/v1/_nodes", page)?).await
    }

    /// The node takes no new sessions, and ends after its last one: its row.
    pub async fn drain_node(&self, node: &str) -> Result<Value, Error> {
        let path = format!("/v1/_nodes/{}/drain", segment(node));
        Ok(self.fetch::<Value>(Call::post(path, &json!({}), None)?).await?.body)
    }

    pub async fn list_sandboxes(&self, page: &Page) -> Result<Value, Error> {
        self.read(with_query("/v1/_sandboxes", page)?).await
    }

    pub async fn close_sandbox(&self, session: &str) -> Result<Value, Error> {
        let path = format!("/v1/_sandboxes/{}/close", segment(session));
        Ok(self.fetch::<Value>(Call::post(path, &json!({}), None)?).await?.body)
    }

    /// Closes all sessions of one run tree: `{"closed": n}`.
    pub async fn close_run_sandboxes(&self, root_run: &str) -> Result<Value, Error> {
        let body = json!({ "root_run_id": root_run });
        Ok(self.fetch::<Value>(Call::post("/v1/_sandboxes/close_run".to_owned(), &body, None)?).await?.body)
    }

    /// Returns once the server can serve; a server that starts is waited for, within the policy.
    pub async fn ready(&self) -> Result<(), Error> {
        self.perform(Call::get("/readyz".to_owned())).await.map(drop)
    }
}
