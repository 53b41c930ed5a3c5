//! Who uses the journal now: each answers to its name as long as it does.

use std::time::Duration;

use async_nats::{Client, StatusCode};
use futures::StreamExt;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::JetStreamOptions;
use super::connect::unavailable;
use super::layout::Layout;
use crate::Error;

/// Answers until it is dropped.
pub(super) struct User(JoinHandle<Option<()>>);

impl Drop for User {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn subject(options: &JetStreamOptions) -> String {
    Layout { prefix: options.prefix.clone(), generation: 0, partitions: 1 }.users_subject()
}

impl User {
    /// Lets it answer no more, as if it was stopped.
    #[cfg(test)]
    pub(super) fn abort(&self) {
        self.0.abort();
    }

    pub(super) async fn announce(client: &Client, options: &JetStreamOptions) -> Result<Self, Error> {
        let asked = client.subscribe(subject(options)).await;
        let mut asked = asked.map_err(|error| unavailable(error.to_string()))?;
        // The servers know of it before whatever follows is asked of them.
        client.flush().await.map_err(|error| unavailable(error.to_string()))?;
        let (client, name) = (client.clone(), options.name.clone());
        Ok(Self(hearth_telemetry::task::spawn("journal.user", async move {
            while let Some(question) = asked.next().await {
                let Some(inbox) = question.reply else { continue };
                // Who asked and heard nothing takes this one for a user all the same.
                if let Err(error) = client.publish(inbox, name.clone().into()).await {
                    tracing::debug!(%error, "a question who uses the journal is not answered");
                }
            }
        })))
    }
}

/// The names of those that use the journal, as far as they answered within the time; an empty name is of some that
/// listen and do not answer. No names: nobody is connected.
pub(super) async fn list(client: &Client, options: &JetStreamOptions, within: Duration) -> Result<Vec<String>, Error> {
    let failed = |error: &dyn std::fmt::Display| unavailable(error.to_string());
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| failed(&error))?;
    let asked = client.publish_with_reply(subject(options), inbox, "".into()).await;
    asked.map_err(|error| failed(&error))?;
    let mut names = Vec::new();
    let deadline = Instant::now() + within;
    while let Ok(Some(answer)) = timeout_at(deadline, answers.next()).await {
        if answer.status == Some(StatusCode::NO_RESPONDERS) {
            return Ok(Vec::new());
        }
        names.push(String::from_utf8_lossy(&answer.payload).into_owned());
    }
    if names.is_empty() {
        names.push(String::new());
    }
    names.sort();
    Ok(names)
}
