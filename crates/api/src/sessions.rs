//! Sessions: one conversation, one live run at a time.
//!
//! A session that a run starts by itself has no log of its own: its id leads to the run. A log begins
//! when a second run joins, or when a caller chose the id; the log's fence decides who joins.

use std::time::Duration;

use bytes::Bytes;
use hearth_journal::{Append, Error as JournalError, LogKey, Position, RunHead};
use hearth_residency::{Created, Entry, Error, Joined, Members, members};
use hearth_run_core::{KeyResult, KeyUse, RunSpec};
use hearth_types::{Fault, FaultCode, InputMode, RunId, SessionId, Tenant, TurnId};

use crate::answers::{Answer, RunAnswer, Transcript};
use crate::hearth::parse_session_id;
use crate::identities::Identity;
use crate::start::{Begun, Wishes};
use crate::{Caller, Hearth, Page, SessionMessage, check, cursor, transcript};

/// Tries to join a session that others join at the same time.
const JOIN_TRIES: usize = 8;

/// A session that the caller may act on.
pub(crate) struct Found {
    pub session_id: SessionId,
    pub tenant: Tenant,
    pub members: Members,
    /// The row of its newest run. None: it carries on another one's conversation, and nobody has gone on yet.
    pub newest: Option<RunHead>,
}

impl Hearth {
    pub(crate) async fn append_to_session(
        &self,
        (tenant, session_id): (&Tenant, &SessionId),
        expected: Position,
        append_id: String,
        entry: &Entry,
    ) -> Result<Result<(), JournalError>, Fault> {
        let frame = serde_json::to_vec(entry).map_err(|error| Fault::internal(error.to_string()))?;
        let key = LogKey::Session(tenant.clone(), session_id.clone());
        let append = Append { key, expected, append_id, frame: Bytes::from(frame), head: None, floor: Position(0) };
        match self.deps.journal.append(append).await {
            Ok(_) => Ok(Ok(())),
            // Somebody was faster, or may have been: the log says who.
            Err(error @ (JournalError::Fenced { .. } | JournalError::Unknown { .. })) => Ok(Err(error)),
            Err(error) => Err(Error::from(error).into()),
        }
    }

    /// Makes `spec`'s run the newest of the session, unless the caller's key did something in it before: then that.
    /// Refused while another run of it is live.
    pub(crate) async fn join_session(
        &self,
        caller: &Caller,
        session_id: &SessionId,
        spec: &RunSpec,
    ) -> Result<Option<Begun>, Fault> {
        for _ in 0..JOIN_TRIES {
            let members = members(&*self.deps.journal, &spec.tenant, session_id).await?;
            if members.runs.last() == Some(&spec.run_id) {
                return Ok(None);
            }
            match (members.runs.last(), &members.carried) {
                (Some(last), _) => self.refuse_if_live(caller, last, members.last_key, spec).await?,
                (None, Some(carried)) => self.check_access(caller, &Identity::of(&carried.spec)).await?,
                (None, None) => {}
            }
            // A call with the same key may have reached the last run before that ended. It takes nothing more now, and if
            // another one has joined since, this one does not.
            if let Some(begun) = self.message_before(caller, &members.runs).await? {
                return Ok(Some(begun));
            }
            let entry = Entry::Joined(Joined { v: 1, run_id: spec.run_id.clone(), key: spec.key.clone() });
            let append_id = format!("join.{}", spec.run_id);
            let log = (&spec.tenant, session_id);
            if self.append_to_session(log, members.position, append_id, &entry).await?.is_ok() {
                return Ok(None);
            }
        }
        Err(Fault::new(FaultCode::Conflict, "others join this session at the same time; try again"))
    }

    /// A run that joined but has not begun is ended before it can: its journal begins closed.
    async fn refuse_if_live(
        &self,
        caller: &Caller,
        last: &RunId,
        key: Option<KeyUse>,
        spec: &RunSpec,
    ) -> Result<(), Fault> {
        let run = match self.residents().look(last).await {
            Ok((run, _)) => run,
            Err(Error::NotFound) => {
                let mut ended = spec.clone();
                ended.run_id = last.clone();
                ended.root_run_id = last.clone();
                // Whoever began it and repeats its key is told that its turn never started.
                let first = key.as_ref().map(|_| (TurnId::derive(&["first", last.as_str()]), String::new()));
                ended.key = key;
                match self.residents().create_closed(ended, first).await? {
                    Created::New => return Ok(()),
                    Created::Existing(run) => run,
                }
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(head) = self.head(last).await? {
            self.run_for(caller, head.run_id.as_str()).await?;
        }
        if run.state.is_final() {
            return Ok(());
        }
        Err(Fault::new(FaultCode::Conflict, "the session has a live run; send it a message, or close it first"))
    }

    /// A message to the conversation: an input to its live run, or a new run that goes on with it.
    pub async fn message(
        &self,
        caller: &Caller,
        session: &str,
        request: SessionMessage,
    ) -> Result<Answer<RunAnswer>, Fault> {
        check::prompt("prompt", &request.prompt)?;
        let wait = check::wait("wait_ms", request.wait_ms)?;
        let found = self.session_for(caller, session).await?;
        let begun = match self.message_before(caller, &found.members.runs).await? {
            Some(begun) => begun,
            None => self.deliver(caller, &found, request).await?,
        };
        let envelope = self.await_for(&begun.run_id, &begun.turn_id, wait).await?;
        self.run_answer(begun, envelope).await
    }

    /// The session, if the caller may act on its newest run.
    pub(crate) async fn session_for(&self, caller: &Caller, session: &str) -> Result<Found, Fault> {
        let session_id = parse_session_id(session)?;
        let mut tenant = caller.principal.tenant.clone();
        let mut members = members(&*self.deps.journal, &tenant, &session_id).await?;
        if members.are_none()
            && caller.principal.role == hearth_types::Role::Admin
            && let Some(other) = self.tenant_of(&session_id).await?
        {
            members = hearth_residency::members(&*self.deps.journal, &other, &session_id).await?;
            tenant = other;
        }
        for run_id in members.runs.iter().rev() {
            if self.head(run_id).await?.is_some() {
                let newest = Some(self.run_for(caller, run_id.as_str()).await?);
                return Ok(Found { session_id, tenant, members, newest });
            }
        }
        let Some(carried) = &members.carried else { return Err(Fault::not_found()) };
        self.check_access(caller, &Identity::of(&carried.spec)).await?;
        Ok(Found { session_id, tenant, members, newest: None })
    }

    /// An admin acts on every tenant; the run that the id leads to names the tenant.
    async fn tenant_of(&self, session_id: &SessionId) -> Result<Option<Tenant>, Fault> {
        self.tenant_of_tail(session_id.as_str().strip_prefix("sess_").unwrap_or_default()).await
    }

    /// Whose an id is that ends as the id of a run.
    pub(crate) async fn tenant_of_tail(&self, tail: &str) -> Result<Option<Tenant>, Fault> {
        for tail in [tail, tail.split_once('_').map_or("", |(_, tail)| tail)] {
            if let Ok(run) = RunId::parse(&format!("run_{tail}"))
                && let Some(head) = self.head(&run).await?
            {
                return Ok(Some(head.tenant));
            }
        }
        Ok(None)
    }

    /// What this key did before: it began a run, or was an input to one of the last runs.
    async fn message_before(&self, caller: &Caller, members: &[RunId]) -> Result<Option<Begun>, Fault> {
        let Some(key) = Self::key_use(caller) else { return Ok(None) };
        if let Some(begun) = self.begun_before(Some(&key)).await? {
            return Ok(Some(begun));
        }
        for run_id in members.iter().rev().take(4) {
            let run = match self.residents().look(run_id).await {
                Ok((run, _)) => run,
                // It joined and has not begun.
                Err(Error::NotFound) => continue,
                // Of a run that cannot be read it is not known what the key did.
                Err(error) => return Err(error.into()),
            };
            if let Some(record) = run.keys.get(&key.id) {
                if record.digest != key.digest {
                    return Err(Error::Taken.into());
                }
                if let KeyResult::Turn { turn_id, .. } = &record.result {
                    return Ok(Some(Begun { run_id: run_id.clone(), turn_id: turn_id.clone(), replayed: true }));
                }
            }
        }
        Ok(None)
    }

    async fn deliver(&self, caller: &Caller, found: &Found, request: SessionMessage) -> Result<Begun, Fault> {
        let spec = match (&found.newest, &found.members.carried) {
            (Some(head), _) => {
                let (last, _) = self.residents().look(&head.run_id).await?;
                let agent_name = request.agent.as_deref().unwrap_or(&last.spec.agent.name);
                if !last.state.is_final() {
                    if agent_name != last.spec.agent.name {
                        return Err(Fault::new(
                            FaultCode::Conflict,
                            "the session's live run is of another agent; leave `agent` out, or close that run first",
                        ));
                    }
                    let prompt = request.prompt.clone();
                    match self.accept(caller, &head.run_id, prompt, InputMode::Queue, Duration::ZERO).await {
                        Ok((accepted, _)) => {
                            let replayed = accepted.replayed;
                            return Ok(Begun { run_id: head.run_id.clone(), turn_id: accepted.turn_id, replayed });
                        }
                        Err(fault) if fault.code == FaultCode::RunEnded => {}
                        Err(fault) => return Err(fault),
                    }
                    self.residents().await_end(&head.run_id).await?;
                }
                self.next_spec(caller, &found.session_id, &last.spec, agent_name).await?
            }
            (None, Some(carried)) => {
                let agent_name = request.agent.as_deref().unwrap_or(&carried.agent);
                self.next_spec(caller, &found.session_id, &carried.spec, agent_name).await?
            }
            (None, None) => return Err(Fault::not_found()),
        };
        match self.join_session(caller, &found.session_id, &spec).await? {
            Some(begun) => Ok(begun),
            None => self.begin(spec, request.prompt).await,
        }
    }

    async fn next_spec(
        &self,
        caller: &Caller,
        session_id: &SessionId,
        last: &RunSpec,
        agent_name: &str,
    ) -> Result<RunSpec, Fault> {
        let agent = self.agent(&last.tenant, agent_name, None).await?;
        let wishes = Wishes {
            session_id: Some(session_id.clone()),
            interactive: last.interactive,
            user_id: last.user_id.clone(),
            metadata: last.metadata.clone(),
            isolation: last.isolation,
            sandbox: last.sandbox.clone(),
            turn_timeout: last.turn_timeout_ms.map(std::time::Duration::from_millis),
            idle_ttl: None,
        };
        let key = Self::key_use(caller);
        let mut spec = self.root_spec(caller, Self::new_run_id(key.as_ref()), agent, wishes);
        spec.tenant.clone_from(&last.tenant);
        spec.subject.clone_from(&last.subject);
        Ok(spec)
    }

    pub async fn transcript(&self, caller: &Caller, session: &str, page: Page) -> Result<Transcript, Fault> {
        let limit = check::page_limit(page.limit)? as usize;
        let skip = cursor::decode_offset(page.cursor.as_deref())?;
        let found = self.session_for(caller, session).await?;
        // One more than is shown, to know whether there are more.
        let mut pages = transcript::Pages::new(skip, limit + 1);
        for part in found.members.parts() {
            if pages.are_full() {
                break;
            }
            pages.read(&*self.deps.journal, &part).await?;
        }
        let mut messages = pages.messages;
        let more = messages.len() > limit;
        messages.truncate(limit);
        let next_cursor = more.then(|| cursor::encode_offset(skip + limit));
        Ok(Transcript { session_id: found.session_id, messages, next_cursor })
    }
}
