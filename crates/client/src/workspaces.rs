//! Durable workspaces; their archives go through in pieces, of whatever size they are.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;
use tokio_util::io::ReaderStream;

use crate::answer::{Reply, read_body};
use crate::call::{Attempt, Call, segment, with_query};
use crate::error::causes;
use crate::retry::Failure;
use crate::{Client, Error, Page};

fn path(name: &str, rest: &str) -> String {
    format!("/v1/workspaces/{}{rest}", segment(name))
}

impl Client {
    pub async fn list_workspaces(&self, page: &Page) -> Result<Value, Error> {
        self.read(with_query("/v1/workspaces", page)?).await
    }

    pub async fn delete_workspace(&self, name: &str) -> Result<Value, Error> {
        Ok(self.fetch::<Value>(Call::delete(path(name, ""))).await?.body)
    }

    /// Writes the archive to `out`: how many bytes. One that breaks off is an error, and what was written is
    /// worth nothing.
    pub async fn export_workspace(&self, name: &str, out: &mut (impl AsyncWrite + Unpin)) -> Result<u64, Error> {
        self.download(Call::get(path(name, "/export")), out).await
    }

    /// Writes a body of any size to `out`: how many bytes.
    pub(crate) async fn download(&self, call: Call, out: &mut (impl AsyncWrite + Unpin)) -> Result<u64, Error> {
        let mut repeats = self.repeats();
        let mut response = loop {
            let attempt = match call.start(self, Instant::now()).await {
                Ok(response) if response.status().is_success() => break response,
                Ok(response) => self.refused(&call, response).await,
                Err(attempt) => attempt,
            };
            repeats.wait_after(&call, attempt).await?;
        };
        let mut bytes = 0;
        while let Some(piece) = response.chunk().await.map_err(|error| Error::protocol(call.name(), causes(&error)))? {
            out.write_all(&piece).await.map_err(|error| Error::protocol("the archive's file", error.to_string()))?;
            bytes += piece.len() as u64;
        }
        out.flush().await.map_err(|error| Error::protocol("the archive's file", error.to_string()))?;
        Ok(bytes)
    }

    /// Replaces what the workspace holds. Sent once: an archive that is read from a pipe cannot be read again.
    pub async fn import_workspace(&self, name: &str, tar: impl AsyncRead + Send + 'static) -> Result<Value, Error> {
        let call = Call { timeout: None, ..Call::put(path(name, "/import"), &())? };
        self.upload(call, "application/x-tar", tar).await
    }

    /// Sends a body of any size, once.
    pub(crate) async fn upload(
        &self,
        call: Call,
        kind: &str,
        body: impl AsyncRead + Send + 'static,
    ) -> Result<Value, Error> {
        // What can be sent once only is not what a server that is away is found out with.
        self.perform(Call::get("/livez".to_owned())).await?;
        let body = reqwest::Body::wrap_stream(ReaderStream::new(body));
        let mut request = self.request(&call).header("content-type", kind);
        if let Some(key) = &call.key {
            request = request.header("idempotency-key", key);
        }
        let sent = request.body(body).send().await;
        let response = sent.map_err(|error| Error::protocol(call.name(), causes(&error)))?;
        let head = Reply::head(&response);
        let unread = |cause| Attempt::Outage { failure: Failure::NoAnswer, cause };
        let body = match read_body(response, &call.name()).await {
            Ok(body) => body,
            Err(error) => return Err(last(&call, error.into_attempt(unread))),
        };
        let reply = call.judge(Reply { body, ..head }).map_err(|attempt| last(&call, attempt))?;
        Ok(reply.decode::<Value>(&call.name())?.body)
    }

    async fn refused(&self, call: &Call, response: reqwest::Response) -> Attempt {
        let head = Reply::head(&response);
        let broken = |cause| Attempt::Outage { failure: Failure::NoAnswer, cause };
        match read_body(response, &call.name()).await {
            Err(error) => error.into_attempt(broken),
            Ok(body) => match call.judge(Reply { body, ..head }) {
                Ok(_) => Attempt::Final(Error::protocol(call.name(), "not an archive")),
                Err(attempt) => attempt,
            },
        }
    }
}

/// What an attempt that is not repeated comes to.
fn last(call: &Call, attempt: Attempt) -> Error {
    match attempt {
        Attempt::Final(error) => error,
        Attempt::Asked(error) => Error::Api(error),
        Attempt::Outage { cause, .. } => Error::protocol(call.name(), cause),
    }
}
