//! The driver of one turn: model step, report, tools, report, and again.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{FuturesUnordered, StreamExt};
use hearth_models::{
    Delta, DeltaSink, ModelTurn, Models, RecordedStep, Step, StepInput, StopReason, ToolRequest, ToolResult,
    TurnContext,
};
use hearth_run_core::{RunSpec, StepRecord, StepReport, ToolReport, Turn};
use hearth_types::{CallId, FaultCode, Timestamp, ToolCall, ToolOutput, TraceContext, TurnError, TurnId};
use tokio::sync::{Semaphore, mpsc};
use tracing::Instrument;

use crate::{CallContext, LiveOutput, Tools, metrics};

/// The turn is no longer this driver's: it was cancelled, closed or taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// What the journal made of a tool's result.
#[derive(Debug, Clone, Default)]
pub struct ToolAck {
    pub at: Timestamp,
    /// Input that was steered in for the next step; known once all calls of the step are done.
    pub steered: Vec<String>,
}

/// Where a driver reports. A report that returned stands in the journal.
#[async_trait]
pub trait TurnPort: Send + Sync + 'static {
    /// `true`: the turn goes on with the calls of the step. `false`: it is over.
    async fn step(&self, report: StepReport) -> Result<bool, Stopped>;
    async fn tool(&self, report: ToolReport) -> Result<ToolAck, Stopped>;
    /// A live piece of the running step, for whoever watches.
    async fn delta(&self, turn_id: &TurnId, delta: Delta);
}

/// A turn to run, or to go on with.
#[derive(Debug, Clone)]
pub struct TurnStart {
    pub run: Arc<RunSpec>,
    pub turn: Turn,
    /// The conversation before this turn, where the model needs it.
    pub history: Vec<hearth_models::Message>,
    pub live: LiveOutput,
}

/// Runs turns. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    models: Arc<dyn Models>,
    tools: Tools,
    /// Model steps that run at once. A turn that waits for a child or a sandbox holds none.
    slots: Arc<Semaphore>,
}

/// Deltas that wait for the publisher; past it they are dropped, as the finished step supersedes them.
const DELTA_BUFFER: usize = 256;

struct Sink(mpsc::Sender<Delta>, LiveOutput);

impl DeltaSink for Sink {
    fn send(&self, delta: Delta) {
        if let Delta::Text(text) = &delta {
            self.1.push(text);
        }
        // A full buffer only costs the watchers a live piece.
        self.0.try_send(delta).ok();
    }
}

impl Engine {
    pub fn new(models: Arc<dyn Models>, tools: Tools, concurrent_steps: usize) -> Self {
        Self { models, tools, slots: Arc::new(Semaphore::new(concurrent_steps)) }
    }

    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Whether the agent's model wants the conversation.
    pub fn needs_history(&self, run: &RunSpec) -> bool {
        self.models.resolve(&run.agent).is_ok_and(|model| model.needs_history())
    }

    /// Drives a turn to its end, or until it is stopped. Dropping the future stops it at once; the
    /// work of its open calls is then ended by [`Tools::abandon`] or found again by a later driver.
    pub async fn drive(&self, start: TurnStart, port: Arc<dyn TurnPort>) -> Result<(), Stopped> {
        let span = tracing::info_span!(
            "turn",
            run_id = %start.run.run_id,
            turn_id = %start.turn.turn_id,
            agent = %start.run.agent.name,
            otel.kind = "internal",
        );
        if let Some(trace) = &start.turn.trace {
            hearth_telemetry::set_parent(&span, trace);
        }
        self.drive_inner(start, port).instrument(span).await
    }

    async fn drive_inner(&self, mut start: TurnStart, port: Arc<dyn TurnPort>) -> Result<(), Stopped> {
        start.live.clear();
        let turn_id = start.turn.turn_id.clone();
        let mut number = start.turn.steps.len();
        self.finish_open_calls(&mut start, &*port).await?;
        let mut model = match self.begin(&start) {
            Ok(model) => model,
            Err(error) => return report_error(&*port, &turn_id, String::new(), error).await,
        };
        let mut input = StepInput::default();
        loop {
            start.live.clear();
            let step = match self.step(&start, &mut *model, input, &*port).await {
                Ok(step) => step,
                Err(error) => return report_error(&*port, &turn_id, start.live.text(), error).await,
            };
            if let Some(deep) = step.tool_calls.iter().find(|call| hearth_types::is_too_deep(&call.arguments)) {
                let message = format!("the arguments of {} nest deeper than 128 levels", deep.name);
                let error = hearth_models::Error::new(hearth_models::ErrorKind::Invalid, message);
                return report_error(&*port, &turn_id, step.text, error).await;
            }
            let calls = name_calls(&start, number, &step.tool_calls);
            number += 1;
            let report = StepReport {
                turn_id: turn_id.clone(),
                thinking: step.thinking,
                text: step.text,
                calls: calls.clone(),
                usage: step.usage,
                truncated: step.stop == StopReason::MaxTokens,
                error: None,
            };
            if !port.step(report).await? || calls.is_empty() {
                return Ok(());
            }
            start.live.clear();
            let (results, steered) = self.run_calls(&start, calls, false, &*port).await?;
            input = StepInput { results, steered };
        }
    }

    fn begin(&self, start: &TurnStart) -> Result<Box<dyn ModelTurn>, hearth_models::Error> {
        let model = self.models.resolve(&start.run.agent)?;
        model.begin(TurnContext {
            run_id: start.run.run_id.clone(),
            turn_id: start.turn.turn_id.clone(),
            agent: start.run.agent.clone(),
            prompt: start.turn.prompt.clone(),
            started_at: start.turn.started_at,
            recorded: start.turn.steps.iter().map(recorded_step).collect(),
            history: start.history.clone(),
            sandbox_session: start.turn.sandbox_session.clone(),
            tools: if model.needs_history() { crate::schemas::offered(&start.run.agent) } else { Vec::new() },
        })
    }

    async fn step(
        &self,
        start: &TurnStart,
        model: &mut dyn ModelTurn,
        input: StepInput,
        port: &dyn TurnPort,
    ) -> Result<Step, hearth_models::Error> {
        metrics::STEPS_WAITING.inc();
        let slot = self.slots.acquire().await;
        metrics::STEPS_WAITING.dec();
        let started = tokio::time::Instant::now();
        let (sender, mut deltas) = mpsc::channel(DELTA_BUFFER);
        let sink = Sink(sender, start.live.clone());
        let agent = &start.run.agent;
        let span = tracing::info_span!(
            "model.step",
            gen_ai.operation.name = "chat",
            gen_ai.request.model = agent.model.as_deref().unwrap_or(&agent.name)
        );
        let mut told = false;
        let step = {
            let mut stepping = std::pin::pin!(model.step(input, &sink).instrument(span));
            loop {
                tokio::select! {
                    biased;
                    step = &mut stepping => break step,
                    Some(delta) = deltas.recv() => {
                        told = true;
                        port.delta(&start.turn.turn_id, delta).await;
                    }
                }
            }
        };
        // A step that came in one piece, all at once, says the same by itself.
        let said_by_the_step = !told && deltas.len() == 1 && step.is_ok();
        while let Ok(delta) = deltas.try_recv()
            && !said_by_the_step
        {
            port.delta(&start.turn.turn_id, delta).await;
        }
        drop(slot);
        let kind = if agent.code.is_some() { "code" } else { "model" };
        metrics::STEP_SECONDS.with_label_values(&[kind]).observe(started.elapsed().as_secs_f64());
        step
    }

    /// After a crash: the calls that the journal names but knows no result of.
    async fn finish_open_calls(&self, start: &mut TurnStart, port: &dyn TurnPort) -> Result<(), Stopped> {
        let open: Vec<ToolCall> = start.turn.open_calls().cloned().collect();
        if open.is_empty() {
            return Ok(());
        }
        let ids: Vec<CallId> = open.iter().map(|call| call.id.clone()).collect();
        let (results, steered) = self.run_calls(start, open, true, port).await?;
        if let Some(step) = start.turn.steps.last_mut() {
            for (id, result) in ids.iter().zip(results) {
                if let Some(record) = step.calls.iter_mut().find(|record| &record.call.id == id) {
                    record.result = Some((result.output, result.at));
                }
            }
            step.steered = steered;
        }
        Ok(())
    }

    /// Runs the calls of one step at once, reports each as it ends, and returns the results in the
    /// order of the calls.
    async fn run_calls(
        &self,
        start: &TurnStart,
        calls: Vec<ToolCall>,
        resumed: bool,
        port: &dyn TurnPort,
    ) -> Result<(Vec<ToolResult>, Vec<String>), Stopped> {
        let mut results: Vec<Option<ToolResult>> = vec![None; calls.len()];
        let mut steered = Vec::new();
        let mut running: FuturesUnordered<_> = calls
            .into_iter()
            .enumerate()
            .map(|(index, call)| async move { (index, call.id.clone(), self.run_call(start, call, resumed).await) })
            .collect();
        while let Some((index, call_id, output)) = running.next().await {
            let report = ToolReport { turn_id: start.turn.turn_id.clone(), call_id, output: output.clone() };
            let ack = port.tool(report).await?;
            if !ack.steered.is_empty() {
                steered = ack.steered;
            }
            if let Some(place) = results.get_mut(index) {
                *place = Some(ToolResult { output, at: ack.at });
            }
        }
        Ok((results.into_iter().flatten().collect(), steered))
    }

    async fn run_call(&self, start: &TurnStart, call: ToolCall, resumed: bool) -> ToolOutput {
        let span = tracing::info_span!(
            "tool.call",
            gen_ai.operation.name = "execute_tool",
            gen_ai.tool.name = %call.name,
            call_id = %call.id,
            resumed,
        );
        async {
            let trace = hearth_telemetry::current_trace().or_else(|| start.turn.trace.clone());
            let context = CallContext { run: start.run.clone(), turn_id: start.turn.turn_id.clone(), call, trace };
            Box::pin(self.tools.run(&context, resumed)).await
        }
        .instrument(span)
        .await
    }

    /// Ends the work of calls whose turn was cut off.
    pub async fn abandon(
        &self,
        run: &Arc<RunSpec>,
        turn_id: &TurnId,
        calls: Vec<ToolCall>,
        trace: Option<TraceContext>,
    ) {
        for call in calls {
            let context = CallContext { run: run.clone(), turn_id: turn_id.clone(), call, trace: trace.clone() };
            self.tools.abandon(&context).await;
        }
    }
}

/// Ids that come out the same whenever this step is run again.
fn name_calls(start: &TurnStart, step: usize, requests: &[ToolRequest]) -> Vec<ToolCall> {
    let (run, turn) = (start.run.run_id.as_str(), start.turn.turn_id.as_str());
    let named = requests.iter().enumerate().map(|(index, request)| ToolCall {
        id: CallId::derive(&[run, turn, &step.to_string(), &index.to_string()]),
        name: request.name.clone(),
        arguments: request.arguments.clone(),
    });
    named.collect()
}

fn recorded_step(step: &StepRecord) -> RecordedStep {
    let requests = step
        .calls
        .iter()
        .map(|record| ToolRequest { name: record.call.name.clone(), arguments: record.call.arguments.clone() });
    let results = step.calls.iter().filter_map(|record| record.result.clone());
    RecordedStep {
        step: Step {
            thinking: step.thinking.clone(),
            text: step.text.clone(),
            tool_calls: requests.collect(),
            usage: step.usage,
            stop: StopReason::ToolUse,
        },
        results: results.map(|(output, at)| ToolResult { output, at }).collect(),
        steered: step.steered.clone(),
    }
}

async fn report_error(
    port: &dyn TurnPort,
    turn_id: &TurnId,
    text: String,
    error: hearth_models::Error,
) -> Result<(), Stopped> {
    let code = match error.kind {
        // What fails of a program is in the definition or in the prompt, and so the caller's to change;
        // `internal` would call it a bug of Hearth, and nothing else in the contract is not retryable.
        hearth_models::ErrorKind::Invalid | hearth_models::ErrorKind::Agent => FaultCode::InvalidArgument,
        hearth_models::ErrorKind::Transient => FaultCode::Unavailable,
        hearth_models::ErrorKind::Refused => FaultCode::PermissionDenied,
    };
    let code = error.code().unwrap_or(code);
    let report = StepReport {
        turn_id: turn_id.clone(),
        thinking: String::new(),
        text,
        calls: Vec::new(),
        usage: hearth_types::Usage::default(),
        truncated: false,
        error: Some(TurnError { code, message: error.message }),
    };
    port.step(report).await.map(|_| ())
}
