//! Snapshots; their files go through in pieces, of whatever size they are.

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::call::{Call, segment, with_query};
use crate::{Client, Error, Page};

const FILE: &str = "application/x-hearth-snapshot";

fn path(id: &str, rest: &str) -> String {
    format!("/v1/snapshots/{}{rest}", segment(id))
}

impl Client {
    /// Takes a resident, or a whole run tree.
    pub async fn take_snapshot(&self, run: &str, workspaces: bool) -> Result<Value, Error> {
        let path = format!("/v1/runs/{}/snapshot", segment(run));
        let call = Call { timeout: None, ..Call::post(path, &json!({ "workspaces": workspaces }), None)? };
        Ok(self.fetch::<Value>(call).await?.body)
    }

    pub async fn list_snapshots(&self, page: &Page) -> Result<Value, Error> {
        self.read(with_query("/v1/snapshots", page)?).await
    }

    /// Writes the portable file to `out`: how many bytes. One that breaks off is an error, and what was written
    /// is worth nothing.
    pub async fn export_snapshot(&self, id: &str, out: &mut (impl AsyncWrite + Unpin)) -> Result<u64, Error> {
        self.download(Call::get(path(id, "/export")), out).await
    }

    /// Brings a portable file in. Sent once: one that is read from a pipe cannot be read again.
    pub async fn import_snapshot(&self, file: impl AsyncRead + Send + 'static) -> Result<Value, Error> {
        let call = Call { timeout: None, ..Call::post("/v1/snapshots/import".to_owned(), &(), None)? };
        self.upload(call, FILE, file).await
    }

    /// New runs with the conversation and the state of those that were taken.
    pub async fn resume_snapshot(&self, id: &str) -> Result<Value, Error> {
        let call = Call { timeout: None, ..Call::post(path(id, "/resume"), &json!({}), None)? };
        Ok(self.fetch::<Value>(call).await?.body)
    }

    pub async fn remove_snapshot(&self, id: &str) -> Result<Value, Error> {
        Ok(self.fetch::<Value>(Call::delete(path(id, ""))).await?.body)
    }
}
