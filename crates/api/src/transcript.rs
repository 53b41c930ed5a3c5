//! The conversation of a run as its journal and its history tell it.

use std::collections::HashMap;
use std::ops::ControlFlow;

use hearth_journal::Journal;
use hearth_residency::{Part, compressed};
use hearth_run_core::Event;
use hearth_types::{Fault, Timestamp, TurnId};
use serde_json::{Value, json};

use crate::answers::TranscriptMessage;

/// The messages of several runs, one after the other, that one page shows. Others are counted only.
pub(crate) struct Pages {
    skip: usize,
    limit: usize,
    pub messages: Vec<TranscriptMessage>,
    /// All that there were, those that are not shown too.
    pub counted: u64,
}

impl Pages {
    pub fn new(skip: usize, limit: usize) -> Self {
        Self { skip, limit, messages: Vec::new(), counted: 0 }
    }

    /// Shows none and counts all.
    pub fn counting() -> Self {
        Self::new(usize::MAX, usize::MAX)
    }

    pub fn are_full(&self) -> bool {
        self.messages.len() >= self.limit
    }

    pub async fn read(&mut self, journal: &dyn Journal, part: &Part) -> Result<(), Fault> {
        let mut writer = Writer { part, pages: self, prompts: HashMap::new(), text: String::new() };
        let visit = |recorded: hearth_run_core::Recorded| {
            writer.write(recorded.event, recorded.at);
            if writer.pages.are_full() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        Ok(part.each_event(journal, visit).await?)
    }
}

struct Writer<'r> {
    part: &'r Part,
    pages: &'r mut Pages,
    /// Of the turns that have not started.
    prompts: HashMap<TurnId, String>,
    text: String,
}

impl Writer<'_> {
    fn push(&mut self, role: &str, content: Value, turn_id: TurnId, at: Timestamp) {
        self.pages.counted += 1;
        if self.pages.skip > 0 {
            self.pages.skip -= 1;
            return;
        }
        let (role, run_id) = (role.to_owned(), self.part.run_id.clone());
        self.pages.messages.push(TranscriptMessage { role, content, run_id, turn_id: Some(turn_id), at });
    }

    /// What was asked or answered.
    fn say(&mut self, role: &str, text: String, turn_id: TurnId, at: Timestamp) {
        let text = if self.part.compress { compressed(text) } else { text };
        self.push(role, Value::String(text), turn_id, at);
    }

    fn write(&mut self, event: Event, at: Timestamp) {
        match event {
            // Of a compressed conversation what happened between question and answer is not shown.
            Event::StepFinished { .. } if self.part.compress => self.text.clear(),
            Event::ToolCalled { .. } | Event::ToolFinished { .. } if self.part.compress => {}
            Event::TurnAccepted { turn_id, prompt, .. } => {
                self.prompts.insert(turn_id, prompt);
            }
            Event::TurnStarted { turn_id } => {
                let prompt = self.prompts.remove(&turn_id).unwrap_or_default();
                self.text.clear();
                self.say("user", prompt, turn_id, at);
            }
            Event::Steered { turn_id, text, .. } => self.say("user", text, turn_id, at),
            // A text that ends its turn is written by the turn's end.
            Event::Text { text, .. } => self.text = text,
            Event::StepFinished { turn_id } => {
                let text = std::mem::take(&mut self.text);
                if !text.is_empty() {
                    self.push("assistant", Value::String(text), turn_id, at);
                }
            }
            Event::ToolCalled { turn_id, call } => {
                let content = json!({ "tool_call": { "id": call.id, "name": call.name, "arguments": call.arguments } });
                self.push("assistant", content, turn_id, at);
            }
            Event::ToolFinished { turn_id, call_id, output } => {
                let content =
                    json!({ "tool_call_id": call_id, "content": output.content, "is_error": output.is_error });
                self.push("tool", content, turn_id, at);
            }
            Event::TurnEnded { turn_id, output, .. } => {
                let text = output.unwrap_or_else(|| std::mem::take(&mut self.text));
                self.say("assistant", text, turn_id, at);
            }
            _ => {}
        }
    }
}
