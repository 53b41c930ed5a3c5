//! The turn of a code agent: one step per call.

use std::sync::Arc;

use async_trait::async_trait;
use hearth_types::Usage;

use super::hosting::Running;
use super::pool::{Parked, Pool};
use super::record::{Answered, Record};
use super::vm::{Event, Program};
use crate::{Delta, DeltaSink, Error, ErrorKind, ModelTurn, Step, StepInput, StopReason, ToolRequest};

pub(super) struct CodeTurn {
    pool: Arc<Pool>,
    program: Arc<Program>,
    record: Record,
    /// The call that the last step asked for.
    pending: Option<ToolRequest>,
    parked: Option<Parked>,
    /// Whether the program's process died while it computed: it may be the reason.
    suspect: bool,
    /// Input of before the resumption that no step has seen.
    steered: Vec<String>,
}

impl CodeTurn {
    pub fn new(pool: Arc<Pool>, program: Program, record: Record, steered: Vec<String>) -> Self {
        Self { pool, program: Arc::new(program), record, pending: None, parked: None, suspect: false, steered }
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
        match (self.parked.take(), answer) {
            (Some(parked), Some(answer)) => match parked.resume(answer) {
                Some(running) => Ok(running),
                None => self.start().await,
            },
            _ => self.start().await,
        }
    }

    async fn start(&self) -> Result<Running, Error> {
        let place = self.pool.place().await?;
        self.pool.hosting.start(&self.program, self.record.clone(), place, &self.pool.bounds, self.suspect)
    }

    /// Goes on after the program died with its process: once in a step, alone in a new process. What
    /// dies there as well is to blame; before that it may have been a neighbour, or the machine.
    async fn start_alone(&mut self, tried: bool) -> Result<Running, Error> {
        if tried || !self.pool.hosting.survives() {
            return Err(Error::new(
                ErrorKind::Agent,
                "the program makes the interpreter crash; so it is with some programs at the end of their memory",
            ));
        }
        self.suspect = true;
        self.start().await
    }
}

#[async_trait]
impl ModelTurn for CodeTurn {
    async fn step(&mut self, input: StepInput, sink: &dyn DeltaSink) -> Result<Step, Error> {
        let mut log = Log { thinking: String::new(), lines: 0, known: 0, sink };
        for text in self.steered.drain(..).chain(input.steered.iter().cloned()) {
            log.say(format!("[a program takes no input while it runs; dropped: {}]\n", text.trim_end()));
        }
        let answer = self.admit(input)?;
        let pool = self.pool.clone();
        let _computing = pool.compute().await?;
        let mut running = self.running(answer).await?;
        let mut alone = false;
        loop {
            match running.events.recv().await {
                Some(Event::Line(line)) => log.line(line),
                Some(Event::Call(request)) => {
                    self.pending = Some(request.clone());
                    self.parked = Some(pool.park(running));
                    return Ok(step(log.thinking, String::new(), vec![request], StopReason::ToolUse));
                }
                Some(Event::Ended(Ok(text))) => return Ok(step(log.thinking, text, Vec::new(), StopReason::EndTurn)),
                Some(Event::Ended(Err(failed))) => return Err(failed.into()),
                Some(Event::Stuck) => {
                    running.hold.abandon();
                    return Err(stuck(&pool));
                }
                None => {
                    drop(running);
                    running = self.start_alone(std::mem::replace(&mut alone, true)).await?;
                    log.repeats();
                }
            }
        }
    }
}

/// Console output of one step.
struct Log<'a> {
    thinking: String,
    /// Lines since the program started last in this step.
    lines: usize,
    /// Lines that were said before it started again, and that it says again.
    known: usize,
    sink: &'a dyn DeltaSink,
}

impl Log<'_> {
    fn line(&mut self, line: String) {
        self.lines += 1;
        if self.lines > self.known {
            self.say(line);
        }
    }

    fn repeats(&mut self) {
        self.known = self.known.max(std::mem::take(&mut self.lines));
    }

    fn say(&mut self, line: String) {
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
            "one built-in operation of the program took more than {:?}, its bound; work on smaller arrays and strings",
            pool.bounds.unresponsive
        ),
    )
}
