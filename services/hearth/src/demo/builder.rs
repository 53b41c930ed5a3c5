//! The resident builder: a `dev/exec` child and the prompts it understands.

use std::collections::BTreeMap;
use std::time::Duration;

use hearth_client::{Answer, Client, OpenResident, Send};
use hearth_types::{Envelope, RunId, TurnId, TurnOutcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::project::SourceFile;
use super::trouble::Trouble;

pub const AGENT: &str = "dev/exec";
pub const WORKSPACE: &str = "demo";
const COMMAND_SECONDS: u64 = 240;

/// One prompt: files are written first, then the commands run, then files are read.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Work {
    pub workspace: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<SourceFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    pub timeout_seconds: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_open: bool,
}

impl Work {
    pub fn command(command: impl Into<String>) -> Self {
        Self {
            workspace: WORKSPACE,
            commands: vec![command.into()],
            timeout_seconds: COMMAND_SECONDS,
            ..Self::default()
        }
    }

    #[must_use]
    pub fn with_files(mut self, files: Vec<SourceFile>) -> Self {
        self.files = files;
        self
    }

    #[must_use]
    pub fn reading(mut self, path: &str) -> Self {
        self.read.push(path.to_owned());
        self
    }

    pub fn prompt(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// What a turn of `dev/exec` puts out.
#[derive(Debug, Clone, Deserialize)]
pub struct Report {
    pub session_id: Option<String>,
    #[serde(default)]
    pub results: Vec<CommandReport>,
    #[serde(default)]
    pub read: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct CommandReport {
    pub exit_code: Option<i32>,
    pub output: String,
    pub timed_out: bool,
    pub duration_ms: u64,
}

/// One turn that has ended.
#[derive(Debug, Clone)]
pub struct Turn {
    pub turn_id: TurnId,
    pub report: Report,
    /// From the call to its answer, as the caller sees it.
    pub round_trip: Duration,
}

impl Turn {
    pub fn read(doing: &'static str, envelope: &Envelope, round_trip: Duration) -> Result<Self, Trouble> {
        if envelope.outcome != Some(TurnOutcome::Finished) {
            let why = envelope.error.as_ref().map_or(String::new(), |error| format!(": {}", error.message));
            let outcome = envelope.outcome.map_or("none", TurnOutcome::as_str);
            return Err(Trouble::answer(doing, format!("the turn's outcome is {outcome}{why}")));
        }
        let report = serde_json::from_str(&envelope.output)
            .map_err(|error| Trouble::answer(doing, format!("{error} in {:?}", envelope.output)))?;
        let turn_id = envelope.turn_id.clone().ok_or_else(|| Trouble::answer(doing, "the answer names no turn"))?;
        Ok(Self { turn_id, report, round_trip })
    }

    /// The last command's result: the one that failed, if one did.
    pub fn last(&self) -> Option<&CommandReport> {
        self.report.results.last()
    }

    pub fn output(&self) -> &str {
        self.last().map_or("", |result| result.output.as_str())
    }

    pub fn exit_code(&self) -> Option<i32> {
        self.last().filter(|result| !result.timed_out).and_then(|result| result.exit_code)
    }

    pub fn succeeded(&self) -> bool {
        self.exit_code() == Some(0)
    }

    /// The commands alone.
    pub fn duration(&self) -> Duration {
        Duration::from_millis(self.report.results.iter().map(|result| result.duration_ms).sum())
    }
}

/// The resident, from outside.
#[derive(Clone)]
pub struct Builder {
    pub client: Client,
    pub run: RunId,
}

impl Builder {
    /// Opens it below `parent` with its first work.
    pub async fn open(client: &Client, parent: &RunId, work: &Work) -> Result<(Self, Turn), Trouble> {
        let request = OpenResident {
            agent: AGENT.to_owned(),
            prompt: work.prompt(),
            parent_run_id: Some(parent.to_string()),
            ..OpenResident::default()
        };
        let began = Instant::now();
        let answer = client.open(&request).await.map_err(Trouble::call("opening the builder"))?;
        let turn = Turn::read("opening the builder", &answer.body, began.elapsed())?;
        Ok((Self { client: client.clone(), run: answer.body.run_id }, turn))
    }

    pub async fn send(&self, doing: &'static str, work: &Work) -> Result<Turn, Trouble> {
        let began = Instant::now();
        let answer = self.call(doing, work).await?;
        Turn::read(doing, &answer.body, began.elapsed())
    }

    /// The answer as it came, for those who look at more than the result.
    pub async fn call(&self, doing: &'static str, work: &Work) -> Result<Answer<Envelope>, Trouble> {
        let request = Send { prompt: work.prompt(), ..Send::default() };
        self.client.send(self.run.as_str(), &request).await.map_err(Trouble::call(doing))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn envelope(outcome: &str, output: &str) -> Envelope {
        let body = json!({ "run_id": "run_1", "state": "awaiting_input", "turn_id": "turn_1", "outcome": outcome,
            "output": output, "truncated": false });
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn a_turn_is_read_from_what_dev_exec_puts_out() {
        let output = r#"{"session_id":"sbx_1","results":[
            {"command":"true","exit_code":0,"output":"","timed_out":false,"truncated":false,"duration_ms":20},
            {"command":"false","exit_code":1,"output":"no","timed_out":false,"truncated":false,"duration_ms":30}],
            "read":{"a":"b"}}"#;
        let turn = Turn::read("x", &envelope("finished", output), Duration::ZERO).unwrap();
        assert_eq!((turn.exit_code(), turn.output(), turn.succeeded()), (Some(1), "no", false));
        assert_eq!(turn.duration(), Duration::from_millis(50));
        assert_eq!(turn.report.read["a"], "b");
    }

    #[test]
    fn a_turn_that_did_not_finish_is_trouble() {
        assert!(Turn::read("x", &envelope("failed", ""), Duration::ZERO).is_err());
        assert!(Turn::read("x", &envelope("finished", "not json"), Duration::ZERO).is_err());
    }

    #[test]
    fn a_prompt_holds_only_what_is_asked() {
        assert_eq!(
            Work::command("make").reading("log").prompt(),
            r#"{"workspace":"demo","commands":["make"],"read":["log"],"timeout_seconds":240}"#
        );
    }
}
