//! Server-sent events, as far as providers use them: the data of each event.

use super::failure::not_understood;
use crate::Error;

/// Puts events together from pieces that end anywhere.
#[derive(Debug)]
pub(super) struct Decoder {
    line: Vec<u8>,
    data: Option<String>,
    bound: usize,
}

impl Decoder {
    /// `bound`: bytes of one event.
    pub fn new(bound: usize) -> Self {
        Self { line: Vec::new(), data: None, bound }
    }

    /// The data of the events that end in these bytes.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Vec<String>, Error> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.grow(&rest[..end])?;
            rest = &rest[end + 1..];
            events.extend(self.end_line()?);
        }
        self.grow(rest)?;
        Ok(events)
    }

    fn grow(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let held = self.line.len() + self.data.as_ref().map_or(0, String::len);
        if held + bytes.len() > self.bound {
            return Err(not_understood(format_args!("an event is longer than {} bytes, the bound", self.bound)));
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self) -> Result<Option<String>, Error> {
        let line = std::mem::take(&mut self.line);
        let line = std::str::from_utf8(&line).map_err(not_understood)?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return Ok(self.data.take());
        }
        // A comment, `event`, `id` and `retry` say nothing here.
        if let Some(data) = line.strip_prefix("data:") {
            let data = data.strip_prefix(' ').unwrap_or(data);
            match &mut self.data {
                Some(before) => {
                    before.push('\n');
                    before.push_str(data);
                }
                None => self.data = Some(data.to_owned()),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        ": hello\r\n\r\ndata: {\"a\": \"ü\"}\r\n\r\nevent: x\ndata:one\ndata:  two\n\n\n\ndata: [DONE]\n\n";

    #[test]
    fn events_come_out_the_same_wherever_the_pieces_end() {
        let expected = ["{\"a\": \"ü\"}", "one\n two", "[DONE]"];
        for size in 1..=STREAM.len() {
            let mut decoder = Decoder::new(100);
            let events: Vec<String> =
                STREAM.as_bytes().chunks(size).flat_map(|piece| decoder.take(piece).unwrap()).collect();
            assert_eq!(events, expected, "pieces of {size}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused_at_the_bound() {
        for line in ["data: ", "data: \n", "x"] {
            let mut decoder = Decoder::new(1_000);
            let mut pieces = std::iter::repeat_n(line.as_bytes(), 5_000);
            assert!(pieces.any(|piece| decoder.take(piece).is_err()), "{line:?}");
            assert!(decoder.line.capacity() < 4_000);
        }
    }
}
