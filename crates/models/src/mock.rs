//! The built-in agent `mock`: says what it is told to, when it is told to.

use std::time::Duration;

use async_trait::async_trait;
use hearth_types::{Usage, limits};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use crate::prompt::Form;
use crate::{
    Delta, DeltaSink, Error, ErrorKind, Model, ModelTurn, Step, StepInput, StopReason, ToolRequest, ToolResult,
    TurnContext,
};

pub(crate) const NAME: &str = "mock";

pub(crate) const DESCRIPTION: &str = "\
Outputs its prompt; for trying and testing without a model. A prompt {\"mock\": {…}} sets the turn: `latency_ms` is the \
time it takes, `output` or `output_bytes` what it outputs, `chunks` the number of pieces it is streamed in, `fail` \
the message it fails with, `tool` {\"name\", \"arguments\"} a call it makes first and whose result it outputs.";

const MAX_LATENCY_MS: u64 = 24 * 3600 * 1000;
const MAX_CHUNKS: usize = 10_000;

const FORM: Form = Form {
    prefix: "mock.",
    fields: &[
        ("latency_ms", "a whole number of milliseconds, 0 to 86400000 (a day)"),
        ("output", "a string"),
        ("output_bytes", "a whole number, 0 to 16777216 (16 MiB)"),
        ("chunks", "a whole number, 1 to 10000"),
        ("fail", "a string, the message"),
        ("tool", "an object with `name`, a string, and `arguments`, an object"),
    ],
    example: r#"{"mock": {"latency_ms": 200, "output": "hello", "chunks": 4}}"#,
};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Script {
    latency_ms: u64,
    output: Option<String>,
    output_bytes: Option<usize>,
    chunks: Option<usize>,
    fail: Option<String>,
    tool: Option<Call>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    name: String,
    #[serde(default)]
    arguments: serde_json::Map<String, Value>,
}

impl Script {
    /// `None` for a prompt that is not `{"mock": …}` and nothing beside it.
    fn of(prompt: &str) -> Result<Option<Self>, Error> {
        if !prompt.trim_start().starts_with('{') {
            return Ok(None);
        }
        let Ok(Value::Object(mut object)) = serde_json::from_str(prompt) else { return Ok(None) };
        match object.remove(NAME) {
            Some(script) if object.is_empty() => Self::checked(script).map(Some),
            _ => Ok(None),
        }
    }

    fn checked(script: Value) -> Result<Self, Error> {
        let script: Self = FORM.read(script)?;
        let fits = |field: &str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(FORM.out_of_range(field, value))
        };
        fits("latency_ms", script.latency_ms, 0, MAX_LATENCY_MS)?;
        fits("output_bytes", script.output_bytes.unwrap_or(0) as u64, 0, limits::MAX_OUTPUT_BYTES as u64)?;
        fits("chunks", script.chunks.unwrap_or(1) as u64, 1, MAX_CHUNKS as u64)?;
        Ok(script)
    }

    /// A failing turn outputs only what its script says, not its prompt.
    fn says_something(&self) -> bool {
        self.output.is_some() || self.output_bytes.is_some() || self.chunks.is_some()
    }

    /// `result` is that of the call, if there was one.
    fn text(&self, prompt: &str, result: Option<&ToolResult>) -> String {
        let base = match (result, &self.output) {
            (Some(result), _) => result.output.text(),
            (None, Some(output)) => output.clone(),
            (None, None) if self.output_bytes.is_some() => FILLER.to_owned(),
            (None, None) => prompt.to_owned(),
        };
        match self.output_bytes {
            Some(bytes) => filled(&base, bytes),
            None => base,
        }
    }
}

const FILLER: &str = "The quick brown fox jumps over the lazy dog. ";

/// `text` over and over, exactly `bytes` long; dots where no whole character fits at the end.
fn filled(text: &str, bytes: usize) -> String {
    let text = if text.is_empty() { "." } else { text };
    let mut out = text.repeat(bytes.div_ceil(text.len()));
    out.truncate(out.floor_char_boundary(bytes));
    out.extend(std::iter::repeat_n('.', bytes - out.len()));
    out
}

/// `text` in `count` pieces of about the same size; none is cut inside a character, some may be empty.
fn pieces(text: &str, count: usize) -> impl Iterator<Item = &str> {
    let edge = move |index: usize| text.floor_char_boundary(text.len() * index / count);
    (0..count).map(move |index| &text[edge(index)..edge(index + 1)])
}

#[derive(Debug)]
pub(crate) struct Mock;

impl Model for Mock {
    fn needs_history(&self) -> bool {
        false
    }

    fn begin(&self, turn: TurnContext) -> Result<Box<dyn ModelTurn>, Error> {
        let script = Script::of(&turn.prompt)?.unwrap_or_default();
        let (call, steered) = match turn.recorded.into_iter().next() {
            Some(recorded) => (Progress::Called(recorded.results.into_iter().next()), recorded.steered),
            None => (Progress::Fresh, Vec::new()),
        };
        Ok(Box::new(MockTurn { script, prompt: turn.prompt, call, steered }))
    }
}

#[derive(Debug)]
enum Progress {
    Fresh,
    /// The call was made. Its result is here if the turn was resumed, else with the step's input.
    Called(Option<ToolResult>),
}

struct MockTurn {
    script: Script,
    prompt: String,
    call: Progress,
    /// Input of before the resumption that no step has seen.
    steered: Vec<String>,
}

#[async_trait]
impl ModelTurn for MockTurn {
    async fn step(&mut self, input: StepInput, sink: &dyn DeltaSink) -> Result<Step, Error> {
        let mut thinking = String::new();
        for text in self.steered.drain(..).chain(input.steered) {
            thinking.push_str(&format!("steered: {text}\n"));
        }
        if !thinking.is_empty() {
            sink.send(Delta::Thinking(thinking.clone()));
        }
        let result = match (&mut self.call, self.script.tool.clone()) {
            (call @ Progress::Fresh, Some(tool)) => {
                *call = Progress::Called(None);
                let request = ToolRequest { name: tool.name, arguments: Value::Object(tool.arguments) };
                let usage = self.usage(&request.arguments.to_string(), None);
                let tool_calls = vec![request];
                return Ok(Step { thinking, text: String::new(), tool_calls, usage, stop: StopReason::ToolUse });
            }
            (Progress::Called(result), _) => result.take().or_else(|| input.results.into_iter().next()),
            (Progress::Fresh, None) => None,
        };
        let text = self.speak(result.as_ref(), sink).await?;
        let usage = self.usage(&text, result.as_ref());
        Ok(Step { thinking, text, tool_calls: Vec::new(), usage, stop: StopReason::EndTurn })
    }
}

impl MockTurn {
    /// Streams the output evenly over the latency, the last piece at its end.
    async fn speak(&self, result: Option<&ToolResult>, sink: &dyn DeltaSink) -> Result<String, Error> {
        let script = &self.script;
        let silent = script.fail.is_some() && !script.says_something();
        let text = if silent { String::new() } else { script.text(&self.prompt, result) };
        let (start, latency) = (Instant::now(), Duration::from_millis(script.latency_ms));
        let count = script.chunks.unwrap_or(1);
        for (piece, number) in pieces(&text, count).zip(1_u32..) {
            if !latency.is_zero() {
                let share = f64::from(number) / count as f64;
                sleep_until(start + latency.mul_f64(share)).await;
            }
            if !piece.is_empty() {
                sink.send(Delta::Text(piece.to_owned()));
            }
        }
        match &script.fail {
            Some(message) => Err(Error::new(ErrorKind::Agent, message.clone())),
            None => Ok(text),
        }
    }

    /// Four bytes are a token, as a rule of thumb for English text.
    fn usage(&self, output: &str, result: Option<&ToolResult>) -> Usage {
        let tokens = |bytes: usize| bytes.div_ceil(4) as u64;
        let result_bytes = result.map_or(0, |result| result.output.text().len());
        Usage { input_tokens: tokens(self.prompt.len() + result_bytes), output_tokens: tokens(output.len()) }
    }
}
