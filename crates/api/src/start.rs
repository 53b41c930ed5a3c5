//! Beginning a run that is the root of its tree, and waiting for its turn.

use std::sync::Arc;
use std::time::Duration;

use hearth_residency::{Created, Error};
use hearth_run_core::{KeyUse, RunSpec};
use hearth_types::{AgentDefinition, Envelope, Fault, FaultCode, Isolation, RunId, SandboxSpec, SessionId, TurnId};

use crate::{Caller, Hearth};

/// A run as its turn was begun, or as it was found by its key.
pub(crate) struct Begun {
    pub run_id: RunId,
    pub turn_id: TurnId,
    pub replayed: bool,
}

/// What an opener says of a new run besides its agent.
#[derive(Default)]
pub(crate) struct Wishes {
    pub session_id: Option<SessionId>,
    pub interactive: bool,
    pub user_id: Option<String>,
    pub metadata: std::collections::BTreeMap<String, serde_json::Value>,
    pub isolation: Option<Isolation>,
    pub sandbox: Option<SandboxSpec>,
    pub turn_timeout: Option<Duration>,
    pub idle_ttl: Option<Duration>,
}

impl Hearth {
    /// The id of the run that this call opens: the same at every repeat of its key.
    pub(crate) fn new_run_id(key: Option<&KeyUse>) -> RunId {
        key.map_or_else(RunId::generate, |key| RunId::derive(&["open", &key.id]))
    }

    pub(crate) fn root_spec(
        &self,
        caller: &Caller,
        run_id: RunId,
        agent: Arc<AgentDefinition>,
        wishes: Wishes,
    ) -> RunSpec {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        RunSpec {
            session_id: wishes.session_id.unwrap_or_else(|| SessionId::of_run(&run_id)),
            root_run_id: run_id.clone(),
            run_id,
            parent: None,
            depth: 0,
            tenant: caller.principal.tenant.clone(),
            subject: caller.principal.subject.clone(),
            user_id: wishes.user_id,
            metadata: wishes.metadata,
            agent,
            interactive: wishes.interactive,
            idle_ttl_ms: wishes.idle_ttl.map_or(self.options.idle_ttl_ms, millis),
            turn_timeout_ms: wishes.turn_timeout.map(millis),
            isolation: wishes.isolation,
            sandbox: wishes.sandbox,
            max_residents: self.options.max_residents,
            key: Self::key_use(caller),
            trace: hearth_telemetry::current_trace().or_else(|| caller.trace.clone()),
        }
    }

    /// Begins the run, or finds the one that this key began before.
    pub(crate) async fn begin(&self, spec: RunSpec, prompt: String) -> Result<Begun, Fault> {
        let (run_id, key) = (spec.run_id.clone(), spec.key.clone());
        let turn_id = TurnId::derive(&["first", run_id.as_str()]);
        match self.residents().create(spec, turn_id.clone(), prompt).await? {
            Created::New => Ok(Begun { run_id, turn_id, replayed: false }),
            Created::Existing(run) if run.spec.key == key => Ok(Begun { run_id, turn_id, replayed: true }),
            Created::Existing(_) => Err(Error::Taken.into()),
        }
    }

    /// The run that this key began before, if it has. Looked for first, so that a repeat is answered
    /// whatever has changed since: the agent may be gone, the parent closed.
    pub(crate) async fn begun_before(&self, key: Option<&KeyUse>) -> Result<Option<Begun>, Fault> {
        let Some(key) = key else { return Ok(None) };
        let run_id = Self::new_run_id(Some(key));
        if self.head(&run_id).await?.is_none() {
            return Ok(None);
        }
        let (run, _) = self.residents().look(&run_id).await?;
        if run.spec.key.as_ref() != Some(key) {
            return Err(Error::Taken.into());
        }
        let turn_id = TurnId::derive(&["first", run_id.as_str()]);
        Ok(Some(Begun { run_id, turn_id, replayed: true }))
    }

    /// The turn's envelope once it has ended, or as it stands when the wait has passed.
    pub(crate) async fn await_for(
        &self,
        run_id: &RunId,
        turn_id: &TurnId,
        wait: Option<Duration>,
    ) -> Result<Envelope, Fault> {
        let Some(wait) = wait else {
            return self.residents().await_turn(run_id, turn_id).await.map_err(after_acceptance);
        };
        match tokio::time::timeout(wait, self.residents().await_turn(run_id, turn_id)).await {
            Ok(envelope) => envelope.map_err(after_acceptance),
            Err(_) => self.residents().turn(run_id, turn_id).await.map_err(after_acceptance),
        }
    }
}

/// A command that was accepted goes on, whatever keeps its caller from hearing of it: `unavailable` would
/// say that nothing was done.
pub(crate) fn after_acceptance(error: Error) -> Fault {
    let fault = Fault::from(error);
    if fault.code != FaultCode::Unavailable {
        return fault;
    }
    Fault::new(
        FaultCode::DeadlineExceeded,
        format!(
            "it was accepted, and what became of it cannot be read now ({}); repeat with the same key",
            fault.message
        ),
    )
    .retry_after(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_accepted_is_not_told_as_if_nothing_had_been_done() {
        let away = || Error::Journal(hearth_journal::Error::Unavailable { reason: "cut off".into() });
        assert_eq!(Fault::from(away()).code, FaultCode::Unavailable);
        for error in [away(), Error::Gone] {
            let fault = after_acceptance(error);
            assert_eq!(fault.code, FaultCode::DeadlineExceeded);
            assert!(fault.code.retryable() && fault.retry_after_ms.is_some());
        }
        assert_eq!(after_acceptance(Error::Draining).code, FaultCode::Draining);
        assert_eq!(after_acceptance(Error::NotFound).code, FaultCode::NotFound);
    }
}
