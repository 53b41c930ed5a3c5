//! Which calls a `dev/exec` turn makes next, decided from its prompt and the results so far alone,
//! so that a resumed turn goes on where the record ends.

use std::collections::BTreeMap;

use hearth_types::{Fault, FaultCode, SandboxId, ToolOutput};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::spec::Spec;
use crate::{Error, ErrorKind, ToolRequest};

/// Writes, or reads, of one step.
const BATCH: usize = 16;

#[derive(Debug)]
pub(super) enum Next {
    Calls(Vec<ToolRequest>),
    Output(String),
    Failed(Error),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    /// The number of the first file that is not written yet; for the others likewise.
    Write(usize),
    Exec(usize),
    Read(usize),
    Close,
    Over,
}

#[derive(Debug, Serialize)]
struct CommandResult {
    command: String,
    exit_code: Option<i64>,
    output: String,
    /// `base64` where the output is not text.
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    timed_out: bool,
    truncated: bool,
    duration_ms: u64,
}

impl CommandResult {
    fn failed(&self) -> bool {
        self.timed_out || self.exit_code != Some(0)
    }
}

#[derive(Debug, Serialize)]
struct Output<'a> {
    session_id: &'a str,
    results: &'a [CommandResult],
    read: &'a BTreeMap<String, String>,
    /// Files that were longer than one read returns.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    read_truncated: &'a [String],
    /// Files whose content is base64, because it is not text.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    read_base64: &'a [String],
}

/// What a tool of the sandbox answers, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    session_id: Option<String>,
    exit_code: Option<i64>,
    output: String,
    content: String,
    encoding: Option<String>,
    timed_out: bool,
    truncated: bool,
    duration_ms: u64,
}

#[derive(Debug)]
pub(super) struct Progress {
    spec: Spec,
    stage: Stage,
    session: String,
    /// Whether the session holds something of this turn already: then losing it is a failure.
    used: bool,
    /// Whether the session is one of an earlier turn.
    kept: bool,
    reopened: bool,
    results: Vec<CommandResult>,
    read: BTreeMap<String, String>,
    read_truncated: Vec<String>,
    read_base64: Vec<String>,
    failure: Option<Fault>,
    notes: String,
}

impl Progress {
    /// `kept` is the session of the turns before: it is used where the prompt names neither another one
    /// nor a workspace.
    pub fn new(spec: Spec, kept: Option<&SandboxId>) -> Self {
        let kept = kept.filter(|_| spec.session_id.is_none() && spec.workspace.is_none());
        let session = spec.session_id.clone().or(kept.map(ToString::to_string)).unwrap_or_default();
        let stage = if session.is_empty() { Stage::Open } else { Stage::Write(0) };
        let mut progress = Self {
            spec,
            stage,
            session,
            used: false,
            kept: kept.is_some(),
            reopened: false,
            results: Vec::new(),
            read: BTreeMap::new(),
            read_truncated: Vec::new(),
            read_base64: Vec::new(),
            failure: None,
            notes: String::new(),
        };
        progress.settle();
        progress
    }

    pub fn next(&self) -> Next {
        let session = &self.session;
        let calls = match self.stage {
            Stage::Open => vec![match &self.spec.workspace {
                Some(workspace) => call("sandbox_open", json!({ "workspace": workspace })),
                None => call("sandbox_open", json!({})),
            }],
            Stage::Write(from) => batch(&self.spec.files, from, |file| {
                call("sandbox_write", json!({ "session_id": session, "path": file.path, "content": file.content }))
            }),
            Stage::Exec(index) => {
                let mut arguments = json!({ "session_id": session, "command": self.spec.commands[index] });
                if let Some(seconds) = self.spec.timeout_seconds {
                    arguments["timeout_seconds"] = seconds.into();
                }
                vec![call("sandbox_exec", arguments)]
            }
            Stage::Read(from) => batch(&self.spec.read, from, |path| {
                call("sandbox_read", json!({ "session_id": session, "path": path }))
            }),
            Stage::Close => vec![call("sandbox_close", json!({ "session_id": session }))],
            Stage::Over => return self.ending(),
        };
        Next::Calls(calls)
    }

    /// Takes in the results of the calls that [`Self::next`] named, in their order.
    pub fn take(&mut self, outputs: Vec<ToolOutput>) -> Result<(), Error> {
        let asked = match self.next() {
            Next::Calls(calls) => calls.len(),
            _ => 0,
        };
        if asked != outputs.len() {
            let message =
                format!("{asked} calls have {} results; the turn's record does not fit its prompt", outputs.len());
            return Err(Error::new(ErrorKind::Agent, message));
        }
        if let Some(fault) = outputs.iter().find(|output| output.is_error).map(fault_of) {
            self.fail(fault);
        } else {
            let answers: Result<Vec<Answer>, _> =
                outputs.into_iter().map(|output| serde_json::from_value(output.content)).collect();
            match answers {
                Ok(answers) => self.advance(answers),
                Err(error) => self.fail(Fault::internal(format!("a sandbox tool's answer is not understood: {error}"))),
            }
        }
        self.settle();
        Ok(())
    }

    pub fn note(&mut self, line: &str) {
        self.notes.push_str(line);
        self.notes.push('\n');
    }

    /// What there is to say about the steps taken in since the last time.
    pub fn take_notes(&mut self) -> String {
        std::mem::take(&mut self.notes)
    }

    fn advance(&mut self, answers: Vec<Answer>) {
        let count = answers.len();
        self.used |= !matches!(self.stage, Stage::Open | Stage::Close);
        self.stage = match self.stage {
            Stage::Open => match answers.into_iter().next().and_then(|answer| answer.session_id) {
                Some(session) => {
                    self.session = session;
                    Stage::Write(0)
                }
                None => return self.fail(Fault::internal("sandbox_open answered without a session_id")),
            },
            Stage::Write(from) => Stage::Write(from + count),
            Stage::Exec(index) => {
                let results = answers.into_iter().map(|answer| self.command_result(index, answer));
                let results: Vec<CommandResult> = results.collect();
                let stops = !self.spec.keep_going && results.iter().any(CommandResult::failed);
                self.results.extend(results);
                if stops { Stage::Read(0) } else { Stage::Exec(index + 1) }
            }
            Stage::Read(from) => {
                for (path, answer) in self.spec.read[from..].iter().zip(answers) {
                    if answer.truncated {
                        self.read_truncated.push(path.clone());
                    }
                    if answer.encoding.as_deref() == Some("base64") {
                        self.read_base64.push(path.clone());
                    }
                    self.read.insert(path.clone(), answer.content);
                }
                Stage::Read(from + count)
            }
            Stage::Close | Stage::Over => Stage::Over,
        };
    }

    fn command_result(&self, index: usize, answer: Answer) -> CommandResult {
        CommandResult {
            command: self.spec.commands[index].clone(),
            exit_code: answer.exit_code,
            output: answer.output,
            encoding: answer.encoding.filter(|encoding| encoding == "base64"),
            timed_out: answer.timed_out,
            truncated: answer.truncated,
            duration_ms: answer.duration_ms,
        }
    }

    /// A kept session may be gone since the last turn: then the tree's session is opened once, as
    /// long as nothing of this turn went with the lost one.
    fn fail(&mut self, fault: Fault) {
        // A kept session that was closed long ago may not even be known any more.
        let forgotten = self.kept && fault.code == FaultCode::NotFound && !self.used;
        let gone = fault.code == FaultCode::SessionLost || forgotten;
        if self.stage == Stage::Close {
            self.stage = Stage::Over;
            if !gone && fault.code != FaultCode::NotFound {
                self.failure.get_or_insert(fault);
            }
        } else if gone && !self.used && !self.reopened && self.stage != Stage::Open {
            self.reopened = true;
            self.stage = Stage::Open;
            self.note(&format!("[the session {} is gone; opening again]", self.session));
        } else {
            let open = self.stage != Stage::Open && !gone;
            self.failure = Some(fault);
            self.stage = if open && self.spec.closes() { Stage::Close } else { Stage::Over };
        }
    }

    /// Steps over stages that have nothing to do.
    fn settle(&mut self) {
        loop {
            self.stage = match self.stage {
                Stage::Write(from) if from >= self.spec.files.len() => Stage::Exec(0),
                Stage::Exec(index) if index >= self.spec.commands.len() => Stage::Read(0),
                Stage::Read(from) if from >= self.spec.read.len() => {
                    if self.spec.closes() {
                        Stage::Close
                    } else {
                        Stage::Over
                    }
                }
                _ => return,
            };
        }
    }

    fn ending(&self) -> Next {
        if let Some(fault) = &self.failure {
            return Next::Failed(Error {
                kind: ErrorKind::Agent,
                message: fault.message.clone(),
                source: Some(Box::new(fault.clone())),
            });
        }
        let output = Output {
            session_id: &self.session,
            results: &self.results,
            read: &self.read,
            read_truncated: &self.read_truncated,
            read_base64: &self.read_base64,
        };
        match serde_json::to_string(&output) {
            Ok(text) => Next::Output(text),
            Err(error) => Next::Failed(Error::new(ErrorKind::Agent, format!("the output is not JSON: {error}"))),
        }
    }
}

fn call(tool: &str, arguments: Value) -> ToolRequest {
    ToolRequest { name: format!("mcp__sandbox__{tool}"), arguments }
}

fn batch<T>(items: &[T], from: usize, request: impl Fn(&T) -> ToolRequest) -> Vec<ToolRequest> {
    items.iter().skip(from).take(BATCH).map(request).collect()
}

fn fault_of(output: &ToolOutput) -> Fault {
    serde_json::from_value(output.content["error"].clone()).unwrap_or_else(|_| Fault::internal(output.text()))
}
