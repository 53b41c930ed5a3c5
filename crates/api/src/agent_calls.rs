//! The `Agent` tool for callers with a token: the same operations, on runs that have no parent.

use hearth_engine::{AgentOp, Open, Spawn};
use hearth_types::{Fault, Role, TurnOutcome, limits};
use serde_json::{Value, json};

use crate::delegate::{failed, in_order, to_json};
use crate::start::Wishes;
use crate::{Answer, Caller, Cancel, Close, Hearth, ListRuns, Poll, Send, check};

impl Hearth {
    /// Carries out one operation. What `spawn` returns as text is `output` here, as results are objects.
    pub async fn agent_call(&self, caller: &Caller, op: AgentOp) -> Result<Value, Fault> {
        match op {
            AgentOp::Spawn(spawn) => Ok(json!({ "output": self.spawn_root(caller, spawn).await? })),
            AgentOp::ParallelSpawn(spawns) => {
                Ok(in_order(spawns, limits::PARALLEL_SPAWN_WIDTH, |_, spawn| self.spawn_root(caller, spawn)).await)
            }
            AgentOp::Open(open) => self.open_root(caller, open).await,
            AgentOp::Send(send) => {
                let request = Send { prompt: send.prompt, timeout_ms: send.timeout_ms };
                body(self.send(caller, send.child_run_id.as_str(), request).await?)
            }
            AgentOp::Poll(poll) => {
                let request = Poll { timeout_ms: poll.timeout_ms, turn_id: poll.turn_id };
                to_json(self.poll(caller, poll.child_run_id.as_str(), request).await?)
            }
            AgentOp::Cancel(cancel) => {
                let request = Cancel { reason: None, turn_id: cancel.turn_id };
                body(self.cancel(caller, cancel.child_run_id.as_str(), request, true).await?)
            }
            AgentOp::Close(close) => {
                body(self.close(caller, close.child_run_id.as_str(), Close::default(), true).await?)
            }
            AgentOp::List => self.own_residents(caller).await,
        }
    }

    async fn spawn_root(&self, caller: &Caller, spawn: Spawn) -> Result<String, Fault> {
        check::prompt("prompt", &spawn.prompt)?;
        let agent = self.agent(&caller.principal.tenant, &spawn.name, spawn.def_id.as_deref()).await?;
        let spec = self.root_spec(caller, Self::new_run_id(None), agent, Wishes::default());
        let begun = self.begin(spec, spawn.prompt).await?;
        let envelope = self.await_for(&begun.run_id, &begun.turn_id, None).await?;
        match envelope.outcome {
            Some(TurnOutcome::Finished) => Ok(envelope.output),
            // Said by the run, not by this program: it is shown whatever its code.
            _ => Err(failed(&envelope).with_details(json!({ "run_id": envelope.run_id }))),
        }
    }

    async fn open_root(&self, caller: &Caller, open: Open) -> Result<Value, Fault> {
        let wait = check::wait("timeout_ms", open.timeout_ms)?;
        check::prompt("prompt", &open.prompt)?;
        check::sandbox(open.isolation, open.sandbox.as_ref())?;
        let idle_ttl = check::seconds("idle_ttl_seconds", open.idle_ttl_seconds)?;
        let agent = self.agent(&caller.principal.tenant, &open.name, open.def_id.as_deref()).await?;
        let wishes = Wishes {
            interactive: true,
            idle_ttl,
            isolation: open.isolation,
            sandbox: open.sandbox,
            ..Wishes::default()
        };
        let spec = self.root_spec(caller, Self::new_run_id(None), agent, wishes);
        let begun = self.begin(spec, open.prompt).await?;
        to_json(self.await_for(&begun.run_id, &begun.turn_id, wait).await?)
    }

    /// The caller's own, whatever else its role may see.
    async fn own_residents(&self, caller: &Caller) -> Result<Value, Fault> {
        let mut own = caller.clone();
        own.principal.role = Role::Member;
        let request = ListRuns { limit: Some(limits::LIST_LIMIT_MAX), ..ListRuns::default() };
        let page = self.list_residents(&own, request).await?;
        Ok(json!({ "resident": page.items, "next_cursor": page.next_cursor, "as_of": page.as_of }))
    }
}

fn body(answer: Answer<impl serde::Serialize>) -> Result<Value, Fault> {
    to_json(answer.body)
}
