//! Event streams: encoding, heartbeats, and readers that do not keep up.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use hearth_api::StreamEvent;
use hearth_types::Fault;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use crate::metrics::{STREAMS, STREAMS_CUT};

/// Frames that wait for a reader, besides what the connection holds.
const FRAMES_AHEAD: usize = 16;

/// What comes out of a use case.
pub type Events = BoxStream<'static, Result<StreamEvent, Fault>>;

/// How a stream is kept going, and when it is cut.
pub struct Pace {
    pub heartbeat: Duration,
    pub stall: Duration,
    /// Ends the stream, so that its reader resumes elsewhere.
    pub closing: CancellationToken,
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The run's stream is over.
    Done,
    /// The reader closed the connection.
    Gone,
    /// The reader did not keep up.
    Cut,
    /// This replica ends.
    Closing,
}

/// Answers with a stream. `held` is kept for as long as it lasts; `ended` is told how it ended.
pub fn respond<H, E>(events: Events, pace: Pace, held: H, ended: E) -> Response
where
    H: Send + 'static,
    E: FnOnce(End) + Send + 'static,
{
    let (frames, receiver) = mpsc::channel(FRAMES_AHEAD);
    // The owner of the task is the stream itself: it ends with its reader or its replica.
    drop(hearth_telemetry::task::spawn("event_stream", async move {
        let _held = held;
        let counted = Counted::new();
        let end = pump(events, &frames, &pace).await;
        drop(counted);
        if end == End::Cut {
            STREAMS_CUT.inc();
            tracing::info!(stall = ?pace.stall, "the reader of an event stream did not keep up and was cut");
        }
        ended(end);
    }));
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Asks proxies of the nginx family not to collect the stream before they pass it on.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, body).into_response()
}

struct Counted;

impl Counted {
    fn new() -> Self {
        STREAMS.inc();
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        STREAMS.dec();
    }
}

async fn pump(mut events: Events, frames: &mpsc::Sender<Bytes>, pace: &Pace) -> End {
    let mut heartbeat = interval_at(Instant::now() + pace.heartbeat, pace.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A first line at once, so that the reader and the proxies between see that the stream is open.
    let mut next = Some(Bytes::from_static(b"retry: 1000\n: hearth\n\n"));
    loop {
        if let Some(frame) = next.take() {
            match frames.send_timeout(frame, pace.stall).await {
                Ok(()) => {}
                Err(mpsc::error::SendTimeoutError::Closed(_)) => return End::Gone,
                Err(mpsc::error::SendTimeoutError::Timeout(_)) => return End::Cut,
            }
        }
        next = tokio::select! {
            () = pace.closing.cancelled() => return End::Closing,
            () = frames.closed() => return End::Gone,
            event = events.next() => match event {
                None => return End::Done,
                Some(Ok(event)) => Some(encode(&event)),
                Some(Err(fault)) => {
                    // Told without an id: the reader resumes after the last event that has one.
                    let event = StreamEvent { id: None, name: "error", data: fault.to_body() };
                    return match frames.send_timeout(encode(&event), pace.stall).await {
                        Err(mpsc::error::SendTimeoutError::Timeout(_)) => End::Cut,
                        Ok(()) | Err(mpsc::error::SendTimeoutError::Closed(_)) => End::Done,
                    };
                }
            },
            _ = heartbeat.tick() => Some(Bytes::from_static(b": still here\n\n")),
        };
    }
}

/// One event. JSON holds no line ends, so that its data is one line.
fn encode(event: &StreamEvent) -> Bytes {
    let mut text = String::new();
    if let Some(id) = event.id {
        writeln!(text, "id: {id}").ok();
    }
    write!(text, "event: {}\ndata: {}\n\n", event.name, event.data).ok();
    text.into()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::stream;
    use http_body_util::BodyExt;
    use serde_json::json;

    use super::*;

    fn pace() -> Pace {
        Pace { heartbeat: Duration::from_secs(15), stall: Duration::from_secs(30), closing: CancellationToken::new() }
    }

    fn event(id: Option<u64>, text: &str) -> Result<StreamEvent, Fault> {
        Ok(StreamEvent { id, name: "text", data: json!({ "text": text }) })
    }

    /// Answers, and a place where the end will be told.
    fn answered(events: Events, pace: Pace) -> (Body, Arc<Mutex<Option<End>>>) {
        let end = Arc::new(Mutex::new(None));
        let told = end.clone();
        let response = respond(events, pace, (), move |end| *told.lock().unwrap() = Some(end));
        (response.into_body(), end)
    }

    #[tokio::test]
    async fn events_are_written_with_id_name_and_one_line_of_data() {
        let events = stream::iter([event(Some(7), "a\nb"), event(None, "c")]).boxed();
        let (body, end) = answered(events, pace());
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap();
        let (head, rest) = text.split_once("\n\n").unwrap();
        assert_eq!(head, "retry: 1000\n: hearth");
        let expected =
            concat!("id: 7\nevent: text\ndata: {\"text\":\"a\\nb\"}\n\n", "event: text\ndata: {\"text\":\"c\"}\n\n",);
        assert_eq!(rest, expected);
        assert_eq!(*end.lock().unwrap(), Some(End::Done));
    }

    #[tokio::test]
    async fn a_fault_is_told_as_an_error_without_an_id_and_ends_the_stream() {
        let events = stream::iter([event(Some(1), "a"), Err(Fault::unavailable("fell behind"))]).boxed();
        let (body, _) = answered(events, pace());
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap();
        let last = text.trim_end().rsplit("\n\n").next().unwrap();
        assert!(last.starts_with("event: error\ndata: {\"error\":{\"code\":\"unavailable\""), "{last}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_has_a_comment_line_every_heartbeat() {
        let (mut body, end) = answered(stream::pending().boxed(), pace());
        let mut frames = Vec::new();
        let begun = Instant::now();
        while frames.len() < 4 {
            frames.push(body.frame().await.unwrap().unwrap().into_data().unwrap());
        }
        assert!(frames[1..].iter().all(|frame| frame.starts_with(b":")));
        assert_eq!(begun.elapsed(), Duration::from_secs(45));
        drop(body);
        while end.lock().unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*end.lock().unwrap(), Some(End::Gone));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stands_still_is_cut_and_holds_a_bounded_number_of_frames() {
        let produced = Arc::new(Mutex::new(0));
        let count = produced.clone();
        let events = stream::repeat_with(move || {
            *count.lock().unwrap() += 1;
            event(Some(1), "x")
        });
        let (body, end) = answered(events.boxed(), pace());
        while end.lock().unwrap().is_none() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(*end.lock().unwrap(), Some(End::Cut));
        assert!(*produced.lock().unwrap() <= FRAMES_AHEAD + 1);
        drop(body);
    }

    #[tokio::test]
    async fn a_replica_that_ends_ends_its_streams() {
        let pace = pace();
        let closing = pace.closing.clone();
        let (body, end) = answered(stream::pending().boxed(), pace);
        closing.cancel();
        body.collect().await.unwrap();
        assert_eq!(*end.lock().unwrap(), Some(End::Closing));
    }
}
