//! Receiving bodies: bounded in size, in time, and in memory over all requests.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::{HeaderMap, header};
use futures::StreamExt;
use hearth_types::{Fault, FaultCode, limits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::metrics::SHED;

/// The unit in which memory is counted.
const BLOCK_BYTES: usize = 64 * 1024;
/// Between two pieces of a body.
const PIECE_TIMEOUT: Duration = Duration::from_secs(20);
/// For a whole body.
const BODY_TIMEOUT: Duration = Duration::from_secs(300);
/// What is read and thrown away of a body that is too large, so that a client that writes first and
/// reads later sees the refusal, and not a reset.
const DRAIN_BYTES: usize = 64 * 1024 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The memory that all bodies share.
#[derive(Debug, Clone)]
pub struct BodyMemory(Arc<Semaphore>);

impl BodyMemory {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new((bytes / BLOCK_BYTES).clamp(1, Semaphore::MAX_PERMITS))))
    }

    fn reserve(&self, held: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), Fault> {
        let needed = bytes.div_ceil(BLOCK_BYTES) - held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if needed == 0 {
            return Ok(());
        }
        let count = u32::try_from(needed).unwrap_or(u32::MAX);
        let Ok(more) = self.0.clone().try_acquire_many_owned(count) else {
            SHED.with_label_values(&["bodies"]).inc();
            return Err(Fault::unavailable("too many large requests at once: try again"));
        };
        match held {
            Some(held) => held.merge(more),
            None => *held = Some(more),
        }
        Ok(())
    }
}

/// A body and its share of the memory.
#[derive(Debug)]
pub struct Received {
    pub bytes: Vec<u8>,
    memory: Option<OwnedSemaphorePermit>,
}

impl Received {
    /// The body, and what is to be held for as long as it is there.
    pub fn split(self) -> (Vec<u8>, Option<OwnedSemaphorePermit>) {
        (self.bytes, self.memory)
    }
}

/// Reads a whole body.
///
/// # Errors
/// `payload_too_large`, whatever the declared length says; `unavailable` when the memory for bodies
/// is used up; `invalid_argument` for a body that is encoded, cut off, or too slow.
pub async fn receive(headers: &HeaderMap, body: Body, memory: &BodyMemory) -> Result<Received, Fault> {
    if let Some(encoding) = headers.get(header::CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let shown = encoding.to_str().unwrap_or("not text");
        return Err(Fault::invalid("Content-Encoding", shown, "none: send the JSON itself"));
    }
    let mut pieces = body.into_data_stream();
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limits::MAX_BODY_BYTES as u64) {
        // A client that asks first has sent nothing yet, and must not be told to go on.
        if !headers.contains_key(header::EXPECT) {
            drain(&mut pieces).await;
        }
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    let mut held = None;
    let end = Instant::now() + BODY_TIMEOUT;
    loop {
        let next = timeout_at(end.min(Instant::now() + PIECE_TIMEOUT), pieces.next()).await;
        let piece = match next {
            Err(_) => {
                return Err(Fault::new(FaultCode::InvalidArgument, "the body did not arrive in time: send it again"));
            }
            Ok(None) => return Ok(Received { bytes, memory: held }),
            Ok(Some(Err(error))) => {
                return Err(Fault::new(FaultCode::InvalidArgument, format!("the body ended early: {error}")));
            }
            Ok(Some(Ok(piece))) => piece,
        };
        if bytes.len() + piece.len() > limits::MAX_BODY_BYTES {
            drop(std::mem::take(&mut bytes));
            drain(&mut pieces).await;
            return Err(too_large());
        }
        memory.reserve(&mut held, bytes.len() + piece.len())?;
        bytes.extend_from_slice(&piece);
    }
}

async fn drain(pieces: &mut BodyDataStream) {
    let thrown_away = async {
        let mut count = 0;
        while let Some(Ok(piece)) = pieces.next().await {
            count += piece.len();
            if count > DRAIN_BYTES {
                break;
            }
        }
    };
    // Out of time means that the client goes on writing; it gets its answer anyway.
    timeout(DRAIN_TIMEOUT, thrown_away).await.ok();
}

fn too_large() -> Fault {
    let most = limits::MAX_BODY_BYTES;
    Fault::new(FaultCode::PayloadTooLarge, format!("the body is larger than {most} bytes: send less"))
        .with_details(serde_json::json!({ "max_bytes": most }))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::stream;

    use super::*;

    fn chunked(pieces: usize, size: usize) -> Body {
        Body::from_stream(stream::iter(
            (0..pieces).map(move |_| Ok::<_, std::io::Error>(Bytes::from(vec![b' '; size]))),
        ))
    }

    #[tokio::test]
    async fn a_body_without_a_declared_length_is_refused_at_the_same_size() {
        let memory = BodyMemory::new(64 << 20);
        let exact = receive(&HeaderMap::new(), chunked(16, 1 << 20), &memory).await.unwrap();
        assert_eq!(exact.bytes.len(), limits::MAX_BODY_BYTES);
        let fault = receive(&HeaderMap::new(), chunked(17, 1 << 20), &memory).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::PayloadTooLarge);
    }

    #[tokio::test]
    async fn bodies_share_their_memory_and_give_it_back() {
        let memory = BodyMemory::new(1 << 20);
        let first = receive(&HeaderMap::new(), chunked(1, 1 << 20), &memory).await.unwrap();
        let fault = receive(&HeaderMap::new(), chunked(1, 1), &memory).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::Unavailable);
        drop(first);
        receive(&HeaderMap::new(), chunked(1, 1), &memory).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stands_still_is_given_up() {
        let body = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let fault = receive(&HeaderMap::new(), body, &BodyMemory::new(1 << 20)).await.unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidArgument);
    }

    #[tokio::test]
    async fn an_encoded_body_is_refused() {
        let headers = [(header::CONTENT_ENCODING, "gzip".parse().unwrap())].into_iter().collect();
        let fault = receive(&headers, Body::from("x"), &BodyMemory::new(1 << 20)).await.unwrap_err();
        assert!(fault.message.contains("Content-Encoding"));
    }
}
