//! The `Agent` tool, carried out by the same use cases that serve the other surfaces.

use std::sync::Weak;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::StreamExt;
use hearth_engine::{AgentOp, CallContext, Delegate, Open, Spawn};
use hearth_run_core::{Accept, ChildKind, KeyUse};
use hearth_types::{
    Envelope, Fault, FaultCode, InputMode, Principal, Role, RunId, SandboxSpec, TurnId, TurnOutcome, limits,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::residents::ChildWishes;
use crate::start::Begun;
use crate::{Caller, Cancel, Close, Hearth, ListRuns, Poll, check};

/// Leads from the engine back to the use cases. Holds them weakly, as they hold the engine.
pub struct AgentTool {
    hearth: std::sync::OnceLock<WeakHearth>,
}

struct WeakHearth {
    deps: Weak<crate::hearth::Deps>,
    options: crate::hearth::Options,
    catalogues: std::sync::Arc<crate::catalog::Catalogues>,
    identities: std::sync::Arc<crate::identities::Identities>,
}

impl Default for AgentTool {
    fn default() -> Self {
        Self { hearth: std::sync::OnceLock::new() }
    }
}

impl AgentTool {
    /// To be called once, before the first turn.
    pub fn connect(&self, hearth: &Hearth) {
        let weak = WeakHearth {
            deps: std::sync::Arc::downgrade(&hearth.deps),
            options: hearth.options.clone(),
            catalogues: hearth.catalogues.clone(),
            identities: hearth.identities.clone(),
        };
        self.hearth.set(weak).ok();
    }

    fn hearth(&self) -> Result<Hearth, Fault> {
        let gone = || Fault::new(FaultCode::Draining, "this replica is being stopped");
        let weak = self.hearth.get().ok_or_else(gone)?;
        Ok(Hearth {
            deps: weak.deps.upgrade().ok_or_else(gone)?,
            options: weak.options.clone(),
            catalogues: weak.catalogues.clone(),
            identities: weak.identities.clone(),
        })
    }
}

#[async_trait]
impl Delegate for AgentTool {
    async fn run(&self, context: &CallContext, op: AgentOp) -> Result<Value, Fault> {
        let hearth = self.hearth()?;
        let caller = caller_of(context);
        match op {
            AgentOp::Spawn(spawn) => hearth.spawn(context, 0, spawn).await.map(Value::String),
            AgentOp::ParallelSpawn(spawns) => hearth.parallel_spawn(context, spawns).await,
            AgentOp::Open(open) => to_json(hearth.open_from(context, open).await?),
            AgentOp::Send(send) => {
                check::prompt("prompt", &send.prompt)?;
                let wait = check::wait("timeout_ms", send.timeout_ms)?;
                to_json(hearth.send_from(context, &caller, send.child_run_id.as_str(), send.prompt, wait).await?)
            }
            AgentOp::Poll(poll) => {
                let request = Poll { timeout_ms: poll.timeout_ms, turn_id: poll.turn_id };
                to_json(hearth.poll(&caller, poll.child_run_id.as_str(), request).await?)
            }
            AgentOp::Cancel(cancel) => {
                let request = Cancel { reason: Some("cancelled by the parent".to_owned()), turn_id: cancel.turn_id };
                to_json(hearth.cancel(&caller, cancel.child_run_id.as_str(), request, true).await?.body)
            }
            AgentOp::Close(close) => {
                let request = Close { reason: Some("closed by the parent".to_owned()) };
                let closed = hearth.close(&caller, close.child_run_id.as_str(), request, true).await?.body;
                to_json(closed)
            }
            AgentOp::List => {
                let request = ListRuns {
                    parent_run_id: Some(context.run.run_id.clone()),
                    limit: Some(limits::LIST_LIMIT_MAX),
                    ..ListRuns::default()
                };
                let page = hearth.list_residents(&caller, request).await?;
                Ok(json!({ "resident": page.items, "as_of": page.as_of }))
            }
        }
    }

    async fn overrides(&self, context: &CallContext) -> Result<Vec<SandboxSpec>, Fault> {
        let hearth = self.hearth()?;
        hearth.overrides_of(Some(context.run.run_id.clone())).await
    }

    /// The spawned children of a cut-off turn are closed by its run; residents live on, and what was
    /// sent to them goes on.
    async fn abandon(&self, _context: &CallContext, _op: AgentOp) {}
}

/// Inside a run the caller is the run itself.
fn caller_of(context: &CallContext) -> Caller {
    let principal =
        Principal { tenant: context.run.tenant.clone(), subject: context.run.subject.clone(), role: Role::Member };
    Caller { principal, run: Some(context.run.run_id.clone()), key: None, trace: context.trace.clone() }
}

pub(crate) fn to_json(value: impl serde::Serialize) -> Result<Value, Fault> {
    serde_json::to_value(value).map_err(|error| Fault::internal(error.to_string()))
}

/// Why a spawned child has no text to return.
pub(crate) fn failed(envelope: &Envelope) -> Fault {
    let outcome = envelope.outcome.map_or("unknown", TurnOutcome::as_str);
    match &envelope.error {
        Some(error) => Fault::new(error.code, format!("the child's turn ended {outcome}: {}", error.message)),
        None => Fault::new(
            FaultCode::RunEnded,
            format!(
                "the child ended {} with its turn {outcome}; its output so far: {}",
                envelope.state.as_str(),
                envelope.output
            ),
        ),
    }
}

/// Runs several spawns, `width` at a time; the results in the order of the spawns.
pub(crate) async fn in_order<F>(spawns: Vec<Spawn>, width: usize, spawn: impl Fn(usize, Spawn) -> F) -> Value
where
    F: Future<Output = Result<String, Fault>>,
{
    let running = spawns.into_iter().enumerate().map(|(index, wanted)| {
        let agent = wanted.name.clone();
        let spawned = spawn(index, wanted);
        async move {
            match spawned.await {
                Ok(output) => json!({ "index": index, "agent": agent, "ok": true, "output": output }),
                Err(fault) => {
                    let error = fault.to_body()["error"].clone();
                    json!({ "index": index, "agent": agent, "ok": false, "error": error })
                }
            }
        }
    });
    let width = width.clamp(1, limits::PARALLEL_SPAWN_WIDTH);
    let results: Vec<Value> = futures::stream::iter(running).buffered(width).collect().await;
    json!({ "results": results })
}

impl Hearth {
    async fn child_from(
        &self,
        context: &CallContext,
        index: usize,
        kind: ChildKind,
        open: Open,
    ) -> Result<Begun, Fault> {
        check::prompt("prompt", &open.prompt)?;
        check::sandbox(open.isolation, open.sandbox.as_ref())?;
        let agent = self.agent(&context.run.tenant, &open.name, open.def_id.as_deref()).await?;
        let (parent, _) = self.residents().look(&context.run.run_id).await?;
        let wishes = ChildWishes {
            run_id: RunId::derive(&["child", &context.derive("child"), &index.to_string()]),
            agent,
            kind,
            call_id: Some(context.call.id.clone()),
            key: None,
            idle_ttl: check::seconds("idle_ttl_seconds", open.idle_ttl_seconds)?,
            isolation: open.isolation,
            sandbox: open.sandbox,
            trace: hearth_telemetry::current_trace().or_else(|| context.trace.clone()),
        };
        self.open_child(&parent, wishes, open.prompt, Some(context.turn_id.clone())).await
    }

    async fn open_from(&self, context: &CallContext, open: Open) -> Result<Envelope, Fault> {
        let wait = check::wait("timeout_ms", open.timeout_ms)?;
        let begun = self.child_from(context, 0, ChildKind::Resident, open).await?;
        self.await_for(&begun.run_id, &begun.turn_id, wait).await
    }

    async fn spawn(&self, context: &CallContext, index: usize, spawn: Spawn) -> Result<String, Fault> {
        let open = Open {
            name: spawn.name,
            prompt: spawn.prompt,
            def_id: spawn.def_id,
            idle_ttl_seconds: None,
            timeout_ms: None,
            isolation: None,
            sandbox: None,
        };
        let begun = self.child_from(context, index, ChildKind::Spawn, open).await?;
        let envelope = self.await_for(&begun.run_id, &begun.turn_id, None).await?;
        match envelope.outcome {
            Some(TurnOutcome::Finished) => Ok(envelope.output),
            _ => Err(failed(&envelope)),
        }
    }

    async fn parallel_spawn(&self, context: &CallContext, spawns: Vec<Spawn>) -> Result<Value, Fault> {
        let asked = context.run.agent.max_concurrent_children.map_or(limits::PARALLEL_SPAWN_WIDTH, |n| n as usize);
        Ok(in_order(spawns, asked, |index, spawn| self.spawn(context, index, spawn)).await)
    }

    /// A send whose turn is named by the call, so that a repeat after a crash finds it.
    async fn send_from(
        &self,
        context: &CallContext,
        caller: &Caller,
        child: &str,
        prompt: String,
        wait: Option<Duration>,
    ) -> Result<Envelope, Fault> {
        let head = self.run_for(caller, child).await?;
        let key = KeyUse { id: context.derive("send"), digest: String::new() };
        let accept = Accept {
            turn_id: TurnId::derive(&["turn", head.run_id.as_str(), &key.id]),
            prompt,
            mode: InputMode::Queue,
            key: Some(key),
            trace: hearth_telemetry::current_trace().or_else(|| context.trace.clone()),
        };
        let (begun, most) = (Instant::now(), wait.unwrap_or(Duration::MAX));
        let (accepted, ended) = self.residents().accept_and_wait(&head.run_id, accept, most).await?;
        match ended {
            Some(envelope) => Ok(envelope),
            None => {
                let rest = wait.map(|wait| wait.saturating_sub(begun.elapsed()));
                self.await_for(&head.run_id, &accepted.turn_id, rest).await
            }
        }
    }
}
