//! The agents of the simulation: a prompt is a script, and what a turn puts out shows that each of its
//! calls had its result and each steered word was heard.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hearth_models::{
    Delta, DeltaSink, Error, ErrorKind, Model, ModelTurn, Models, Step, StepInput, StopReason, ToolRequest, ToolResult,
    TurnContext,
};
use hearth_types::{AgentDefinition, SeededRandom, ToolPattern, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub const AGENT: &str = "script";
const SANDBOX_OPEN: &str = "mcp__sandbox__sandbox_open";
const SANDBOX_EXEC: &str = "mcp__sandbox__sandbox_exec";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Names the turn for ever.
    pub label: String,
    pub steps: Vec<StepScript>,
    /// Milliseconds of the last step.
    pub ms: u64,
    pub fails: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepScript {
    pub ms: u64,
    pub calls: Vec<Call>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Call {
    SandboxOpen,
    /// Runs for so many milliseconds in the session that was opened; without one, lists.
    Exec(u64),
    Spawn(Box<Script>),
    Parallel(Vec<Script>),
    Open(Box<Script>, u64),
    /// To the child that was opened last; without one, lists.
    Send(Box<Script>, u64),
    Poll,
    Cancel,
    Close,
    List,
    /// A tool that there is not.
    Unknown,
}

impl Script {
    pub fn calls(&self) -> usize {
        self.steps.iter().map(|step| step.calls.len()).sum()
    }

    pub fn prompt(&self) -> String {
        serde_json::to_string(self).unwrap()
    }

    /// A script for a run that has so many levels below it.
    pub fn draw(random: &SeededRandom, label: String, levels: u32) -> Self {
        let long = |random: &SeededRandom| match random.below(20) {
            0..12 => random.below(60),
            12..19 => random.below(600),
            _ => random.below(4_000),
        };
        let steps = match random.below(10) {
            0..4 => 0,
            4..7 => 1,
            7..9 => 2,
            _ => 3,
        };
        let mut script = Self { steps: Vec::new(), ms: long(random), fails: random.below(20) == 0, label };
        for step in 0..steps {
            let width = 1 + random.below(3);
            let calls = (0..width).map(|index| {
                let label = format!("{}.{step}{index}", script.label);
                Call::draw(random, label, levels)
            });
            script.steps.push(StepScript { ms: long(random), calls: calls.collect() });
        }
        if script.steps.iter().flat_map(|step| &step.calls).any(|call| matches!(call, Call::Exec(_))) {
            script.steps.insert(0, StepScript { ms: 0, calls: vec![Call::SandboxOpen] });
        }
        script
    }
}

impl Call {
    fn draw(random: &SeededRandom, label: String, levels: u32) -> Self {
        let wait = |random: &SeededRandom| if random.below(2) == 0 { 0 } else { 1 + random.below(500) };
        if levels == 0 {
            return if random.below(5) == 0 { Self::List } else { Self::Exec(random.below(800)) };
        }
        let child = |label: String| Box::new(Script::draw(random, label, levels - 1));
        match random.below(16) {
            0..5 => Self::Exec(random.below(800)),
            5..7 => Self::Spawn(child(label)),
            7 => Self::Parallel((0..1 + random.below(3)).map(|n| *child(format!("{label}p{n}"))).collect()),
            8..11 => Self::Open(child(label), wait(random)),
            11 => Self::Send(child(label), wait(random)),
            12 => Self::Poll,
            13 => Self::Cancel,
            14 => Self::Close,
            _ => Self::Unknown,
        }
    }

    fn request(&self, label: &str, seen: &Seen) -> ToolRequest {
        let agent = |arguments: Value| ToolRequest { name: "Agent".into(), arguments };
        let list = || agent(json!({ "op": "list" }));
        let of_child = |op: &str| match &seen.child {
            Some(child) => agent(json!({ "op": op, "child_run_id": child })),
            None => list(),
        };
        match self {
            Self::SandboxOpen => ToolRequest { name: SANDBOX_OPEN.into(), arguments: json!({}) },
            Self::Exec(ms) => match &seen.session {
                Some(session) => {
                    let arguments = json!({ "session_id": session, "command": format!("{label} {ms}") });
                    ToolRequest { name: SANDBOX_EXEC.into(), arguments }
                }
                None => list(),
            },
            Self::Spawn(script) => agent(json!({ "op": "spawn", "name": AGENT, "prompt": script.prompt() })),
            Self::Parallel(scripts) => {
                let spawns: Vec<Value> =
                    scripts.iter().map(|script| json!({ "name": AGENT, "prompt": script.prompt() })).collect();
                agent(json!({ "op": "parallel_spawn", "spawns": spawns }))
            }
            Self::Open(script, wait) => {
                agent(json!({ "op": "open", "name": AGENT, "prompt": script.prompt(), "timeout_ms": wait }))
            }
            Self::Send(script, wait) => match &seen.child {
                Some(child) => {
                    agent(json!({ "op": "send", "child_run_id": child, "prompt": script.prompt(), "timeout_ms": wait }))
                }
                None => list(),
            },
            Self::Poll => of_child("poll"),
            Self::Cancel => of_child("cancel"),
            Self::Close => of_child("close"),
            Self::List => list(),
            Self::Unknown => ToolRequest { name: "mcp__sandbox__nothing".into(), arguments: json!({}) },
        }
    }
}

/// What the script has learned from results.
#[derive(Default)]
struct Seen {
    results: usize,
    session: Option<String>,
    child: Option<String>,
    steered: Vec<String>,
}

impl Seen {
    fn learn(&mut self, results: &[ToolResult], steered: &[String]) {
        self.results += results.len();
        for result in results {
            let text = |field: &str| result.output.content.get(field).and_then(Value::as_str).map(str::to_owned);
            self.session = text("session_id").or(self.session.take());
            self.child = text("child_run_id").or(self.child.take());
        }
        self.steered.extend_from_slice(steered);
    }
}

/// Whether a finished turn put out what its prompt asks for.
pub fn check_output(prompt: &str, output: &str) -> Result<(), String> {
    let expected = match serde_json::from_str::<Script>(prompt) {
        Ok(script) => format!("{} results:{} heard:", script.label, script.calls()),
        Err(_) => format!("echo {prompt}"),
    };
    if output.starts_with(&expected) { Ok(()) } else { Err(format!("put out {output:?}, not {expected:?}")) }
}

pub fn definition() -> AgentDefinition {
    let tools = vec![ToolPattern("Agent".into()), ToolPattern("mcp__sandbox__*".into())];
    AgentDefinition { name: AGENT.into(), tools, ..AgentDefinition::default() }
}

pub struct Scripts;

impl Models for Scripts {
    fn resolve(&self, _agent: &AgentDefinition) -> Result<Arc<dyn Model>, Error> {
        Ok(Arc::new(Scripts))
    }
}

impl Model for Scripts {
    fn needs_history(&self) -> bool {
        false
    }

    fn begin(&self, turn: TurnContext) -> Result<Box<dyn ModelTurn>, Error> {
        let mut seen = Seen::default();
        for step in &turn.recorded {
            seen.learn(&step.results, &step.steered);
        }
        let script = serde_json::from_str(&turn.prompt).ok();
        Ok(Box::new(ScriptTurn { script, prompt: turn.prompt, next: turn.recorded.len(), seen }))
    }
}

struct ScriptTurn {
    script: Option<Script>,
    prompt: String,
    next: usize,
    seen: Seen,
}

#[async_trait]
impl ModelTurn for ScriptTurn {
    async fn step(&mut self, input: StepInput, sink: &dyn DeltaSink) -> Result<Step, Error> {
        self.seen.learn(&input.results, &input.steered);
        let usage = Usage { input_tokens: 1, output_tokens: 1 };
        let step = |text: String, tool_calls: Vec<ToolRequest>, stop| Step {
            thinking: String::new(),
            text,
            tool_calls,
            usage,
            stop,
        };
        let Some(script) = &self.script else {
            return Ok(step(format!("echo {}", self.prompt), Vec::new(), StopReason::EndTurn));
        };
        let number = self.next;
        self.next += 1;
        if let Some(planned) = script.steps.get(number) {
            tokio::time::sleep(Duration::from_millis(planned.ms)).await;
            let text = format!("{} step {number}", script.label);
            sink.send(Delta::Text(text.clone()));
            let calls = planned.calls.iter().enumerate();
            let calls =
                calls.map(|(index, call)| call.request(&format!("{}:{number}:{index}", script.label), &self.seen));
            return Ok(step(text, calls.collect(), StopReason::ToolUse));
        }
        sink.send(Delta::Text(script.label.clone()));
        tokio::time::sleep(Duration::from_millis(script.ms)).await;
        if script.fails {
            return Err(Error::new(ErrorKind::Transient, "the script fails"));
        }
        let heard = self.seen.steered.join("|");
        let output = format!("{} results:{} heard:{heard}", script.label, self.seen.results);
        sink.send(Delta::Text(output[script.label.len()..].to_owned()));
        Ok(step(output, Vec::new(), StopReason::EndTurn))
    }
}

/// The label of a prompt that is a script, else the prompt.
pub fn label_of(prompt: &str) -> String {
    serde_json::from_str::<Script>(prompt).map_or_else(|_| prompt.to_owned(), |script| script.label)
}
