//! Parts that are too large for a message: stored in chunks before the append that names them.
//!
//! A chunk is named by the hash of the whole part, so that storing one twice stores it once, and no
//! append that comes late or twice can change what an earlier one named. What no append came to name
//! stays until it is collected.

use async_nats::HeaderMap;
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use hearth_types::derive_hex;

use super::Servers;
use super::publish::Refusal;
use super::record::{Claim, Part};
use crate::{Error, LogKey, Position};

/// A quarter of what a server takes by default.
const CHUNK_BYTES: usize = 256 * 1024;
/// Chunks under way at the same time.
const WIDTH: usize = 4;

impl Servers {
    /// The bytes as a part of a message: themselves up to `inline`, else a claim that is stored.
    ///
    /// Its id names the append too, so that no two appends share a claim and one can be removed with its
    /// frame.
    pub(super) async fn part(
        &self,
        key: &LogKey,
        expected: Position,
        bytes: Bytes,
        inline: usize,
    ) -> Result<Part, Error> {
        if bytes.len() <= inline {
            return Ok(Part::Inline(bytes));
        }
        let length = bytes.len().to_string();
        let halves = [crc32fast::hash(&bytes[..bytes.len() / 2]), crc32fast::hash(&bytes[bytes.len() / 2..])];
        let sums = format!("{:08x}{:08x}", halves[0], halves[1]);
        let id = derive_hex(&[&key.to_string(), &expected.to_string(), &length, &sums]);
        let chunks = u32::try_from(bytes.len().div_ceil(CHUNK_BYTES)).unwrap_or(u32::MAX);
        let stored = (0..chunks).map(|chunk| {
            let from = chunk as usize * CHUNK_BYTES;
            let to = (from + CHUNK_BYTES).min(bytes.len());
            self.store_chunk(self.layout.chunk_subject(&id, chunk), bytes.slice(from..to))
        });
        stream::iter(stored).buffer_unordered(WIDTH).try_collect::<Vec<()>>().await?;
        Ok(Part::Claim(Claim { id, chunks, bytes: bytes.len() }))
    }

    async fn store_chunk(&self, subject: String, chunk: Bytes) -> Result<(), Error> {
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, "0");
        match self.publish(subject, headers, chunk).await {
            // It is there already: by an earlier try.
            Ok(_) | Err(Refusal::Fenced) => Ok(()),
            // The append itself was not tried, so nothing about it is unknown.
            Err(Refusal::InProcess) => Err(Error::Unavailable { reason: "a chunk is not settled".into() }),
            Err(Refusal::Other(Error::Unknown { reason })) => Err(Error::Unavailable { reason }),
            Err(Refusal::Other(error)) => Err(error),
        }
    }

    pub(super) async fn bytes(&self, place: &str, part: Part) -> Result<Bytes, Error> {
        let claim = match part {
            Part::Inline(bytes) => return Ok(bytes),
            Part::Claim(claim) => claim,
        };
        let chunks = (0..claim.chunks).map(|chunk| self.read_chunk(place, self.layout.chunk_subject(&claim.id, chunk)));
        let chunks: Vec<Bytes> = stream::iter(chunks).buffered(WIDTH).try_collect().await?;
        let mut whole = BytesMut::with_capacity(claim.bytes);
        chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
        if whole.len() != claim.bytes {
            let reason = format!("a part of {} bytes has only {}", claim.bytes, whole.len());
            return Err(Error::Corrupt { place: place.to_owned(), reason });
        }
        Ok(whole.freeze())
    }

    pub(super) async fn remove_claim(&self, claim: &Claim) -> Result<(), Error> {
        let purged = self.claims.purge().filter(self.layout.chunks_of(&claim.id)).await;
        purged.map(|_| ()).map_err(|error| Error::Unavailable { reason: error.to_string() })
    }

    async fn read_chunk(&self, place: &str, subject: String) -> Result<Bytes, Error> {
        let reason = format!("the chunk {subject} is missing");
        let found = self.newest_message(&self.claims, &subject).await?;
        found.map(|message| message.payload).ok_or_else(|| Error::Corrupt { place: place.to_owned(), reason })
    }
}
