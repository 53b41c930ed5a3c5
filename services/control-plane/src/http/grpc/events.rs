//! From the event stream of the HTTP surface to messages.

use axum::body::{Body, BodyDataStream};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use hearth_proto::v1::Event;
use hearth_types::Fault;
use serde_json::Value;
use tonic::Status;

use super::refusal::{status_of, status_of_body};

/// The events in a body. A stream that ends without the run's end is an error, so that its reader goes on elsewhere.
pub fn events(body: Body) -> BoxStream<'static, Result<Event, Status>> {
    let reader = Reader { pieces: body.into_data_stream(), text: Vec::new(), over: false };
    stream::unfold(reader, |mut reader| async move {
        let next = reader.next().await?;
        Some((next, reader))
    })
    .boxed()
}

struct Reader {
    pieces: BodyDataStream,
    text: Vec<u8>,
    over: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<Event, Status>> {
        while !self.over {
            if let Some(event) = self.frame() {
                self.over = event.as_ref().map_or(true, |event| event.name == "done");
                return Some(event);
            }
            match self.pieces.next().await {
                Some(Ok(piece)) => self.text.extend_from_slice(&piece),
                Some(Err(_)) | None => {
                    self.over = true;
                    let message = "the stream ends here, and the run does not: go on after the last id";
                    return Some(Err(status_of(&Fault::unavailable(message))));
                }
            }
        }
        None
    }

    /// The next whole event that has arrived; comments are passed over.
    fn frame(&mut self) -> Option<Result<Event, Status>> {
        loop {
            let end = self.text.windows(2).position(|two| two == b"\n\n")?;
            let frame = self.text.drain(..end + 2).collect::<Vec<u8>>();
            if let Some(event) = parse(&String::from_utf8_lossy(&frame)) {
                return Some(event);
            }
        }
    }
}

fn parse(frame: &str) -> Option<Result<Event, Status>> {
    let field = |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let (name, data) = (field("event")?, field("data")?);
    let id = field("id").and_then(|id| id.parse().ok());
    // The stream's own, not the run's.
    if name == "error" && id.is_none() {
        let body = serde_json::from_str::<Value>(data).unwrap_or_default();
        return Some(Err(status_of_body(&body)));
    }
    Some(Ok(Event { id, name: name.to_owned(), data: data.to_owned() }))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tonic::Code;

    use super::*;

    async fn read(pieces: &[&'static str]) -> Vec<Result<Event, Status>> {
        let pieces = pieces.to_vec();
        events(Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, Infallible>)))).collect().await
    }

    #[tokio::test]
    async fn events_come_whole_however_they_were_cut_and_end_with_the_run() {
        let told = read(&[
            "retry: 1000\n: hearth\n\nid: 1\nevent: ses",
            "sion\ndata: {\"seq\":1}\n\n: still here\n\nevent: text\ndata: {}\n",
            "\nid: 3\nevent: done\ndata: {\"a\":\"b: c\"}\n\nid: 4\nevent: text\ndata: {}\n\n",
        ])
        .await;
        let told: Vec<_> =
            told.into_iter().map(|event| event.map(|event| (event.id, event.name, event.data)).unwrap()).collect();
        let event = |id, name: &str, data: &str| (id, name.to_owned(), data.to_owned());
        let expected = [
            event(Some(1), "session", "{\"seq\":1}"),
            event(None, "text", "{}"),
            event(Some(3), "done", "{\"a\":\"b: c\"}"),
        ];
        assert_eq!(told, expected);
    }

    #[tokio::test]
    async fn an_end_that_is_not_the_runs_is_told() {
        let told = read(&["id: 1\nevent: session\ndata: {}\n\n"]).await;
        assert_eq!(told.len(), 2);
        assert_eq!(told[1].as_ref().unwrap_err().code(), Code::Unavailable);
        let fault =
            "event: error\ndata: {\"error\":{\"code\":\"quota_exceeded\",\"message\":\"m\",\"retryable\":true}}\n\n";
        let told = read(&[fault, "id: 2\nevent: text\ndata: {}\n\n"]).await;
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].as_ref().unwrap_err().code(), Code::ResourceExhausted);
        let told = read(&["id: 2\nevent: error\ndata: {}\n\nid: 3\nevent: done\ndata: {}\n\n"]).await;
        assert!(told.len() == 2 && told.iter().all(Result::is_ok), "an error of the run is an event");
    }
}
