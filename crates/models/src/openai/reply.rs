//! One answer of the provider, put together from its events.

use std::collections::BTreeMap;

use hearth_types::Usage;
use serde::Deserialize;
use serde_json::Value;

use super::failure::{not_understood, of_event};
use crate::{Delta, DeltaSink, Error, ErrorKind, Step, StopReason, ToolRequest};

/// An event, without what nobody here needs. Providers leave out fields, or send `null`.
#[derive(Debug, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<Tokens>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    delta: Option<Piece>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Piece {
    content: Option<String>,
    refusal: Option<String>,
    /// How some providers stream thinking; others call it `reasoning`.
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Debug, Deserialize)]
struct CallPiece {
    #[serde(default)]
    index: Option<usize>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionPiece>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FunctionPiece {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
}

#[derive(Debug, Default)]
struct Call {
    id: Option<String>,
    name: String,
    arguments: String,
}

#[derive(Debug)]
pub(super) struct Reply {
    text: String,
    thinking: String,
    calls: BTreeMap<usize, Call>,
    usage: Usage,
    finish: Option<String>,
    refused: bool,
    bytes: usize,
    max_bytes: usize,
    max_calls: usize,
}

impl Reply {
    pub fn new(max_bytes: usize, max_calls: usize) -> Self {
        Self {
            text: String::new(),
            thinking: String::new(),
            calls: BTreeMap::new(),
            usage: Usage::default(),
            finish: None,
            refused: false,
            bytes: 0,
            max_bytes,
            max_calls,
        }
    }

    pub fn take(&mut self, event: &str, sink: &dyn DeltaSink) -> Result<(), Error> {
        let chunk: Chunk = serde_json::from_str(event).map_err(not_understood)?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(of_event(&error));
        }
        if let Some(tokens) = chunk.usage {
            self.usage = Usage { input_tokens: tokens.prompt_tokens, output_tokens: tokens.completion_tokens };
        }
        // One answer was asked for. The event with the usage has none.
        let Some(choice) = chunk.choices.unwrap_or_default().into_iter().next() else { return Ok(()) };
        if let Some(piece) = choice.delta {
            self.piece(piece, sink)?;
        }
        if choice.finish_reason.is_some() {
            self.finish = choice.finish_reason;
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece, sink: &dyn DeltaSink) -> Result<(), Error> {
        if let Some(thinking) = piece.reasoning_content.or(piece.reasoning).filter(|text| !text.is_empty()) {
            self.count(thinking.len())?;
            self.thinking.push_str(&thinking);
            sink.send(Delta::Thinking(thinking));
        }
        self.refused |= piece.refusal.as_ref().is_some_and(|text| !text.is_empty());
        for text in [piece.content, piece.refusal].into_iter().flatten().filter(|text| !text.is_empty()) {
            self.count(text.len())?;
            self.text.push_str(&text);
            sink.send(Delta::Text(text));
        }
        for call in piece.tool_calls.unwrap_or_default() {
            self.call(call)?;
        }
        Ok(())
    }

    fn call(&mut self, piece: CallPiece) -> Result<(), Error> {
        let FunctionPiece { name, arguments } = piece.function.unwrap_or_default();
        let (name, arguments) = (name.unwrap_or_default(), arguments.unwrap_or_default());
        self.count(name.len() + arguments.len())?;
        // Without an index a new id, or the first piece, begins a new call.
        let last = self.calls.last_key_value().map(|(index, call)| (*index, call.id.clone()));
        let index = piece.index.unwrap_or(match last {
            Some((index, id)) if piece.id.is_none() || piece.id == id => index,
            Some((index, _)) => index + 1,
            None => 0,
        });
        if !self.calls.contains_key(&index) && self.calls.len() >= self.max_calls {
            let bound = self.max_calls;
            return Err(Error::new(ErrorKind::Refused, format!("the model asks for more than {bound} tools at once")));
        }
        let call = self.calls.entry(index).or_default();
        call.id = piece.id.or(call.id.take());
        call.name.push_str(&name);
        call.arguments.push_str(&arguments);
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes += bytes;
        if self.bytes > self.max_bytes {
            let bound = self.max_bytes;
            let message = format!("the provider's answer is longer than {bound} bytes, the bound");
            return Err(Error::new(ErrorKind::Refused, message));
        }
        Ok(())
    }

    /// The step, once the stream has ended.
    pub fn finish(self) -> Result<Step, Error> {
        let Some(finish) = self.finish else {
            let message = "the provider's answer ended in the middle; try again";
            return Err(Error::new(ErrorKind::Transient, message));
        };
        let stop = match finish.as_str() {
            "length" => StopReason::MaxTokens,
            "content_filter" => StopReason::Refusal,
            _ if self.refused => StopReason::Refusal,
            // Some providers say `stop` here.
            _ if !self.calls.is_empty() => StopReason::ToolUse,
            _ => StopReason::EndTurn,
        };
        // What the provider cut off is not a call that the model meant to make.
        let calls = if stop == StopReason::ToolUse { self.calls } else { BTreeMap::new() };
        let tool_calls = calls.into_values().map(request).collect();
        Ok(Step { thinking: self.thinking, text: self.text, tool_calls, usage: self.usage, stop })
    }
}

/// Arguments that are not JSON stay text: the tool refuses them, and the model sees why.
fn request(call: Call) -> ToolRequest {
    let arguments = match call.arguments.trim() {
        "" => Value::Object(serde_json::Map::new()),
        text => serde_json::from_str(text).unwrap_or(Value::String(call.arguments)),
    };
    ToolRequest { name: call.name, arguments }
}
