//! Reading logs: what the stream's leader says is last, and everything up to it.

use std::time::Duration;

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::{Message, StatusCode};
use bytes::Bytes;
use futures::StreamExt;
use serde_json::json;
use tokio::time::timeout;

use super::Servers;
use super::record::{Claim, Part, Record};
use crate::{Error, LogKey, Position, StoredFrame};

/// Messages that one request asks for.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// How long a batch may stop before the leader is asked instead.
const SILENCE: Duration = Duration::from_secs(1);

impl Servers {
    pub(super) async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        let read = self.read_records(key, after, limit).await?;
        Ok(read.into_iter().map(|(record, frame)| StoredFrame { position: record.position, frame }).collect())
    }

    /// Every frame of the answer is one that the leader's last frame is built on: each message carries
    /// the position of the one before, so a copy that lags or has a gap is seen, and the leader asked.
    pub(super) async fn read_records(
        &self,
        key: &LogKey,
        after: Position,
        limit: usize,
    ) -> Result<Vec<(Record, Bytes)>, Error> {
        let mut newest = self.newest(key).await?;
        loop {
            let Some(known) = newest else { return Ok(Vec::new()) };
            let floor = known.floor;
            match self.read_up_to(key, known, after, limit).await {
                // What is missing may have been before a floor that rose meanwhile.
                Err(Error::Corrupt { place, reason }) => {
                    newest = self.newest(key).await?;
                    if newest.as_ref().is_none_or(|newest| newest.floor <= floor) {
                        return Err(Error::Corrupt { place, reason });
                    }
                }
                read => return read,
            }
        }
    }

    async fn read_up_to(
        &self,
        key: &LogKey,
        newest: Record,
        after: Position,
        limit: usize,
    ) -> Result<Vec<(Record, Bytes)>, Error> {
        let after = Position(after.0.max(newest.floor.0.saturating_sub(1)));
        if newest.position <= after || limit == 0 {
            return Ok(Vec::new());
        }
        let mut chain = Chain { after, newest: newest.clone(), limit, records: Vec::new() };
        if newest.after <= after {
            chain.push(newest);
        } else {
            self.read_batches(key, &mut chain).await?;
            self.read_from_leader(key, &mut chain).await?;
        }
        let mut frames = Vec::with_capacity(chain.records.len());
        for record in chain.records {
            let frame = self.bytes(&record.place(key), record.frame.clone()).await?;
            record.verify(key, &frame)?;
            frames.push((record, frame));
        }
        Ok(frames)
    }

    /// The stored message of the log at `sequence` or, where that is of another log, the next one.
    async fn next_message(&self, key: &LogKey, sequence: u64) -> Result<Option<StreamMessage>, Error> {
        let stream = self.stream(key);
        let next = stream.raw_message_builder().sequence(sequence).next_by_subject(self.layout.subject(key)).send();
        match next.await {
            Ok(message) => Ok(Some(message)),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                _ => Err(Error::Unavailable { reason: error.to_string() }),
            },
        }
    }

    /// Asks the leader for one frame after the other, as what they claim is to be removed with them;
    /// claims first, since what nothing names would never be found again.
    pub(super) async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error> {
        let Some(newest) = self.newest(key).await? else { return Ok(0) };
        let floor = newest.floor.min(newest.position);
        let (mut count, mut next) = (0, 1);
        while count < limit {
            let Some(message) = self.next_message(key, next).await? else { break };
            if message.sequence >= floor.0 {
                break;
            }
            let record = Record::parse(message.sequence, &message.headers, message.payload)?;
            for part in [Some(record.frame), record.head].into_iter().flatten() {
                if let Part::Claim(claim) = part
                    && !self.inherits(key, floor, &claim).await?
                {
                    self.remove_claim(&claim).await?;
                }
            }
            count += 1;
            next = message.sequence + 1;
        }
        if count == 0 {
            return Ok(0);
        }
        let purge = self.stream(key).purge().filter(self.layout.subject(key)).sequence(next);
        let purged = purge.await.map_err(|error| Error::Unavailable { reason: error.to_string() })?;
        Ok(purged.purged)
    }

    /// Whether the frame at the floor carries on a head that a frame before it stored: then all those
    /// between the two do.
    async fn inherits(&self, key: &LogKey, floor: Position, claim: &Claim) -> Result<bool, Error> {
        let Some(message) = self.next_message(key, floor.0).await? else { return Ok(false) };
        let record = Record::parse(message.sequence, &message.headers, message.payload)?;
        Ok(matches!(record.head, Some(Part::Claim(carried)) if carried == *claim))
    }

    /// The log's last message, by the leader of its stream.
    pub(super) async fn newest(&self, key: &LogKey) -> Result<Option<Record>, Error> {
        let message = self.newest_message(self.stream(key), &self.layout.subject(key)).await?;
        message.map(|message| Record::parse(message.sequence, &message.headers, message.payload)).transpose()
    }

    pub(super) async fn newest_message(
        &self,
        stream: &Stream<()>,
        subject: &str,
    ) -> Result<Option<StreamMessage>, Error> {
        self.check_connected()?;
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message)),
            Err(error) => match error.kind() {
                LastRawMessageErrorKind::NoMessageFound => Ok(None),
                _ => Err(Error::Unavailable { reason: error.to_string() }),
            },
        }
    }

    /// Asks any copy of the stream for many messages at once. Whatever it leaves out is left to
    /// [`Self::read_from_leader`].
    async fn read_batches(&self, key: &LogKey, chain: &mut Chain) -> Result<(), Error> {
        loop {
            let before = chain.records.len();
            for record in self.batch(key, chain).await? {
                if !chain.accepts(&record) {
                    return Ok(());
                }
                chain.push(record);
            }
            if chain.is_complete() || chain.records.len() == before {
                return Ok(());
            }
        }
    }

    async fn batch(&self, key: &LogKey, chain: &Chain) -> Result<Vec<Record>, Error> {
        let unavailable = |error: &dyn std::fmt::Display| Error::Unavailable { reason: error.to_string() };
        let wanted = BATCH.min(chain.missing());
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await.map_err(|error| unavailable(&error))?;
        let request = json!({
            "seq": chain.last().0 + 1,
            "next_by_subj": self.layout.subject(key),
            "batch": wanted,
            "max_bytes": BATCH_BYTES,
        });
        let subject = format!("$JS.API.DIRECT.GET.{}", self.layout.stream(self.layout.partition(key)));
        let asked = self.client.publish_with_reply(subject, inbox, request.to_string().into());
        asked.await.map_err(|error| unavailable(&error))?;
        let mut records = Vec::new();
        while records.len() < wanted {
            // Silence ends a batch too: the copy that was asked may have died.
            let Ok(Some(message)) = timeout(SILENCE, answers.next()).await else { break };
            let Some((record, more)) = parse_direct(message)? else { break };
            records.push(record);
            if !more {
                break;
            }
        }
        Ok(records)
    }

    async fn read_from_leader(&self, key: &LogKey, chain: &mut Chain) -> Result<(), Error> {
        while !chain.is_complete() {
            let Some(message) = self.next_message(key, chain.last().0 + 1).await? else {
                return Err(chain.missing_after_last(key));
            };
            let record = Record::parse(message.sequence, &message.headers, message.payload)?;
            if !chain.accepts(&record) {
                return Err(chain.missing_after_last(key));
            }
            chain.push(record);
        }
        Ok(())
    }
}

/// A message that came straight from a copy of the stream, and whether more come: a server that knows
/// no batches sends one, and says nothing of others. `None` for a status, which ends a batch.
fn parse_direct(message: Message) -> Result<Option<(Record, bool)>, Error> {
    if message.status.is_some_and(|status| status != StatusCode::OK) {
        return Ok(None);
    }
    let Some(headers) = message.headers else { return Ok(None) };
    let number = |name: &str| headers.get(name).and_then(|value| value.as_str().parse::<u64>().ok());
    let Some(sequence) = number("Nats-Sequence") else { return Ok(None) };
    let more = number("Nats-Num-Pending").is_some_and(|pending| pending > 0);
    Ok(Some((Record::parse(sequence, &headers, message.payload)?, more)))
}

/// The frames after a position, each proved to follow the one before.
struct Chain {
    after: Position,
    newest: Record,
    limit: usize,
    records: Vec<Record>,
}

impl Chain {
    fn last(&self) -> Position {
        self.records.last().map_or(self.after, |record| record.position)
    }

    fn missing(&self) -> usize {
        self.limit - self.records.len()
    }

    fn is_complete(&self) -> bool {
        self.records.len() >= self.limit || self.last() >= self.newest.position
    }

    /// The first frame may follow one before `after`, which need not be the position of a frame.
    fn accepts(&self, record: &Record) -> bool {
        let follows = if self.records.is_empty() { record.after <= self.after } else { record.after == self.last() };
        follows && record.position > self.last() && !self.is_complete()
    }

    fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    fn missing_after_last(&self, key: &LogKey) -> Error {
        Error::Corrupt {
            place: format!("{key}@{}", self.last()),
            reason: format!("the frame after it is missing, the log goes on to {}", self.newest.position),
        }
    }
}
