//! Requests that are larger than the servers' messages: they travel in parts, and the last one asks.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::{HeaderMap, Message};
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use crate::metrics;

/// The request that a part is of, its place, and how many there are.
const REQUEST: &str = "Hearth-Request";
const PART: &str = "Hearth-Part";
const PARTS: &str = "Hearth-Parts";

/// Room for the headers, which count among a message's bytes.
const HEADERS: usize = 1_024;
/// Bytes of requests of one subject of which parts are missing. Past it the oldest is given up; its requester gets no
/// answer.
const MAX_HELD: usize = 128 * 1024 * 1024;
/// How long the next part may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The parts in their order, each with its headers; one without for what fits as it is.
pub(super) fn split(payload: Bytes, id: &str, max_payload: usize) -> Vec<(Option<HeaderMap>, Bytes)> {
    if payload.len() <= max_payload {
        return vec![(None, payload)];
    }
    let size = max_payload.saturating_sub(HEADERS).max(1);
    let parts = payload.len().div_ceil(size);
    (0..parts)
        .map(|part| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST, id);
            headers.insert(PART, part.to_string().as_str());
            headers.insert(PARTS, parts.to_string().as_str());
            (Some(headers), payload.slice(part * size..payload.len().min((part + 1) * size)))
        })
        .collect()
}

struct Held {
    parts: Vec<Bytes>,
    bytes: usize,
    latest: Instant,
}

/// Puts the requests of one subject together again. The messages of one connection come in their order, so a part that is
/// not the next one means that one was lost.
#[derive(Default)]
pub(super) struct Assembly {
    held: HashMap<String, Held>,
    bytes: usize,
}

impl Assembly {
    /// The whole request that this message completes, or is by itself.
    pub(super) fn take(&mut self, message: &Message) -> Option<Bytes> {
        let Some((id, part, parts)) = message.headers.as_ref().and_then(place) else {
            return Some(message.payload.clone());
        };
        if part == 0 {
            self.give_up(&id);
        }
        let held =
            self.held.entry(id.clone()).or_insert_with(|| Held { parts: Vec::new(), bytes: 0, latest: Instant::now() });
        if held.parts.len() != part {
            self.give_up(&id);
            return None;
        }
        held.parts.push(message.payload.clone());
        held.bytes += message.payload.len();
        held.latest = Instant::now();
        self.bytes += message.payload.len();
        if part + 1 < parts {
            self.keep_bounds();
            return None;
        }
        let held = self.held.remove(&id)?;
        self.bytes -= held.bytes;
        let mut whole = BytesMut::with_capacity(held.bytes);
        held.parts.iter().for_each(|part| whole.extend_from_slice(part));
        Some(whole.freeze())
    }

    fn give_up(&mut self, id: &str) {
        if let Some(held) = self.held.remove(id) {
            self.bytes -= held.bytes;
        }
    }

    fn keep_bounds(&mut self) {
        while let Some((id, held)) = self.held.iter().min_by_key(|(_, held)| held.latest) {
            if self.bytes <= MAX_HELD && held.latest.elapsed() < PATIENCE {
                return;
            }
            let id = id.clone();
            self.give_up(&id);
            metrics::dropped("parts", 1);
        }
    }
}

fn place(headers: &HeaderMap) -> Option<(String, usize, usize)> {
    let text = |name: &str| headers.get(name).map(async_nats::HeaderValue::as_str);
    Some((text(REQUEST)?.to_owned(), text(PART)?.parse().ok()?, text(PARTS)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message((headers, payload): (Option<HeaderMap>, Bytes)) -> Message {
        let length = payload.len();
        Message { subject: "s".into(), reply: None, payload, headers, status: None, description: None, length }
    }

    fn whole(bytes: usize) -> Bytes {
        (0..bytes).map(|n| (n % 251) as u8).collect()
    }

    #[tokio::test]
    async fn parts_of_several_requests_between_each_other_make_each_whole() {
        let (one, two) = (whole(10_000), whole(7_001));
        let mut assembly = Assembly::default();
        let [first, second] = [(&one, "a"), (&two, "b")].map(|(payload, id)| split(payload.clone(), id, 2_048));
        assert!(first.len() > second.len() && second.len() > 2);
        let mut done = Vec::new();
        for n in 0..first.len() {
            for parts in [&first, &second] {
                done.extend(parts.get(n).cloned().and_then(|part| assembly.take(&message(part))));
            }
        }
        assert_eq!(done, [two, one]);
        assert_eq!((assembly.bytes, assembly.held.len()), (0, 0));
    }

    #[tokio::test]
    async fn a_request_with_a_lost_part_is_none() {
        let mut assembly = Assembly::default();
        for lost in 0..3 {
            let parts = split(whole(3_000), "a", 2_048);
            assert_eq!(parts.len(), 3);
            for (_, part) in parts.into_iter().enumerate().filter(|(n, _)| *n != lost) {
                assert_eq!(assembly.take(&message(part)), None, "without {lost}");
            }
        }
        let again: Vec<_> =
            split(whole(3_000), "a", 2_048).into_iter().filter_map(|part| assembly.take(&message(part))).collect();
        assert_eq!(again, [whole(3_000)], "the next one is whole");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_never_completed_is_given_up() {
        let mut assembly = Assembly::default();
        let first = |id: &str| message(split(whole(3_000), id, 2_048).remove(0));
        assembly.take(&first("a"));
        tokio::time::advance(PATIENCE).await;
        assembly.take(&first("b"));
        assert_eq!(assembly.held.keys().collect::<Vec<_>>(), ["b"]);
    }
}
