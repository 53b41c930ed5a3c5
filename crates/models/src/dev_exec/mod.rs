//! The built-in agent `dev/exec`: runs the commands of its prompt in a sandbox session.

mod progress;
mod spec;

use std::collections::VecDeque;

use async_trait::async_trait;
use hearth_types::Usage;
use progress::{Next, Progress};
use spec::Spec;

use crate::{Delta, DeltaSink, Error, Model, ModelTurn, RecordedStep, Step, StepInput, StopReason, TurnContext};

pub(crate) const NAME: &str = "dev/exec";

pub(crate) const DESCRIPTION: &str = "\
Writes files, runs commands and reads files in the run tree's sandbox session, without a model. The prompt is \
{\"commands\": [..], \"files\": [{\"path\", \"content\"}], \"read\": [path], \"workspace\", \"timeout_seconds\", \"session_id\", \
\"continue\", \"close\"}; the output {\"session_id\", \"results\": [{\"command\", \"exit_code\", \"output\", \"timed_out\", \
\"truncated\", \"duration_ms\"}], \"read\": {path: content}}. It stops at the first command that fails unless \
\"continue\" is true. The session is kept for the next turn unless \"close\" is true.";

#[derive(Debug)]
pub(crate) struct DevExec;

impl Model for DevExec {
    fn needs_history(&self) -> bool {
        false
    }

    fn begin(&self, turn: TurnContext) -> Result<Box<dyn ModelTurn>, Error> {
        let progress = Progress::new(Spec::parse(&turn.prompt)?, turn.sandbox_session.as_ref());
        Ok(Box::new(DevExecTurn { progress, recorded: turn.recorded.into(), asked: false }))
    }
}

struct DevExecTurn {
    progress: Progress,
    /// Steps of before the resumption that are not taken in yet.
    recorded: VecDeque<RecordedStep>,
    /// Whether the last step asked for calls, whose results come with the next one.
    asked: bool,
}

#[async_trait]
impl ModelTurn for DevExecTurn {
    async fn step(&mut self, input: StepInput, sink: &dyn DeltaSink) -> Result<Step, Error> {
        let mut steered = Vec::new();
        while let Some(recorded) = self.recorded.pop_front() {
            steered = recorded.steered;
            self.progress.take(recorded.results.into_iter().map(|result| result.output).collect())?;
            self.progress.take_notes();
        }
        if self.asked {
            self.progress.take(input.results.into_iter().map(|result| result.output).collect())?;
        }
        for text in steered.iter().chain(&input.steered) {
            self.progress.note(&format!("[dev/exec takes no input while it runs; dropped: {}]", text.trim_end()));
        }
        let thinking = self.progress.take_notes();
        if !thinking.is_empty() {
            sink.send(Delta::Thinking(thinking.clone()));
        }
        let (text, tool_calls, stop) = match self.progress.next() {
            Next::Calls(calls) => (String::new(), calls, StopReason::ToolUse),
            Next::Output(text) => (text, Vec::new(), StopReason::EndTurn),
            Next::Failed(error) => return Err(error),
        };
        self.asked = stop == StopReason::ToolUse;
        if !text.is_empty() {
            sink.send(Delta::Text(text.clone()));
        }
        Ok(Step { thinking, text, tool_calls, usage: Usage::default(), stop })
    }
}
