//! The turn of a code agent: one step per call.

use std::sync::Arc;

use async_trait::async_trait;
use hearth_types::Usage;

use super::host::Event;
use super::pool::{Parked, Pool};
use super::program::Program;
use super::record::{Answered, Record};
use super::thread::{self, Running};
use crate::{Delta, DeltaSink, Error, ErrorKind, ModelTurn, Step, StepInput, StopReason, ToolRequest};

pub(super) struct CodeTurn {
    pool: Arc<Pool>,
    program: Arc<Program>,
    record: Record,
    /// The call that the last step asked for.
    pending: Option<ToolRequest>,
    parked: Option<Parked>,
}

impl CodeTurn {
    pub fn new(pool: Arc<Pool>, program: Program, record: Record) -> Self {
        Self { pool, program: Arc::new(program), record, pending: None, parked: None }
    }

    /// Takes the result of the last step's call into the record.
    fn admit(&mut self, input: StepInput) -> Result<Option<Arc<Answered>>, Error> {
        match (self.pending.take(), <[_; 1]>::try_from(input.results)) {
            (Some(request), Ok([result])) => self.record.push(request, result, self.pool.bounds.record_bytes).map(Some),
            (None, Err(results)) if results.is_empty() => Ok(None),
            _ => Err(Error::new(ErrorKind::Agent, "a program's step takes the result of its last call, and no other")),
        }
    }

    /// The program where it waits for this answer, or from its top where it is not in memory.
    async fn running(&mut self, answer: Option<Arc<Answered>>) -> Result<Running, Error> {
        if let (Some(parked), Some(answer)) = (self.parked.take(), answer)
            && let Some(running) = parked.resume(answer)
        {
            return Ok(running);
        }
        let place = self.pool.place().await?;
        thread::start(self.program.clone(), self.record.clone(), place, &self.pool.bounds)
    }
}

#[async_trait]
impl ModelTurn for CodeTurn {
    async fn step(&mut self, input: StepInput, sink: &dyn DeltaSink) -> Result<Step, Error> {
        let mut log = Log { thinking: String::new(), sink };
        for text in &input.steered {
            log.line(format!("[a program takes no input while it runs; dropped: {}]\n", text.trim_end()));
        }
        let answer = self.admit(input)?;
        let pool = self.pool.clone();
        let _computing = pool.compute().await?;
        let mut running = self.running(answer).await?;
        let control = running.control.clone();
        let _watch = pool.watchdog.watch(&control);
        loop {
            let event = tokio::select! {
                biased;
                event = running.events.recv() => event,
                () = control.stuck.notified() => return Err(stuck(&pool)),
            };
            match event {
                Some(Event::Line(line)) => log.line(line),
                Some(Event::Call(request)) => {
                    self.pending = Some(request.clone());
                    self.parked = Some(pool.park(running));
                    return Ok(step(log.thinking, String::new(), vec![request], StopReason::ToolUse));
                }
                Some(Event::Ended(ended)) => {
                    return ended.map(|text| step(log.thinking, text, Vec::new(), StopReason::EndTurn));
                }
                None => return Err(Error::new(ErrorKind::Agent, "the program's thread ended without a word")),
            }
        }
    }
}

/// Console output of one step.
struct Log<'a> {
    thinking: String,
    sink: &'a dyn DeltaSink,
}

impl Log<'_> {
    fn line(&mut self, line: String) {
        self.thinking.push_str(&line);
        self.sink.send(Delta::Thinking(line));
    }
}

fn step(thinking: String, text: String, tool_calls: Vec<ToolRequest>, stop: StopReason) -> Step {
    Step { thinking, text, tool_calls, usage: Usage::default(), stop }
}

fn stuck(pool: &Pool) -> Error {
    Error::new(
        ErrorKind::Agent,
        format!(
            "one built-in operation of the program took more than {:?} of processor time, its bound; \
             work on smaller arrays and strings",
            pool.bounds.unresponsive
        ),
    )
}
