//! Appends to JetStream: a message for a subject that names the sequence it expects to be last, with an
//! id, the row in a header, and the acknowledgement awaited.

use std::time::Duration;

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context};

use super::{Payload, filler};
use crate::Error;

/// As many streams as a cluster's journal has by default.
const PARTITIONS: u64 = 8;

pub(crate) fn nats(error: impl std::fmt::Display) -> Error {
    Error::Nats(error.to_string())
}

#[derive(Debug, Clone)]
pub(crate) struct BareJetStream {
    context: Context,
    accept: String,
    end: String,
    row: String,
}

impl BareJetStream {
    /// Makes the streams, beside those of the cluster on the same servers.
    pub(crate) async fn connect(url: &str, payload: Payload) -> Result<Self, Error> {
        let client = async_nats::connect(url).await.map_err(nats)?;
        let context = jetstream::new(client);
        for partition in 0..PARTITIONS {
            let config = Config {
                name: format!("floor-{partition}"),
                subjects: vec![format!("floor.{partition}.>")],
                retention: RetentionPolicy::Limits,
                discard: DiscardPolicy::New,
                storage: StorageType::File,
                allow_direct: true,
                duplicate_window: Duration::from_secs(120),
                ..Config::default()
            };
            context.get_or_create_stream(config).await.map_err(nats)?;
        }
        let (accept, end, row) = (filler(payload.accept), filler(payload.end), filler(payload.row));
        Ok(Self { context, accept, end, row })
    }

    /// One append; the sequence that the next one of this log has to expect.
    pub(crate) async fn append(&self, log: u64, expected: u64, accepts: bool) -> Result<u64, Error> {
        let subject = format!("floor.{}.run.{log}", log % PARTITIONS);
        let body = if accepts { &self.accept } else { &self.end };
        let message = PublishMessage::build()
            .message_id(format!("{subject}:{expected}"))
            .expected_last_subject_sequence(expected)
            .header("Floor-Head", self.row.as_str())
            .payload(body.clone().into());
        let sent = self.context.send_publish(subject, message).await.map_err(nats)?;
        match sent.await {
            Ok(acknowledged) => Ok(acknowledged.sequence),
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                Err(Error::Nats("two appends of one log met".to_owned()))
            }
            Err(error) => Err(nats(error)),
        }
    }
}
