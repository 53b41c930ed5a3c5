//! The calls that a turn has made already, which a program that runs again is answered from.

use std::io;
use std::sync::Arc;

use hearth_types::ToolOutput;
use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind, RecordedStep, ToolRequest, ToolResult};

/// A call and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Answered {
    pub request: ToolRequest,
    pub result: ToolResult,
}

/// The record of one turn. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Record {
    calls: Vec<Arc<Answered>>,
    bytes: usize,
}

impl Record {
    /// Takes over what the journal holds. A code agent's step has exactly one call.
    pub fn from_journal(steps: Vec<RecordedStep>, bound: usize) -> Result<Self, Error> {
        let mut record = Self::default();
        for (index, step) in steps.into_iter().enumerate() {
            let (calls, results) = (step.step.tool_calls, step.results);
            let (Ok([request]), Ok([result])) = (<[_; 1]>::try_from(calls), <[_; 1]>::try_from(results)) else {
                return Err(Error::new(
                    ErrorKind::Agent,
                    format!(
                        "diverged: recorded step {} is not one call with one result, as a program's are",
                        index + 1
                    ),
                ));
            };
            record.push(request, result, bound)?;
        }
        Ok(record)
    }

    pub fn push(&mut self, request: ToolRequest, result: ToolResult, bound: usize) -> Result<Arc<Answered>, Error> {
        self.bytes = self.bytes.saturating_add(json_bytes(&result.output));
        if self.bytes > bound {
            return Err(Error::new(
                ErrorKind::Agent,
                format!(
                    "the results of this turn's calls add up to more than {bound} bytes, the bound; \
                     leave big content in the sandbox and read parts of it, or use several turns"
                ),
            ));
        }
        let answered = Arc::new(Answered { request, result });
        self.calls.push(answered.clone());
        Ok(answered)
    }

    /// Takes a call whose bound was checked before.
    pub fn restore(&mut self, answered: Arc<Answered>) {
        self.calls.push(answered);
    }

    pub fn calls(&self) -> impl Iterator<Item = &Arc<Answered>> {
        self.calls.iter()
    }

    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// The call with this number, from 0.
    pub fn get(&self, index: usize) -> Option<&Arc<Answered>> {
        self.calls.get(index)
    }
}

/// The error of a program that does not repeat its record.
pub(super) fn diverged(number: usize, was: &ToolRequest, now: &str) -> Error {
    Error::new(
        ErrorKind::Agent,
        format!(
            "diverged: call {number} was {}, now {now}; a program must make the same calls when it runs again \
             on the same results",
            shown(was)
        ),
    )
}

/// A call as an error message shows it.
pub(super) fn shown(request: &ToolRequest) -> String {
    format!("{}({})", request.name, clipped(&request.arguments.to_string(), 200))
}

/// At most `bytes` of `text`, marked where it was cut.
pub(super) fn clipped(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes)])
}

fn json_bytes(output: &ToolOutput) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A `Value` always serializes, and counting never fails.
    serde_json::to_writer(&mut count, &output.content).map_or(usize::MAX, |()| count.0)
}
