//! One program in its interpreter, from start to end. Runs on a thread of its own.

use std::rc::Rc;

use hearth_types::Timestamp;
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::promise::PromiseState;
use rquickjs::{Context, Ctx, FromJs, Function, Runtime, Value};
use serde::{Deserialize, Serialize};

use super::exception;
use super::host::{self, Host};
use super::meter::{Meter, Stop};
use crate::code::CodeBounds;
use crate::code::record::diverged;
use crate::{Error, ErrorKind};

/// All but weak references, which show when the garbage collector ran, and `performance`, which
/// reads the host's clock.
type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// What a promise that waits for the next one holds, at the most: fewer steps than memory has room for
/// of these cannot have filled it.
const CHAINED_BYTES: usize = 4 << 10;

/// The name of the program in stacks.
const FILE: &str = "agent.js";

/// What a turn runs.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::code) struct Program {
    pub code: String,
    pub prompt: String,
    pub started_at: Timestamp,
    /// 32 hex digits, derived from the run and the turn.
    pub seed: String,
}

/// How a program can fail before anybody stops it.
enum Failure {
    /// The interpreter has an exception for us.
    Thrown(rquickjs::Error),
    Said(String),
}

impl From<rquickjs::Error> for Failure {
    fn from(error: rquickjs::Error) -> Self {
        Self::Thrown(error)
    }
}

/// Runs the program to its end and returns its output.
pub(super) fn run(program: &Program, host: Rc<Host>, bounds: &CodeBounds) -> Result<String, Stop> {
    let meter = host.meter.clone();
    let (runtime, context) = interpreter(bounds)
        .map_err(|error| failed(format!("no interpreter within {} bytes: {error}", bounds.memory_bytes)))?;
    let at = meter.clone();
    runtime.set_interrupt_handler(Some(Box::new(move || at.interrupts())));
    let outcome = context.with(|ctx| {
        let result =
            meter.load_ballast(&ctx).map_err(Failure::from).and_then(|()| perform(&ctx, &host, program, bounds));
        conclude(&ctx, &host, result, bounds)
    });
    meter.drop_ballast();
    outcome
}

/// Checks that `source` is a script, without running any of it. The error says where it is not.
pub(in crate::code) fn check(source: &str, bounds: &CodeBounds) -> Result<(), String> {
    let (_runtime, context) = interpreter(bounds).map_err(|error| error.to_string())?;
    context.with(|ctx| {
        // A script is compiled as a whole before its first statement runs, and that one throws.
        match eval::<Value>(&ctx, &format!("throw 0;{source}"), FILE) {
            Err(rquickjs::Error::Exception) => match ctx.catch() {
                thrown if thrown.as_int() == Some(0) => Ok(()),
                thrown => Err(exception::shown(&thrown, bounds)),
            },
            Err(error) => Err(error.to_string()),
            Ok(_) => Ok(()),
        }
    })
}

/// Evaluates a script in the global scope, in JavaScript's default (sloppy) mode.
pub(super) fn eval<'js, V: FromJs<'js>>(ctx: &Ctx<'js>, source: &str, file: &str) -> rquickjs::Result<V> {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(file.to_owned());
    ctx.eval_with_options(source, options)
}

fn interpreter(bounds: &CodeBounds) -> rquickjs::Result<(Runtime, Context)> {
    let runtime = Runtime::new()?;
    runtime.set_memory_limit(bounds.memory_bytes);
    runtime.set_max_stack_size(bounds.stack_bytes);
    let context = Context::custom::<Intrinsics>(&runtime)?;
    Ok((runtime, context))
}

fn perform(ctx: &Ctx<'_>, host: &Rc<Host>, program: &Program, bounds: &CodeBounds) -> Result<String, Failure> {
    let well_formed = host::install(ctx, host)?;
    eval::<Value>(ctx, program.code.as_str(), FILE)?;
    // Not a property of the global object where it is a `const`.
    let run: Value = eval(ctx, "typeof run === 'function' ? run : undefined", FILE)?;
    let run = run.into_function().ok_or_else(|| {
        Failure::Said("the program defines no function `run(input)`; define `function run(input) { … }`".to_owned())
    })?;
    let returned = settle(ctx, &host.meter, run.call((program.prompt.as_str(),))?, bounds)?;
    text(ctx, &well_formed, returned, bounds)
}

/// Runs what the program left to run later, and awaits what it returned.
fn settle<'js>(
    ctx: &Ctx<'js>,
    meter: &Meter,
    returned: Value<'js>,
    bounds: &CodeBounds,
) -> Result<Value<'js>, Failure> {
    let promise = returned.as_promise().cloned();
    let rejected = || promise.as_ref().is_some_and(|promise| promise.state() == PromiseState::Rejected);
    let mut jobs = 0_usize;
    while !meter.stopped() && !rejected() && ctx.execute_pending_job() {
        jobs += 1;
    }
    let Some(promise) = promise else { return Ok(returned) };
    match promise.result() {
        Some(result) => result.map_err(Failure::Thrown),
        None if meter.memory_is_full(ctx) => Err(Failure::Said(exception::out_of_memory(bounds))),
        // Where memory is full the interpreter drops what was to run next, without an exception; what
        // waited for it is freed, and memory is not full any more.
        None if jobs > bounds.memory_bytes / CHAINED_BYTES => Err(Failure::Said(format!(
            "{}; or, after {jobs} steps of promises, `run` awaits one that nothing will settle",
            exception::out_of_memory(bounds)
        ))),
        None => {
            let message = "`run` awaits a promise that nothing will settle; there are no timers";
            Err(Failure::Said(message.to_owned()))
        }
    }
}

/// A string as it is, nothing for `undefined`, JSON for anything else.
fn text<'js>(
    ctx: &Ctx<'js>,
    well_formed: &Function<'js>,
    returned: Value<'js>,
    bounds: &CodeBounds,
) -> Result<String, Failure> {
    if returned.is_undefined() {
        return Ok(String::new());
    }
    let text = if returned.is_string() {
        well_formed.call((returned,))?
    } else {
        let kind = returned.type_name();
        ctx.json_stringify(returned)?
            .ok_or_else(|| Failure::Said(format!("`run` returned a {kind}, which is not JSON")))?
    };
    let text = text.to_string()?;
    if text.len() > bounds.output_bytes {
        let (bytes, bound) = (text.len(), bounds.output_bytes);
        return Err(Failure::Said(format!("`run` returned {bytes} bytes; at most {bound} are allowed")));
    }
    Ok(text)
}

fn conclude(ctx: &Ctx<'_>, host: &Host, result: Result<String, Failure>, bounds: &CodeBounds) -> Result<String, Stop> {
    // Whatever the program made of it: the reason to stop it is why it ended.
    if let Some(stop) = host.meter.take_stop() {
        return Err(stop);
    }
    let result = result.map_err(|failure| match failure {
        Failure::Said(said) => Error::new(ErrorKind::Agent, said),
        Failure::Thrown(error) => exception::thrown(ctx, &error, bounds),
    });
    // Showing an exception can run code of the program.
    if let Some(stop) = host.meter.take_stop() {
        return Err(stop);
    }
    if let Some((number, was)) = host.missing() {
        let now = match &result {
            Ok(_) => format!("the program ended after {} calls", host.calls_made()),
            Err(error) => format!("the program failed after {} calls: {error}", host.calls_made()),
        };
        return Err(Stop::Failed(diverged(number, was, &now)));
    }
    result.map_err(Stop::Failed)
}

fn failed(message: String) -> Stop {
    Stop::Failed(Error::new(ErrorKind::Agent, message))
}
