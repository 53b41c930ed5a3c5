//! Server-sent events, from bytes to frames. Pure.

use std::collections::VecDeque;

/// One frame with data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub id: Option<String>,
    pub name: String,
    pub data: String,
}

/// A frame grew past the bound.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Takes the stream's bytes in pieces of any size, and gives whole frames.
#[derive(Debug)]
pub(crate) struct Decoder {
    line: Vec<u8>,
    id: Option<String>,
    name: String,
    data: Option<String>,
    ready: VecDeque<Frame>,
    limit: usize,
    after_cr: bool,
}

impl Decoder {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            id: None,
            name: String::new(),
            data: None,
            ready: VecDeque::new(),
            limit,
            after_cr: false,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), TooLong> {
        for &byte in bytes {
            let follows_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if follows_cr => {}
                b'\n' | b'\r' => self.end_line(),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > self.limit {
                return Err(TooLong);
            }
        }
        Ok(())
    }

    pub(crate) fn next(&mut self) -> Option<Frame> {
        self.ready.pop_front()
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        if text.is_empty() {
            self.end_frame();
            return;
        }
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.name),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // Comments (an empty field name) and `retry`, which this client's own policy replaces.
            _ => {}
        }
    }

    fn end_frame(&mut self) {
        let (id, name) = (self.id.take(), std::mem::take(&mut self.name));
        if let Some(data) = self.data.take() {
            self.ready.push_back(Frame { id, name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(pieces: &[&[u8]]) -> Vec<Frame> {
        let mut decoder = Decoder::new(1_000);
        for piece in pieces {
            decoder.feed(piece).unwrap();
        }
        std::iter::from_fn(|| decoder.next()).collect()
    }

    fn frame(id: Option<&str>, name: &str, data: &str) -> Frame {
        Frame { id: id.map(str::to_owned), name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn frames_do_not_depend_on_where_the_bytes_are_cut() {
        let text = "id: 1\nevent: text\ndata: ä\n\n: hello\n\nevent: x\r\ndata: a\r\ndata: b\r\n\r\n".as_bytes();
        let whole = decode(&[text]);
        assert_eq!(whole, vec![frame(Some("1"), "text", "ä"), frame(None, "x", "a\nb")]);
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(decode(&bytes), whole);
    }

    #[test]
    fn an_unfinished_frame_and_a_comment_are_not_events() {
        assert_eq!(decode(&[b": ping\n\nid: 4\ndata: half"]), vec![]);
    }

    #[test]
    fn a_frame_past_the_bound_is_refused() {
        let mut decoder = Decoder::new(10);
        assert_eq!(decoder.feed(b"data: 12345678901"), Err(TooLong));
    }
}
