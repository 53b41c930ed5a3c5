//! The three ways an append ends.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use bytes::Bytes;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout};

use super::Servers;
use super::record::{Draft, MAX_INLINE_HEAD, checksum, encode_head};
use crate::{Append, Error, LogKey, Position};

/// The servers' answer to a message for a stream.
#[derive(Debug, Deserialize)]
struct PubAck {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<ApiError>,
}

#[derive(Debug, Deserialize)]
struct ApiError {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

#[derive(Debug)]
pub(super) struct Stored {
    pub(super) position: Position,
    /// The servers have seen the message's id lately, and stored nothing now.
    pub(super) duplicate: bool,
}

#[derive(Debug)]
pub(super) enum Refusal {
    /// The subject's last message is not the expected one, or another message is under way to it.
    Fenced,
    /// A message with the same id is under way.
    InProcess,
    Other(Error),
}

impl Servers {
    pub(super) async fn append(&self, append: Append) -> Result<Position, Error> {
        self.check_connected()?;
        let Append { key, expected, append_id, frame, head, floor } = append;
        let head = match (head, &key) {
            (Some(head), _) => {
                let text = encode_head(&head)?;
                Some(self.part(&key, expected, text, MAX_INLINE_HEAD).await?)
            }
            // The last message of a run carries its head, so this one takes on that of the one before.
            (None, LogKey::Run(_)) if expected > Position(0) => match self.newest(&key).await? {
                Some(newest) if newest.is_of(&append_id) => return Ok(newest.position),
                Some(newest) if newest.position == expected => newest.head,
                newest => return Err(fenced_at(newest.map(|newest| newest.position))),
            },
            (None, _) => None,
        };
        let sum = checksum(&key, expected, floor, &frame);
        let frame = self.part(&key, expected, frame, self.inline_limit()).await?;
        let subject = self.layout.subject(&key);
        let draft = Draft { subject: &subject, expected, floor, append_id: &append_id, sum, frame, head };
        self.publish_append(&key, draft).await
    }

    pub(super) async fn publish_append(&self, key: &LogKey, draft: Draft<'_>) -> Result<Position, Error> {
        let (subject, expected, append_id) = (draft.subject.to_owned(), draft.expected, draft.append_id);
        let (headers, payload) = draft.into_message();
        let deadline = Instant::now() + self.answer_within;
        let mut pause = Duration::from_millis(1);
        loop {
            match self.publish(subject.clone(), headers.clone(), payload.clone()).await {
                Ok(Stored { position, duplicate: false }) => return Ok(position),
                // Refused, perhaps because of one's own earlier try: what stands there decides. Which of
                // the two answers a repeat gets differs between the servers' versions.
                Ok(Stored { duplicate: true, .. }) | Err(Refusal::Fenced) => {
                    if let Some(settled) = self.settled(key, expected, append_id).await? {
                        return settled;
                    }
                }
                Err(Refusal::InProcess) => {}
                Err(Refusal::Other(error)) => return Err(error),
            }
            // Refused for an append that the servers have not agreed on yet: another's, or one's own
            // earlier try. The identical message again is harmless, whichever it is.
            if Instant::now() >= deadline {
                return Err(Error::Unknown { reason: "an append before this one is not settled".into() });
            }
            sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// The outcome that the log's last message proves; none while the log is as the append expects.
    async fn settled(
        &self,
        key: &LogKey,
        expected: Position,
        append_id: &str,
    ) -> Result<Option<Result<Position, Error>>, Error> {
        let newest = self.newest(key).await.map_err(|error| Error::Unknown { reason: error.to_string() })?;
        let last = newest.as_ref().map_or(Position(0), |newest| newest.position);
        Ok(match newest {
            Some(newest) if newest.is_of(append_id) => Some(Ok(last)),
            _ if last != expected => Some(Err(Error::Fenced { last })),
            _ => None,
        })
    }

    pub(super) async fn publish(&self, subject: String, headers: HeaderMap, payload: Bytes) -> Result<Stored, Refusal> {
        let unknown = |reason: String| Refusal::Other(Error::Unknown { reason });
        let request = async_nats::Request::new().headers(headers).payload(payload).timeout(None);
        let asked = self.client.send_request(subject, request);
        let Ok(answer) = timeout(self.answer_within, asked).await else {
            return Err(unknown("the servers did not acknowledge in time".into()));
        };
        let message = answer.map_err(|error| match error.kind() {
            // No stream listened, so none has it.
            RequestErrorKind::NoResponders | RequestErrorKind::InvalidSubject => {
                Refusal::Other(Error::Unavailable { reason: format!("no stream answers: {error}") })
            }
            RequestErrorKind::MaxPayloadExceeded => {
                Refusal::Other(Error::Unavailable { reason: format!("the servers' max_payload is too small: {error}") })
            }
            _ => unknown(error.to_string()),
        })?;
        let ack: PubAck = serde_json::from_slice(&message.payload).map_err(|error| unknown(error.to_string()))?;
        match ack.error {
            None => Ok(Stored { position: Position(ack.seq), duplicate: ack.duplicate }),
            Some(error) => Err(refusal(error)),
        }
    }

    pub(super) fn check_connected(&self) -> Result<(), Error> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            _ => Err(Error::Unavailable { reason: "not connected to NATS".into() }),
        }
    }

    /// A frame up to this size is in its message. Half of what the servers take, since a read by way of
    /// the leader comes back as base64 within JSON.
    pub(super) fn inline_limit(&self) -> usize {
        const MOST: usize = 1024 * 1024;
        (self.client.max_payload() / 2).min(MOST)
    }
}

fn fenced_at(last: Option<Position>) -> Error {
    Error::Fenced { last: last.unwrap_or_default() }
}

/// The server's error codes: errors.json of nats-server.
fn refusal(error: ApiError) -> Refusal {
    const WRONG_LAST_SEQUENCE: [u64; 2] = [10071, 10164];
    const NO_ROOM: [u64; 4] = [10023, 10028, 10047, 10122];
    const IN_PROCESS: u64 = 10158;
    const STORE_FAILED: u64 = 10077;
    let ApiError { err_code, description } = error;
    let reason = format!("{description} ({err_code})");
    if WRONG_LAST_SEQUENCE.contains(&err_code) {
        return Refusal::Fenced;
    }
    if err_code == IN_PROCESS {
        return Refusal::InProcess;
    }
    let full = NO_ROOM.contains(&err_code)
        || (err_code == STORE_FAILED && ["maximum", "no space"].iter().any(|word| description.contains(word)));
    // Of the others it is not certain that the message is not stored.
    Refusal::Other(if full { Error::Full { reason } } else { Error::Unknown { reason } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(err_code: u64, description: &str) -> Refusal {
        refusal(ApiError { err_code, description: description.into() })
    }

    #[test]
    fn only_what_certainly_was_not_stored_is_called_so() {
        assert!(matches!(refused(10071, "wrong last sequence: 7"), Refusal::Fenced));
        assert!(matches!(refused(10077, "maximum bytes exceeded"), Refusal::Other(Error::Full { .. })));
        assert!(matches!(refused(10047, "storage resources exceeded"), Refusal::Other(Error::Full { .. })));
        for unsure in [(10077, "store failed: input/output error"), (10008, "temporarily unavailable"), (0, "")] {
            assert!(matches!(refused(unsure.0, unsure.1), Refusal::Other(Error::Unknown { .. })), "{unsure:?}");
        }
    }
}
