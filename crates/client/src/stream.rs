//! The events of one run, through lost connections: each journaled event once, in order.

use std::time::Duration;

use hearth_types::RunState;
use reqwest::Response;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::answer::{MAX_ANSWER_BYTES, Reply, read_body};
use crate::call::{Attempt, Call, segment};
use crate::client::Repeats;
use crate::error::causes;
use crate::retry::Failure;
use crate::sse::{Decoder, Frame};
use crate::{ApiError, Client, Error};

/// The server sends a comment every 15 s; three missed ones mean that the connection is dead.
const SILENCE: Duration = Duration::from_secs(45);

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The sequence number in the journal; `None` for live deltas.
    pub id: Option<u64>,
    pub name: String,
    pub data: Value,
}

impl Event {
    /// Whether it is the one event with which a turn ends.
    pub fn ends_turn(&self) -> bool {
        matches!(self.name.as_str(), "awaiting_input" | "done") && self.data.get("outcome").is_some()
    }
}

/// Reads with [`EventStream::next`]. Dropping it closes the connection.
pub struct EventStream {
    client: Client,
    run: String,
    path: String,
    from_seq: u64,
    last: Option<u64>,
    decoder: Decoder,
    open: Option<Response>,
    began: Instant,
    repeats: Repeats,
    /// The run was final before this connection: what there is to come, comes on it.
    run_was_final: bool,
    ended: bool,
}

impl EventStream {
    pub(crate) fn new(client: Client, run: &str, from_seq: u64) -> Self {
        let repeats = client.repeats();
        Self {
            client,
            run: run.to_owned(),
            path: format!("/v1/runs/{}/stream", segment(run)),
            from_seq,
            last: None,
            decoder: Decoder::new(MAX_ANSWER_BYTES),
            open: None,
            began: Instant::now(),
            repeats,
            run_was_final: false,
            ended: false,
        }
    }

    /// The next event; `None` after `done`. After an error, a further call tries again from the last
    /// event that was returned. Cancelling a call loses nothing.
    pub async fn next(&mut self) -> Result<Option<Event>, Error> {
        loop {
            if self.ended {
                return Ok(None);
            }
            let step = match self.decoder.next() {
                Some(frame) => self.admit(frame),
                None => self.advance().await.map(|()| None),
            };
            let attempt = match step {
                Ok(Some(event)) => {
                    self.ended = event.name == "done";
                    return Ok(Some(event));
                }
                Ok(None) => continue,
                Err(attempt) => attempt,
            };
            self.open = None;
            self.decoder = Decoder::new(MAX_ANSWER_BYTES);
            let call = self.call();
            self.repeats.wait_after(&call, attempt).await?;
        }
    }

    /// Connects, or reads one more piece.
    async fn advance(&mut self) -> Result<(), Attempt> {
        let Some(response) = &mut self.open else {
            self.open = Some(self.connect().await?);
            return Ok(());
        };
        let broken = |cause: String, after| Attempt::Outage { failure: Failure::Broken { after }, cause };
        let chunk = match tokio::time::timeout(SILENCE, response.chunk()).await {
            Ok(Ok(Some(chunk))) => chunk,
            // Of a final run whose `done` lies before the start that was asked for, nothing comes.
            Ok(Ok(None)) if self.run_was_final => {
                self.ended = true;
                return Ok(());
            }
            Ok(Ok(None)) => {
                let after = self.began.elapsed();
                self.run_was_final = self.run_is_final().await.map_err(Attempt::Final)?;
                return Err(broken("the stream ended before the run".to_owned(), after));
            }
            Ok(Err(error)) => return Err(broken(causes(&error), self.began.elapsed())),
            Err(_) => return Err(broken("the stream is silent".to_owned(), self.began.elapsed())),
        };
        self.decoder.feed(&chunk).map_err(|_| Attempt::Final(Error::protocol(&*self.path, "an event is too long")))
    }

    async fn connect(&mut self) -> Result<Response, Attempt> {
        self.began = Instant::now();
        let call = self.call();
        let start = tokio::time::timeout(SILENCE, call.start(&self.client, self.began));
        let response = start.await.unwrap_or_else(|_| {
            Err(Attempt::Outage { failure: Failure::NoAnswer, cause: "no answer to the stream's request".to_owned() })
        })?;
        let head = Reply::head(&response);
        if (200..300).contains(&head.status) {
            return Ok(response);
        }
        let broken = |cause| Attempt::Outage { failure: Failure::NoAnswer, cause };
        let body = read_body(response, &call.name()).await.map_err(|error| error.into_attempt(broken))?;
        match call.judge(Reply { body, ..head }) {
            Ok(_) => Err(Attempt::Final(Error::protocol(call.name(), "not a stream"))),
            Err(attempt) => Err(attempt),
        }
    }

    async fn run_is_final(&self) -> Result<bool, Error> {
        let run = self.client.run(&self.run).await?;
        Ok(RunState::deserialize(&run["state"]).is_ok_and(RunState::is_final))
    }

    /// The request that goes on after the last event that was returned.
    fn call(&self) -> Call {
        let mut call = match (self.last, self.from_seq) {
            (None, from) if from > 0 => Call::get(format!("{}?from_seq={from}", self.path)),
            _ => Call::get(self.path.clone()),
        };
        call.headers.push(("accept", "text/event-stream".to_owned()));
        if let Some(last) = self.last {
            call.headers.push(("last-event-id", last.to_string()));
        }
        call
    }

    /// The event of a frame, unless it is one that was returned already, or none of the run's: an
    /// `error` without an id is the server's word on why it ends the stream.
    fn admit(&mut self, frame: Frame) -> Result<Option<Event>, Attempt> {
        let outside = |detail: String| Attempt::Final(Error::protocol(&*self.path, detail));
        let id = match frame.id {
            Some(text) => Some(text.parse::<u64>().map_err(|_| outside(format!("the event id {text:?}")))?),
            None => None,
        };
        let data: Value = serde_json::from_str(&frame.data).map_err(|error| outside(error.to_string()))?;
        if let (None, "error", Some(error)) = (id, frame.name.as_str(), ApiError::of_stream(&data)) {
            let error = Box::new(error);
            return Err(if error.retryable { Attempt::Asked(error) } else { Attempt::Final(Error::Api(error)) });
        }
        if id.is_some_and(|id| self.last.is_some_and(|last| id <= last)) {
            return Ok(None);
        }
        self.last = id.or(self.last);
        // Only an event is progress: a server that accepts and hangs up at once is still away.
        self.repeats.recovered();
        Ok(Some(Event { id, name: frame.name, data }))
    }
}
