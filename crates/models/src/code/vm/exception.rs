//! Exceptions of a program as an error message shows them.

use hearth_types::FaultCode;
use rquickjs::convert::Coerced;
use rquickjs::{Ctx, FromJs, Value};

use crate::code::CodeBounds;
use crate::code::record::clipped;
use crate::{Error, ErrorKind};

/// Bytes of a message, and of a stack.
const SHOWN_BYTES: usize = 4 << 10;

/// What the interpreter throws at the end of its memory and of its stack.
const OUT_OF_MEMORY: &str = "out of memory";
const OUT_OF_STACK: &str = "Maximum call stack size exceeded";

/// The exception behind an error that the interpreter returned. What a tool refused keeps its code when
/// the program lets it pass, or throws another error that carries it.
pub(super) fn thrown(ctx: &Ctx<'_>, error: &rquickjs::Error, bounds: &CodeBounds) -> Error {
    if !ctx.has_exception() && !error.is_exception() {
        return Error::new(ErrorKind::Agent, clipped(&error.to_string(), SHOWN_BYTES));
    }
    let value = ctx.catch();
    let error = Error::new(ErrorKind::Agent, shown(&value, bounds));
    match code(&value) {
        Some(code) => error.with_code(code),
        None => error,
    }
}

/// The `code` of a thrown object, where it is one of the contract's.
fn code(value: &Value<'_>) -> Option<FaultCode> {
    match value.as_object()?.get::<_, Option<String>>("code") {
        Ok(code) => FaultCode::parse(&code?),
        Err(_) => {
            // A getter threw, or the property is no text.
            drop(value.ctx().catch());
            None
        }
    }
}

/// The name and message of a thrown value, and its stack where it has one.
pub(super) fn shown(value: &Value<'_>, bounds: &CodeBounds) -> String {
    if value.is_null() {
        // Where not even an error object could be made, the interpreter throws this.
        return format!("{}, or the program threw null", out_of_memory(bounds));
    }
    let mut message = clipped(&text(value), SHOWN_BYTES);
    if message.ends_with(OUT_OF_MEMORY) {
        message = out_of_memory(bounds);
    } else if message.ends_with(OUT_OF_STACK) {
        message = format!("{message} (the bound is {} KiB of stack)", bounds.stack_bytes >> 10);
    }
    let stack = value.as_object().and_then(|object| object.get::<_, Coerced<String>>("stack").ok());
    match stack.map(|stack| clipped(stack.0.trim_end(), SHOWN_BYTES)) {
        Some(stack) if !stack.is_empty() && stack != "undefined" => format!("{message}\n{stack}"),
        _ => message,
    }
}

pub(super) fn out_of_memory(bounds: &CodeBounds) -> String {
    format!("{OUT_OF_MEMORY}: the program needs more than {} MiB, its bound", bounds.memory_bytes >> 20)
}

fn text(value: &Value<'_>) -> String {
    Coerced::<String>::from_js(value.ctx(), value.clone()).map_or_else(
        |_| {
            // The conversion threw as well; that exception tells nobody anything.
            drop(value.ctx().catch());
            format!("the program threw a {} that has no text", value.type_name())
        },
        |text| text.0,
    )
}
