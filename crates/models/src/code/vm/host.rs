//! What a program can ask of the world: calls, the time, random numbers and the console. All of it
//! comes out the same when the program runs again on the same record.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use hearth_types::{Fault, FaultCode, Timestamp};
use rquickjs::function::Opt;
use rquickjs::{Ctx, Exception, Function, Object, Value};

use super::meter::{Meter, Stop};
use super::program::Program;
use super::random::Random;
use super::watchdog::Watch;
use super::{Event, Tell};
use crate::code::CodeBounds;
use crate::code::record::{Answered, Record, diverged, shown};
use crate::{Error, ErrorKind, ToolRequest, ToolResult};

/// The tools that a program finds as global functions; `tool(name, arguments)` reaches any other.
const GLOBAL_TOOLS: [&str; 11] = [
    "Agent",
    "mcp__sandbox__sandbox_open",
    "mcp__sandbox__sandbox_exec",
    "mcp__sandbox__sandbox_poll",
    "mcp__sandbox__sandbox_kill",
    "mcp__sandbox__sandbox_write",
    "mcp__sandbox__sandbox_read",
    "mcp__sandbox__sandbox_touch",
    "mcp__sandbox__sandbox_close",
    "mcp__sandbox__sandbox_close_run",
    "mcp__sandbox__sandbox_list",
];

pub(super) struct Host {
    pub meter: Rc<Meter>,
    record: Record,
    made: Cell<usize>,
    answers: Receiver<Arc<Answered>>,
    tell: Tell,
    watch: Watch,
    now: Cell<Timestamp>,
    started_at: Timestamp,
    random: Random,
    bounds: Arc<CodeBounds>,
    /// Bytes of console output that the step may still have; `None` once the bound was passed.
    log_left: Cell<Option<usize>>,
}

/// A host's ties to the world outside its thread.
pub(super) struct Ties {
    pub answers: Receiver<Arc<Answered>>,
    pub tell: Tell,
    pub watch: Watch,
}

impl Host {
    pub fn new(meter: Rc<Meter>, record: Record, ties: Ties, program: &Program, bounds: Arc<CodeBounds>) -> Self {
        let Ties { answers, tell, watch } = ties;
        let (started_at, random) = (program.started_at, Random::from_hex(&program.seed));
        let log_left = Cell::new(Some(bounds.log_bytes));
        let (made, now) = (Cell::new(0), Cell::new(started_at));
        Self { meter, record, made, answers, tell, watch, now, started_at, random, bounds, log_left }
    }

    /// The recorded call that the program has not made yet: its number, from 1, and the call.
    pub fn missing(&self) -> Option<(usize, &ToolRequest)> {
        let made = self.made.get();
        self.record.get(made).map(|answered| (made + 1, &answered.request))
    }

    pub fn calls_made(&self) -> usize {
        self.made.get()
    }

    /// Makes a call and blocks the thread until its result is there.
    fn call<'js>(&self, ctx: &Ctx<'js>, name: String, arguments: Option<Value<'js>>) -> rquickjs::Result<Value<'js>> {
        let arguments = self.arguments(ctx, &name, arguments)?;
        if self.meter.stopped() {
            return Err(Exception::throw_message(ctx, "the turn is over"));
        }
        let request = ToolRequest { name, arguments };
        match self.answer(request) {
            Ok(answered) => {
                self.now.set(self.now.get().max(answered.result.at));
                self.log_left.set(Some(self.bounds.log_bytes));
                self.meter.restart();
                self.give(ctx, &answered.result)
            }
            Err(stop) => {
                self.meter.stop(stop);
                Err(Exception::throw_message(ctx, "the turn is over"))
            }
        }
    }

    fn answer(&self, request: ToolRequest) -> Result<Arc<Answered>, Stop> {
        let made = self.made.get();
        if made >= self.bounds.calls {
            let bound = self.bounds.calls;
            let message = format!("the program made {bound} calls in one turn, the bound; spread the work over turns");
            return Err(Stop::Failed(Error::new(ErrorKind::Agent, message)));
        }
        let answered = match self.record.get(made) {
            Some(recorded) if recorded.request == request => recorded.clone(),
            Some(recorded) => {
                let now = format!("is {}", shown(&request));
                return Err(Stop::Failed(diverged(made + 1, &recorded.request, &now)));
            }
            None => {
                let waited = self.watch.paused(|| {
                    (self.tell)(Event::Call(request)).ok()?;
                    self.answers.recv().ok()
                });
                waited.ok_or(Stop::Unwanted)?
            }
        };
        self.made.set(made + 1);
        Ok(answered)
    }

    fn arguments<'js>(
        &self,
        ctx: &Ctx<'js>,
        name: &str,
        arguments: Option<Value<'js>>,
    ) -> rquickjs::Result<serde_json::Value> {
        let Some(arguments) = arguments.filter(|value| !value.is_undefined()) else {
            return Ok(serde_json::json!({}));
        };
        let refuse = |why: String| Err(Exception::throw_type(ctx, &format!("{name}: {why}")));
        let Some(text) = ctx.json_stringify(arguments)? else {
            return refuse("the arguments must be an object".to_owned());
        };
        let text = text.to_string()?;
        if text.len() > self.bounds.argument_bytes {
            let (bytes, bound) = (text.len(), self.bounds.argument_bytes);
            return refuse(format!("the arguments are {bytes} bytes of JSON; at most {bound} are allowed"));
        }
        match serde_json::from_str(&text) {
            Ok(value @ serde_json::Value::Object(_)) => Ok(value),
            Ok(_) => refuse("the arguments must be an object".to_owned()),
            Err(error) => refuse(format!("the arguments are not JSON: {error}")),
        }
    }

    /// Returns the result's content to the program, or throws its error.
    fn give<'js>(&self, ctx: &Ctx<'js>, result: &ToolResult) -> rquickjs::Result<Value<'js>> {
        let content = &result.output.content;
        if result.output.is_error {
            return Err(throw_fault(ctx, content, &result.output.text()));
        }
        let fits = |bytes: usize| bytes <= self.bounds.result_bytes;
        match content {
            serde_json::Value::String(text) if fits(text.len()) => {
                rquickjs::String::from_str(ctx.clone(), text).map(rquickjs::String::into_value)
            }
            serde_json::Value::String(text) => Err(self.throw_too_large(ctx, text.len())),
            other => {
                let text = other.to_string();
                if fits(text.len()) { ctx.json_parse(text) } else { Err(self.throw_too_large(ctx, text.len())) }
            }
        }
    }

    fn throw_too_large(&self, ctx: &Ctx<'_>, bytes: usize) -> rquickjs::Error {
        let bound = self.bounds.result_bytes;
        let message = format!("the result is {bytes} bytes; a program takes at most {bound}");
        throw_fault(ctx, &Fault::new(FaultCode::PayloadTooLarge, &message).to_body(), &message)
    }

    /// Console output reaches the turn once: not while the program repeats its record.
    fn log(&self, mut line: String) {
        let Some(left) = self.log_left.get() else { return };
        if self.made.get() < self.record.len() || self.meter.stopped() {
            return;
        }
        line.push('\n');
        self.log_left.set(left.checked_sub(line.len()));
        if line.len() > left {
            let start = &line[..line.floor_char_boundary(left)];
            let newline = if start.is_empty() || start.ends_with('\n') { "" } else { "\n" };
            line = format!("{start}{newline}[console output past {} bytes is dropped]\n", self.bounds.log_bytes);
        }
        if self.watch.paused(|| (self.tell)(Event::Line(line))).is_err() {
            self.meter.stop(Stop::Unwanted);
        }
    }
}

/// Puts the host's functions into the program's global scope. Returns the function that replaces
/// lone surrogates in a string.
pub(super) fn install<'js>(ctx: &Ctx<'js>, host: &Rc<Host>) -> rquickjs::Result<Function<'js>> {
    let bridge = Object::new(ctx.clone())?;
    let at = host.clone();
    bridge.set("now", Function::new(ctx.clone(), move || millis(at.now.get()))?)?;
    bridge.set("startedAt", millis(host.started_at))?;
    let at = host.clone();
    bridge.set("random", Function::new(ctx.clone(), move || at.random.next())?)?;
    let at = host.clone();
    bridge.set("log", Function::new(ctx.clone(), move |line: String| at.log(line))?)?;

    let globals = ctx.globals();
    for name in GLOBAL_TOOLS {
        let at = host.clone();
        let call = move |ctx: Ctx<'js>, arguments: Opt<Value<'js>>| at.call(&ctx, name.to_owned(), arguments.0);
        globals.set(name, Function::new(ctx.clone(), call)?.with_name(name)?)?;
    }
    let at = host.clone();
    let call = move |ctx: Ctx<'js>, name: String, arguments: Opt<Value<'js>>| at.call(&ctx, name, arguments.0);
    globals.set("tool", Function::new(ctx.clone(), call)?.with_name("tool")?)?;

    let prelude: Function = super::program::eval(ctx, include_str!("prelude.js"), "hearth.js")?;
    prelude.call((bridge,))
}

/// Throws a tool's `{"error": {…}}` as an `Error` that carries its fields, or `text` where it has none.
fn throw_fault(ctx: &Ctx<'_>, content: &serde_json::Value, text: &str) -> rquickjs::Error {
    let error = &content["error"];
    let message = error["message"].as_str().unwrap_or(text);
    let thrown = Exception::from_message(ctx.clone(), message).and_then(|exception| {
        let object = exception.as_object();
        object.set("name", "ToolError")?;
        object.set("code", error["code"].as_str().unwrap_or(FaultCode::Internal.as_str()))?;
        object.set("retryable", error["retryable"].as_bool().unwrap_or(false))?;
        if let Some(ms) = error["retry_after_ms"].as_f64() {
            object.set("retry_after_ms", ms)?;
        }
        if let Some(details) = error.get("details") {
            object.set("details", ctx.json_parse(details.to_string())?)?;
        }
        Ok(exception)
    });
    match thrown {
        Ok(exception) => exception.throw(),
        Err(error) => error,
    }
}

#[allow(clippy::cast_precision_loss, reason = "JavaScript's times are doubles, exact for 285,000 years")]
fn millis(at: Timestamp) -> f64 {
    at.as_millis() as f64
}
