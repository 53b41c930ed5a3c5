//! An append as a message: what its headers say.

use async_nats::HeaderMap;
use bytes::Bytes;

use super::layout::token;
use crate::{Error, LogKey, Position, RunHead};

const APPEND: &str = "Hearth-Append";
const AFTER: &str = "Hearth-After";
const FLOOR: &str = "Hearth-Floor";
const SUM: &str = "Hearth-Sum";
const FRAME_CLAIM: &str = "Hearth-Frame-Claim";
const HEAD: &str = "Hearth-Head";
const HEAD_CLAIM: &str = "Hearth-Head-Claim";

/// A server truncates or refuses headers of 64 KiB and more; what else is in them is far below the rest.
pub(super) const MAX_INLINE_HEAD: usize = 32 * 1024;

/// Bytes in a message, or where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Inline(Bytes),
    Claim(Claim),
}

/// Bytes that stand in numbered chunks elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) id: String,
    pub(super) chunks: u32,
    pub(super) bytes: usize,
}

impl Claim {
    fn to_text(&self) -> String {
        format!("{} {} {}", self.id, self.chunks, self.bytes)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let claim = Self {
            id: words.next()?.to_owned(),
            chunks: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(claim)
    }
}

/// A message of a log. Each carries the position of the one before, so that a reader sees what is
/// missing, and the newest head of its run, so that the last message of a run is its index row too.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) position: Position,
    pub(super) after: Position,
    /// The log's floor from this message on; each carries it, as the last one must.
    pub(super) floor: Position,
    /// As [`token`] writes it.
    pub(super) append_id: String,
    pub(super) frame: Part,
    pub(super) head: Option<Part>,
    sum: u32,
}

/// What is to be published.
pub(super) struct Draft<'a> {
    /// The log's subject.
    pub(super) subject: &'a str,
    pub(super) expected: Position,
    pub(super) floor: Position,
    pub(super) append_id: &'a str,
    pub(super) sum: u32,
    pub(super) frame: Part,
    pub(super) head: Option<Part>,
}

impl Draft<'_> {
    /// The message: its headers and payload. The servers compare the expected position, and drop a
    /// message whose id they have seen lately.
    pub(super) fn into_message(self) -> (HeaderMap, Bytes) {
        let mut headers = HeaderMap::new();
        let append_id = token(self.append_id);
        headers.insert(async_nats::header::NATS_MESSAGE_ID, format!("{}:{append_id}", self.subject).as_str());
        headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, self.expected.to_string().as_str());
        headers.insert(APPEND, append_id.as_str());
        headers.insert(AFTER, self.expected.to_string().as_str());
        if self.floor > Position(0) {
            headers.insert(FLOOR, self.floor.to_string().as_str());
        }
        headers.insert(SUM, format!("{:08x}", self.sum).as_str());
        match self.head {
            // JSON on one line has no character that a header cannot hold.
            Some(Part::Inline(head)) => headers.insert(HEAD, &*String::from_utf8_lossy(&head)),
            Some(Part::Claim(claim)) => headers.insert(HEAD_CLAIM, claim.to_text().as_str()),
            None => {}
        }
        match self.frame {
            Part::Inline(frame) => (headers, frame),
            Part::Claim(claim) => {
                headers.insert(FRAME_CLAIM, claim.to_text().as_str());
                (headers, Bytes::new())
            }
        }
    }
}

impl Record {
    pub(super) fn parse(position: u64, headers: &HeaderMap, payload: Bytes) -> Result<Self, Error> {
        let text = |name: &str| headers.get(name).map(async_nats::HeaderValue::as_str);
        let damaged = |name: &str| Error::Corrupt {
            place: format!("message {position} of the journal"),
            reason: format!("its header {name} is missing or damaged"),
        };
        let claim = |name: &str| text(name).map(|text| Claim::parse(text).ok_or_else(|| damaged(name))).transpose();
        let frame = claim(FRAME_CLAIM)?.map_or(Part::Inline(payload), Part::Claim);
        let head = match text(HEAD) {
            Some(head) => Some(Part::Inline(Bytes::copy_from_slice(head.as_bytes()))),
            None => claim(HEAD_CLAIM)?.map(Part::Claim),
        };
        Ok(Self {
            position: Position(position),
            after: text(AFTER).and_then(|text| text.parse().ok()).map(Position).ok_or_else(|| damaged(AFTER))?,
            floor: match text(FLOOR) {
                Some(floor) => Position(floor.parse().map_err(|_| damaged(FLOOR))?),
                None => Position(0),
            },
            append_id: text(APPEND).ok_or_else(|| damaged(APPEND))?.to_owned(),
            frame,
            head,
            sum: text(SUM).and_then(|text| u32::from_str_radix(text, 16).ok()).ok_or_else(|| damaged(SUM))?,
        })
    }

    pub(super) fn is_of(&self, append_id: &str) -> bool {
        self.append_id == token(append_id)
    }

    pub(super) fn verify(&self, key: &LogKey, frame: &[u8]) -> Result<(), Error> {
        if checksum(key, self.after, self.floor, frame) == self.sum {
            return Ok(());
        }
        Err(Error::Corrupt { place: self.place(key), reason: "the frame's checksum is wrong".into() })
    }

    pub(super) fn place(&self, key: &LogKey) -> String {
        format!("{key}@{}", self.position)
    }
}

/// Binds a frame to its log, to the frame before it and to the log's floor.
pub(super) fn checksum(key: &LogKey, after: Position, floor: Position, frame: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(key.to_string().as_bytes());
    sum.update(&after.0.to_le_bytes());
    if floor > Position(0) {
        sum.update(&floor.0.to_le_bytes());
    }
    sum.update(frame);
    sum.finalize()
}

pub(super) fn encode_head(head: &RunHead) -> Result<Bytes, Error> {
    serde_json::to_vec(head)
        .map(Bytes::from)
        .map_err(|error| Error::Corrupt { place: head.run_id.to_string(), reason: error.to_string() })
}

pub(super) fn decode_head(place: &str, text: &[u8]) -> Result<RunHead, Error> {
    // What was written is read, however deep it nests; who lets a body in bounds it.
    let mut parser = serde_json::Deserializer::from_slice(text);
    parser.disable_recursion_limit();
    serde::Deserialize::deserialize(&mut parser).map_err(|error| Error::Corrupt {
        place: place.to_owned(),
        reason: format!("the head cannot be read: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use async_nats::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const NAMES: [&str; 7] = [APPEND, AFTER, FLOOR, SUM, FRAME_CLAIM, HEAD, HEAD_CLAIM];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_message_is_read_or_called_damaged(
            values in proptest::collection::vec((0..NAMES.len(), "[ -~]{0,40}|[0-9a-f]{0,20}|x [0-9]{1,22} [0-9]{1,22}"), 0..12),
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut headers = HeaderMap::new();
            for (name, value) in values {
                headers.insert(NAMES[name], value.parse::<HeaderValue>().unwrap());
            }
            let key = LogKey::Catalog("t".into());
            match Record::parse(7, &headers, payload.clone().into()) {
                Ok(record) => drop(record.verify(&key, &payload)),
                Err(error) => prop_assert!(matches!(error, Error::Corrupt { .. }), "{}", error),
            }
            drop(decode_head("here", &payload));
        }
    }
}
