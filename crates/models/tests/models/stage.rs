//! Plays turns: the engine's part, without an engine.

use std::sync::{Arc, Mutex};

use hearth_models::{
    BuiltInModels, BuiltInOptions, CodeBounds, CodeWorker, Delta, DeltaSink, Error, ModelTurn, Models, RecordedStep,
    Step, StepInput, StopReason, ToolRequest, ToolResult, TurnContext,
};
use hearth_types::{AgentDefinition, RunId, Timestamp, ToolOutput, TurnId};
use serde_json::Value;

pub const STARTED_AT: Timestamp = Timestamp::from_millis(1_764_511_200_000);

#[derive(Debug, Default)]
pub struct Deltas(Mutex<Vec<Delta>>);

impl DeltaSink for Deltas {
    fn send(&self, delta: Delta) {
        self.0.lock().unwrap().push(delta);
    }
}

impl Deltas {
    pub fn texts(&self) -> Vec<String> {
        self.pick(|delta| if let Delta::Text(text) = delta { Some(text.clone()) } else { None })
    }

    pub fn thinking(&self) -> String {
        self.pick(|delta| if let Delta::Thinking(text) = delta { Some(text.clone()) } else { None }).concat()
    }

    fn pick(&self, of: impl Fn(&Delta) -> Option<String>) -> Vec<String> {
        self.0.lock().unwrap().iter().filter_map(of).collect()
    }
}

/// Set where the programs of all tests are to run in a worker process.
pub const IN_WORKER: &str = "HEARTH_TEST_CODE_IN_WORKER";

/// This test program again, as a worker.
pub fn worker() -> CodeWorker {
    let arguments = ["--exact", "worker::the_worker_process", "--ignored", "--nocapture"];
    CodeWorker {
        program: std::env::current_exe().unwrap(),
        arguments: arguments.map(Into::into).to_vec(),
        environment: std::env::vars_os().filter(|(name, _)| name == "TZ").collect(),
    }
}

pub fn models() -> BuiltInModels {
    bounded(CodeBounds::default())
}

pub fn bounded(bounds: CodeBounds) -> BuiltInModels {
    let code_worker = std::env::var_os(IN_WORKER).map(|_| worker());
    BuiltInModels::new(BuiltInOptions { code: bounds, code_worker, ..BuiltInOptions::default() })
}

pub fn named(name: &str) -> AgentDefinition {
    AgentDefinition { name: name.to_owned(), ..AgentDefinition::default() }
}

pub fn coded(code: &str) -> AgentDefinition {
    AgentDefinition { code: Some(code.to_owned()), ..named("coded") }
}

pub fn context(agent: &AgentDefinition, prompt: &str) -> TurnContext {
    TurnContext {
        run_id: RunId::derive(&["run"]),
        turn_id: TurnId::derive(&["turn"]),
        agent: Arc::new(agent.clone()),
        prompt: prompt.to_owned(),
        started_at: STARTED_AT,
        recorded: Vec::new(),
        history: Vec::new(),
        sandbox_session: None,
        tools: Vec::new(),
    }
}

pub fn begin(models: &BuiltInModels, context: TurnContext) -> Result<Box<dyn ModelTurn>, Error> {
    models.resolve(&context.agent)?.begin(context)
}

/// A result, a second later than the one before.
pub fn result(number: usize, output: ToolOutput) -> ToolResult {
    ToolResult { output, at: Timestamp::from_millis(STARTED_AT.as_millis() + 1_000 * (number as i64 + 1)) }
}

/// The journal's form and back, as a crash does it.
pub fn journaled(steps: &[RecordedStep]) -> Vec<RecordedStep> {
    let through = |step: &RecordedStep| RecordedStep {
        step: serde_json::from_str(&serde_json::to_string(&step.step).unwrap()).unwrap(),
        results: serde_json::from_str(&serde_json::to_string(&step.results).unwrap()).unwrap(),
        steered: step.steered.clone(),
    };
    steps.iter().map(through).collect()
}

/// A turn that was played to its end.
#[derive(Debug)]
pub struct Played {
    pub recorded: Vec<RecordedStep>,
    pub ending: Result<Step, Error>,
    pub deltas: Deltas,
}

impl Played {
    pub fn text(&self) -> &str {
        &self.ending.as_ref().expect("the turn finishes").text
    }

    pub fn error(&self) -> &Error {
        self.ending.as_ref().expect_err("the turn fails")
    }

    pub fn calls(&self) -> Vec<&ToolRequest> {
        self.recorded.iter().flat_map(|recorded| &recorded.step.tool_calls).collect()
    }
}

/// Plays the turn on from what is recorded; `answer` stands for the tools.
pub async fn play_on(
    models: &BuiltInModels,
    context: TurnContext,
    mut answer: impl FnMut(&ToolRequest) -> ToolOutput,
) -> Played {
    let mut recorded = context.recorded.clone();
    let deltas = Deltas::default();
    let mut turn = match begin(models, context) {
        Ok(turn) => turn,
        Err(error) => return Played { recorded, ending: Err(error), deltas },
    };
    let mut input = StepInput::default();
    loop {
        match turn.step(std::mem::take(&mut input), &deltas).await {
            Ok(step) if step.stop == StopReason::ToolUse => {
                let first: usize = recorded.iter().map(|recorded| recorded.results.len()).sum();
                let outputs = step.tool_calls.iter().map(&mut answer);
                let results: Vec<ToolResult> =
                    outputs.enumerate().map(|(index, output)| result(first + index, output)).collect();
                input.results = results.clone();
                recorded.push(RecordedStep { step, results, steered: Vec::new() });
            }
            ending => return Played { recorded, ending, deltas },
        }
    }
}

pub async fn play(agent: &AgentDefinition, prompt: &str, answer: impl FnMut(&ToolRequest) -> ToolOutput) -> Played {
    play_on(&models(), context(agent, prompt), answer).await
}

/// For programs that make no call.
pub async fn run(code: &str, input: &str) -> Played {
    play(&coded(code), input, |request| panic!("no call was expected: {request:?}")).await
}

pub fn echo(request: &ToolRequest) -> ToolOutput {
    ToolOutput::ok(request.arguments.clone())
}

pub fn ok(content: Value) -> ToolOutput {
    ToolOutput::ok(content)
}
