//! Replay: a new session that carries the conversation of another one, for another agent.

use std::sync::Arc;

use hearth_residency::{Carried, Entry, Part, members};
use hearth_run_core::{KeyUse, RunSpec};
use hearth_types::{Fault, FaultCode, RunId, Seq, SessionId, Tenant, derive_hex};

use crate::answers::{Answer, ReplayAnswer};
use crate::sessions::Found;
use crate::{Caller, Hearth, ReplaySession, transcript};

/// Runs that a carried conversation may be made of.
const MAX_PARTS: usize = 4_096;

impl Hearth {
    /// The source stays as it is. What its runs say from now on is not part of the new session.
    pub async fn replay_session(
        &self,
        caller: &Caller,
        session: &str,
        request: ReplaySession,
    ) -> Result<Answer<ReplayAnswer>, Fault> {
        let found = self.session_for(caller, session).await?;
        let key = Self::key_use(caller);
        let session_id = replayed_id(&found, key.as_ref());
        if let Some(answer) = self.replayed_before(&found.tenant, &session_id, key.as_ref()).await? {
            return Ok(answer);
        }
        let agent = self.agent(&found.tenant, &request.agent, None).await?;
        let spec = self.source_spec(&found).await?;
        let parts = self.parts_of(&found, request.compress).await?;
        let mut pages = transcript::Pages::counting();
        for part in &parts {
            pages.read(&*self.deps.journal, part).await?;
        }
        let carried = Carried {
            v: 1,
            at: self.deps.clock.now(),
            parts,
            agent: agent.name.clone(),
            spec,
            events_copied: pages.counted,
            compressed: request.compress,
            key: key.clone(),
        };
        let body = answer(&session_id, &carried);
        let entry = Entry::Carried(Box::new(carried));
        let append_id = RunId::generate().to_string();
        let log = (&found.tenant, &session_id);
        match self.append_to_session(log, hearth_journal::Position(0), append_id, &entry).await? {
            Ok(()) => Ok(Answer { body, replayed: false }),
            Err(_) => self.replayed_before(&found.tenant, &session_id, key.as_ref()).await?.ok_or_else(|| {
                Fault::unavailable("it is not known whether the session was written; repeat with the same key")
            }),
        }
    }

    /// What this key made before.
    async fn replayed_before(
        &self,
        tenant: &Tenant,
        session_id: &SessionId,
        key: Option<&KeyUse>,
    ) -> Result<Option<Answer<ReplayAnswer>>, Fault> {
        let Some(carried) = members(&*self.deps.journal, tenant, session_id).await?.carried else { return Ok(None) };
        if carried.key.as_ref() != key {
            return Err(hearth_residency::Error::Taken.into());
        }
        Ok(Some(Answer { body: answer(session_id, &carried), replayed: true }))
    }

    /// What the new session's runs take over. Whoever may act on the source may act on them.
    async fn source_spec(&self, found: &Found) -> Result<Arc<RunSpec>, Fault> {
        match (&found.newest, &found.members.carried) {
            (Some(head), _) => Ok(self.residents().look(&head.run_id).await?.0.spec),
            (None, Some(carried)) => Ok(carried.spec.clone()),
            (None, None) => Err(Fault::not_found()),
        }
    }

    async fn parts_of(&self, found: &Found, compress: bool) -> Result<Vec<Part>, Fault> {
        let mut parts: Vec<Part> = found.members.carried.iter().flat_map(|carried| carried.parts.clone()).collect();
        for part in &mut parts {
            part.compress |= compress;
        }
        for run_id in &found.members.runs {
            // One that joined and has not begun says nothing yet.
            let through = match self.residents().look(run_id).await {
                Ok((run, _)) => run.seq,
                Err(hearth_residency::Error::NotFound) => Seq(0),
                Err(error) => return Err(error.into()),
            };
            parts.push(Part { run_id: run_id.clone(), through, compress });
        }
        if parts.len() > MAX_PARTS {
            let message = format!("the conversation is made of {} runs; at most {MAX_PARTS} are carried", parts.len());
            return Err(Fault::new(FaultCode::PayloadTooLarge, message));
        }
        Ok(parts)
    }
}

/// The same at every repeat of a key. It ends as the id of a run that is carried, which says whose it is.
fn replayed_id(found: &Found, key: Option<&KeyUse>) -> SessionId {
    let carried = found.members.carried.iter().flat_map(|carried| carried.parts.iter().map(|part| &part.run_id));
    let tail = carried.chain(&found.members.runs).next().map(RunId::as_str).unwrap_or_default();
    let tail = tail.strip_prefix("run_").unwrap_or(tail);
    let own = match key {
        Some(key) => derive_hex(&["replay", &key.id]),
        None => derive_hex(&["replay", RunId::generate().as_str()]),
    };
    let id = SessionId::parse(&format!("sess_{own}_{tail}"));
    id.unwrap_or_else(|_| SessionId::derive(&["replay", &own]))
}

fn answer(session_id: &SessionId, carried: &Carried) -> ReplayAnswer {
    ReplayAnswer {
        session_id: session_id.clone(),
        events_copied: carried.events_copied,
        compressed: carried.compressed,
    }
}
