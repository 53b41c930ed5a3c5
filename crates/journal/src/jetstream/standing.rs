//! Which layout of the journal stands: one record, by which it is changed as a whole.
//!
//! The record is replaced only by who has read the one that stands, so that of two who change it one is told.

use async_nats::HeaderMap;
use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{DiscardPolicy, LastRawMessageErrorKind};
use futures::TryStreamExt;
use hearth_types::RunId;
use serde::{Deserialize, Serialize};

use super::JetStreamOptions;
use super::connect::{base, ensure, find, unavailable};
use super::layout::Layout;
use crate::{Error, Position};

const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Standing {
    pub(super) v: u32,
    pub(super) generation: u32,
    pub(super) partitions: u16,
    /// A copy to the next generation, with this number of partitions, was begun. Nothing is written meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) moving_to: Option<u16>,
    /// What stood before, until its streams are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) former: Option<Former>,
    /// Makes each record another one: who goes on with what somebody else began takes it from them.
    #[serde(default)]
    pub(super) nonce: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Former {
    pub(super) generation: u32,
    pub(super) partitions: u16,
}

/// The record, and where it stands; no record, and zero, for a journal that has none.
pub(super) type Found = (Option<Standing>, Position);

impl Standing {
    pub(super) fn of(generation: u32, partitions: u16) -> Self {
        Self { v: VERSION, generation, partitions, moving_to: None, former: None, nonce: RunId::generate().to_string() }
    }

    pub(super) fn layout(&self, prefix: &str) -> Layout {
        Layout { prefix: prefix.to_owned(), generation: self.generation, partitions: self.partitions }
    }

    /// The error of who is configured otherwise, or comes in the middle of a change.
    pub(super) fn admit(&self, configured: u16) -> Result<(), Error> {
        let has = self.partitions;
        if let Some(to) = self.moving_to {
            return Err(unavailable(format!(
                "the journal is being changed from {has} to {to} partitions: go on with \
                 `hearth journal repartition --from {has} --to {to}`, or give it up with `hearth journal repartition --cancel`"
            )));
        }
        if has != configured {
            return Err(unavailable(format!(
                "the journal has {has} partitions, and `journal_partitions` is {configured}: set it to {has}, or stop all \
                 replicas and change the journal with `hearth journal repartition --from {has} --to {configured}`"
            )));
        }
        Ok(())
    }
}

/// The record of a journal, which is written now if it has none.
pub(super) async fn settle(context: &Context, options: &JetStreamOptions) -> Result<(Standing, Position), Error> {
    prepare(context, options).await?;
    loop {
        let (found, position) = read(context, &options.prefix).await?;
        if let Some(standing) = found {
            return Ok((standing, position));
        }
        let first = Standing::of(0, first_number(context, options).await?);
        match replace(context, &options.prefix, position, &first).await {
            // Another replica was faster.
            Err(Error::Fenced { .. }) => {}
            Err(error) => return Err(error),
            Ok(position) => return Ok((first, position)),
        }
    }
}

async fn prepare(context: &Context, options: &JetStreamOptions) -> Result<(), Error> {
    let layout = Layout { prefix: options.prefix.clone(), generation: 0, partitions: 1 };
    let stream = async_nats::jetstream::stream::Config {
        name: layout.standing_stream(),
        description: Some("Hearth journal, which layout stands".into()),
        subjects: vec![layout.standing_subject()],
        discard: DiscardPolicy::Old,
        max_messages: 1,
        ..base(options)
    };
    ensure(context, stream, options).await
}

/// A journal without a record is new, or was made before there were records: then the first stream says its number.
async fn first_number(context: &Context, options: &JetStreamOptions) -> Result<u16, Error> {
    let layout = Layout { prefix: options.prefix.clone(), generation: 0, partitions: options.partitions.get() };
    let names = context.stream_names().try_collect::<Vec<String>>().await;
    let names = names.map_err(|error| unavailable(format!("the streams cannot be listed: {error}")))?;
    let mark = format!("{}-journal-", options.prefix);
    if let Some(later) = names.iter().find(|name| name.strip_prefix(&mark).is_some_and(|rest| rest.contains('-'))) {
        return Err(unavailable(format!(
            "there is a stream {later}, and {} does not say what it is: restore that stream too",
            layout.standing_stream()
        )));
    }
    let Some(first) = find(context, &layout.stream(0)).await? else { return Ok(layout.partitions) };
    let said = first.config.description.unwrap_or_default();
    let number = said.rsplit_once(" of ").and_then(|(_, number)| number.parse().ok());
    number.ok_or_else(|| unavailable(format!("stream {} is \"{said}\": it does not say its number", layout.stream(0))))
}

/// By way of the stream's leader.
pub(super) async fn read(context: &Context, prefix: &str) -> Result<Found, Error> {
    let layout = Layout { prefix: prefix.to_owned(), generation: 0, partitions: 1 };
    let name = layout.standing_stream();
    let stream = context.get_stream_no_info(&name).await;
    let stream = stream.map_err(|error| unavailable(format!("stream {name}: {error}")))?;
    let message = match stream.get_last_raw_message_by_subject(&layout.standing_subject()).await {
        Ok(message) => message,
        Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => {
            return Ok((None, Position(0)));
        }
        Err(error) => return Err(unavailable(format!("stream {name}: {error}"))),
    };
    let standing: Standing = serde_json::from_slice(&message.payload)
        .map_err(|error| Error::Corrupt { place: format!("stream {name}"), reason: error.to_string() })?;
    if standing.v > VERSION {
        return Err(unavailable(format!(
            "the layout of the journal was written by a newer version ({}); this program reads up to {VERSION}: upgrade it",
            standing.v
        )));
    }
    Ok((Some(standing), Position(message.sequence)))
}

/// [`Error::Fenced`] when another record stands than the one at `expected`.
pub(super) async fn replace(
    context: &Context,
    prefix: &str,
    expected: Position,
    standing: &Standing,
) -> Result<Position, Error> {
    use async_nats::jetstream::context::PublishErrorKind;
    let subject = Layout { prefix: prefix.to_owned(), generation: 0, partitions: 1 }.standing_subject();
    let text = serde_json::to_vec(standing).map_err(|error| unavailable(error.to_string()))?;
    let mut headers = HeaderMap::new();
    headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expected.to_string().as_str());
    let stored = async { context.publish_with_headers(subject, headers, text.into()).await?.await };
    match stored.await {
        Ok(stored) => Ok(Position(stored.sequence)),
        // It may have been this very record, whose acknowledgement was lost.
        Err(error) => match read(context, prefix).await? {
            (Some(stands), position) if stands == *standing => Ok(position),
            (_, last) if error.kind() == PublishErrorKind::WrongLastSequence => Err(Error::Fenced { last }),
            _ => Err(unavailable(format!("the layout of the journal cannot be written: {error}"))),
        },
    }
}
