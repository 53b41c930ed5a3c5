//! Residents: open, send, poll, list.

use std::sync::Arc;
use std::time::Duration;

use hearth_residency::Error;
use hearth_run_core::{ChildKind, KeyUse, OpenChild as OpenCommand, Parent, Run, RunSpec};
use hearth_types::{
    AgentDefinition, CallId, Envelope, Fault, InputMode, Isolation, RunId, SandboxSpec, SessionId, TraceContext, TurnId,
};

use tokio::time::Instant;

use crate::answers::{Answer, Listing, ResidentView};
use crate::hearth::parse_run_id;
use crate::runs::body_of;
use crate::start::{Begun, Wishes};
use crate::{Caller, Hearth, ListRuns, OpenResident, Poll, Send, check};

/// What an opener says of a child.
pub(crate) struct ChildWishes {
    pub run_id: RunId,
    pub agent: Arc<AgentDefinition>,
    pub kind: ChildKind,
    pub call_id: Option<CallId>,
    pub key: Option<KeyUse>,
    pub idle_ttl: Option<Duration>,
    pub isolation: Option<Isolation>,
    pub sandbox: Option<SandboxSpec>,
    pub trace: Option<TraceContext>,
}

impl Hearth {
    /// Opens a resident and answers when its first turn has ended, or when the wait has passed.
    pub async fn open(&self, caller: &Caller, request: OpenResident) -> Result<Answer<Envelope>, Fault> {
        let wait = check::wait("timeout_ms", request.timeout_ms)?;
        let begun = self.accept_open(caller, request).await?;
        let envelope = self.await_for(&begun.run_id, &begun.turn_id, wait).await?;
        Ok(Answer { body: envelope, replayed: begun.replayed })
    }

    async fn accept_open(&self, caller: &Caller, request: OpenResident) -> Result<Begun, Fault> {
        check::prompt("prompt", &request.prompt)?;
        check::sandbox(request.isolation, request.sandbox.as_ref())?;
        let idle_ttl = check::seconds("idle_ttl_seconds", request.idle_ttl_seconds)?;
        let parent = request.parent_run_id.as_deref().map(|id| parse_run_id("parent_run_id", id)).transpose()?;
        let key = Self::key_use(caller);
        if let Some(begun) = self.begun_before(key.as_ref()).await? {
            return Ok(begun);
        }
        let Some(parent) = parent else {
            let agent = self.agent(&caller.principal.tenant, &request.agent, None).await?;
            let wishes = Wishes {
                interactive: true,
                idle_ttl,
                isolation: request.isolation,
                sandbox: request.sandbox,
                ..Wishes::default()
            };
            let spec = self.root_spec(caller, Self::new_run_id(key.as_ref()), agent, wishes);
            return self.begin(spec, request.prompt).await;
        };
        let parent = self.run_for(caller, parent.as_str()).await?;
        let agent = self.agent(&parent.tenant, &request.agent, None).await?;
        let wishes = ChildWishes {
            run_id: Self::new_run_id(key.as_ref()),
            agent,
            kind: ChildKind::Resident,
            call_id: None,
            key,
            idle_ttl,
            isolation: request.isolation,
            sandbox: request.sandbox,
            trace: hearth_telemetry::current_trace().or_else(|| caller.trace.clone()),
        };
        let (parent, _) = self.residents().look(&parent.run_id).await?;
        self.open_child(&parent, wishes, request.prompt, None).await
    }

    /// Opens a child by its parent, who checks depth and cap and journals it first.
    pub(crate) async fn open_child(
        &self,
        parent: &Run,
        wishes: ChildWishes,
        prompt: String,
        for_turn: Option<TurnId>,
    ) -> Result<Begun, Fault> {
        let (run_id, kind) = (wishes.run_id.clone(), wishes.kind);
        let turn_id = TurnId::derive(&["first", run_id.as_str()]);
        let spec = self.child_spec(parent, wishes);
        let open = OpenCommand { spec, kind, turn_id, prompt, for_turn };
        match self.residents().open_child(&parent.spec.run_id, open.clone()).await {
            Ok(opened) => Ok(Begun { run_id, turn_id: opened.turn_id, replayed: opened.existed }),
            // The cap counts children that are not final; one whose end was announced to nobody is
            // found here, at the only moment at which it matters.
            Err(Error::Refused(hearth_run_core::Refusal::ResidentLimit { .. }))
                if self.residents().refresh_children(&parent.spec.run_id).await? > 0 =>
            {
                let opened = self.residents().open_child(&parent.spec.run_id, open).await?;
                Ok(Begun { run_id, turn_id: opened.turn_id, replayed: opened.existed })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A child inherits tenant, subject, user and root; its tools are its own definition's.
    fn child_spec(&self, parent: &Run, wishes: ChildWishes) -> RunSpec {
        let above = &parent.spec;
        let idle_ttl_ms = wishes.idle_ttl.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        RunSpec {
            session_id: SessionId::of_run(&wishes.run_id),
            run_id: wishes.run_id,
            root_run_id: above.root_run_id.clone(),
            parent: Some(Parent { run_id: above.run_id.clone(), call_id: wishes.call_id }),
            depth: above.depth + 1,
            tenant: above.tenant.clone(),
            subject: above.subject.clone(),
            user_id: above.user_id.clone(),
            metadata: std::collections::BTreeMap::new(),
            agent: wishes.agent,
            interactive: wishes.kind == ChildKind::Resident,
            idle_ttl_ms: idle_ttl_ms.unwrap_or(self.options.idle_ttl_ms),
            turn_timeout_ms: None,
            isolation: wishes.isolation.or(above.isolation).max(above.isolation),
            sandbox: wishes.sandbox,
            max_residents: self.options.max_residents,
            key: wishes.key,
            trace: wishes.trace,
        }
    }

    /// Sends a prompt and answers when its own turn has ended, or when the wait has passed.
    pub async fn send(&self, caller: &Caller, run: &str, request: Send) -> Result<Answer<Envelope>, Fault> {
        check::prompt("prompt", &request.prompt)?;
        let wait = check::wait("timeout_ms", request.timeout_ms)?;
        let head = self.identify(caller, run).await?;
        let (begun, most) = (Instant::now(), wait.unwrap_or(Duration::MAX));
        let (accepted, ended) = self.accept(caller, &head.run_id, request.prompt, InputMode::Queue, most).await?;
        let envelope = match ended {
            Some(envelope) => envelope,
            None => {
                let rest = wait.map(|wait| wait.saturating_sub(begun.elapsed()));
                self.await_for(&head.run_id, &accepted.turn_id, rest).await?
            }
        };
        Ok(Answer { body: envelope, replayed: accepted.replayed })
    }

    pub async fn poll(&self, caller: &Caller, run: &str, request: Poll) -> Result<Envelope, Fault> {
        let wait = check::wait("timeout_ms", request.timeout_ms)?;
        let head = self.identify(caller, run).await?;
        let (run, live) = self.residents().look(&head.run_id).await?;
        let Some(turn_id) = request.turn_id.or_else(|| run.newest_turn.clone()) else {
            return Ok(run.turnless_envelope());
        };
        match wait {
            Some(wait) => self.await_for(&head.run_id, &turn_id, Some(wait)).await,
            // Of a turn that runs elsewhere the output so far is there and not in the journal.
            None => match run.envelope(&turn_id, &live) {
                Some(envelope) if envelope.outcome.is_some() || self.residents().is_active(&head.run_id) => {
                    Ok(envelope)
                }
                _ => Ok(self.residents().turn(&head.run_id, &turn_id).await?),
            },
        }
    }

    pub async fn list_residents(&self, caller: &Caller, request: ListRuns) -> Result<Listing<ResidentView>, Fault> {
        self.list_heads(caller, request, true, |head| {
            let body = body_of(head)?;
            let owner = self.residents().owner(&head.run_id, body.owner.as_ref());
            Ok(ResidentView {
                child_run_id: head.run_id.clone(),
                agent: head.agent.clone(),
                state: head.state,
                parent_run_id: head.parent_run_id.clone(),
                root_run_id: head.root_run_id.clone(),
                tenant_id: head.tenant.clone(),
                idle_ttl_seconds: body.idle_ttl_ms / 1000,
                last_used_at: body.last_used_at,
                opened_at: head.created_at,
                owner_replica: owner,
                epoch: body.epoch.0,
                turns: body.turns,
                sandbox_session_id: body.sandbox_session,
            })
        })
        .await
    }
}
