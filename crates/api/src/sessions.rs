//! Sessions: one conversation, one live run at a time.
//!
//! A session that a run starts by itself has no log of its own: its id leads to the run. A log begins
//! when a second run joins, or when a caller chose the id; the log's fence decides who joins.

use std::time::Duration;

use bytes::Bytes;
use hearth_journal::{Append, Error as JournalError, LogKey, Position, RunHead};
use hearth_residency::{Created, Error};
use hearth_run_core::{KeyResult, KeyUse, Run, RunSpec};
use hearth_types::{Fault, FaultCode, InputMode, RunId, SessionId, Tenant, TurnId};
use serde::{Deserialize, Serialize};

use crate::answers::{Answer, RunAnswer, Transcript};
use crate::start::{Begun, Wishes};
use crate::{Caller, Hearth, Page, SessionMessage, check, cursor, transcript};

/// Runs of a session that are looked at; a longer history is read from its end.
const MAX_RUNS: usize = 10_000;
/// Tries to join a session that others join at the same time.
const JOIN_TRIES: usize = 8;

#[derive(Debug, Serialize, Deserialize)]
struct Joined {
    v: u32,
    run_id: RunId,
    /// The key that the run is begun with: who repeats it finds the run, whatever became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<KeyUse>,
}

/// The runs of a session, oldest first, and the position of its log.
struct Members {
    runs: Vec<RunId>,
    /// The key of the newest.
    last_key: Option<KeyUse>,
    position: Position,
}

impl Hearth {
    async fn members(&self, tenant: &Tenant, session_id: &SessionId) -> Result<Members, Fault> {
        let key = LogKey::Session(tenant.clone(), session_id.clone());
        let frames = self.deps.journal.read(&key, Position(0), MAX_RUNS).await.map_err(Error::from)?;
        let position = frames.last().map(|frame| frame.position).unwrap_or_default();
        let mut runs = Vec::with_capacity(frames.len() + 1);
        let first =
            session_id.as_str().strip_prefix("sess_").and_then(|tail| RunId::parse(&format!("run_{tail}")).ok());
        if let Some(first) = first
            && let Some(head) = self.head(&first).await?
            && head.tenant == *tenant
            && head.session_id == *session_id
        {
            runs.push(first);
        }
        let mut last_key = None;
        for frame in frames {
            let joined: Joined = serde_json::from_slice(&frame.frame)
                .map_err(|error| Fault::internal(format!("the log of a session is damaged: {error}")))?;
            runs.push(joined.run_id);
            last_key = joined.key;
        }
        Ok(Members { runs, last_key, position })
    }

    /// Makes `spec`'s run the newest of the session. Refused while another run of it is live.
    pub(crate) async fn join_session(
        &self,
        caller: &Caller,
        session_id: &SessionId,
        spec: &RunSpec,
    ) -> Result<(), Fault> {
        for _ in 0..JOIN_TRIES {
            let members = self.members(&spec.tenant, session_id).await?;
            if members.runs.last() == Some(&spec.run_id) {
                return Ok(());
            }
            if let Some(last) = members.runs.last() {
                self.refuse_if_live(caller, last, members.last_key, spec).await?;
            }
            let joined = Joined { v: 1, run_id: spec.run_id.clone(), key: spec.key.clone() };
            let frame = serde_json::to_vec(&joined).map_err(|error| Fault::internal(error.to_string()))?;
            let append = Append {
                key: LogKey::Session(spec.tenant.clone(), session_id.clone()),
                expected: members.position,
                append_id: format!("join.{}", spec.run_id),
                frame: Bytes::from(frame),
                head: None,
                floor: Position(0),
            };
            match self.deps.journal.append(append).await {
                Ok(_) => return Ok(()),
                Err(JournalError::Fenced { .. } | JournalError::Unknown { .. }) => {}
                Err(error) => return Err(Error::from(error).into()),
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
        let (session_id, members, head) = self.session_for(caller, session).await?;
        let begun = match self.message_before(caller, &members).await? {
            Some(begun) => begun,
            None => self.deliver(caller, &session_id, &head, request).await?,
        };
        let envelope = self.await_for(&begun.run_id, &begun.turn_id, wait).await?;
        self.run_answer(begun, envelope).await
    }

    /// The session's runs and the row of the newest, if the caller may act on it.
    async fn session_for(&self, caller: &Caller, session: &str) -> Result<(SessionId, Vec<RunId>, RunHead), Fault> {
        let session_id =
            SessionId::parse(session).map_err(|error| Fault::invalid("session_id", session, &error.to_string()))?;
        let mut members = self.members(&caller.principal.tenant, &session_id).await?.runs;
        if members.is_empty() && caller.principal.role == hearth_types::Role::Admin {
            // An admin acts on every tenant; the run that the id leads to names the tenant.
            members = self.members_of_any_tenant(&session_id).await?;
        }
        for run_id in members.iter().rev() {
            if self.head(run_id).await?.is_some() {
                let head = self.run_for(caller, run_id.as_str()).await?;
                return Ok((session_id, members, head));
            }
        }
        Err(Fault::not_found())
    }

    async fn members_of_any_tenant(&self, session_id: &SessionId) -> Result<Vec<RunId>, Fault> {
        let tail = session_id.as_str().strip_prefix("sess_").unwrap_or_default();
        let Ok(first) = RunId::parse(&format!("run_{tail}")) else { return Ok(Vec::new()) };
        match self.head(&first).await? {
            Some(head) => Ok(self.members(&head.tenant, session_id).await?.runs),
            None => Ok(Vec::new()),
        }
    }

    /// What this key did before: it began a run, or was an input to one of the last runs.
    async fn message_before(&self, caller: &Caller, members: &[RunId]) -> Result<Option<Begun>, Fault> {
        let Some(key) = Self::key_use(caller) else { return Ok(None) };
        if let Some(begun) = self.begun_before(Some(&key)).await? {
            return Ok(Some(begun));
        }
        for run_id in members.iter().rev().take(4) {
            let Ok((run, _)) = self.residents().look(run_id).await else { continue };
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

    async fn deliver(
        &self,
        caller: &Caller,
        session_id: &SessionId,
        head: &RunHead,
        request: SessionMessage,
    ) -> Result<Begun, Fault> {
        let (last, _) = self.residents().look(&head.run_id).await?;
        let agent_name = request.agent.as_deref().unwrap_or(&last.spec.agent.name);
        if !last.state.is_final() {
            if agent_name != last.spec.agent.name {
                return Err(Fault::new(
                    FaultCode::Conflict,
                    "the session's live run is of another agent; leave `agent` out, or close that run first",
                ));
            }
            match self.accept(caller, &head.run_id, request.prompt.clone(), InputMode::Queue, Duration::ZERO).await {
                Ok((accepted, _)) => {
                    let replayed = accepted.replayed;
                    return Ok(Begun { run_id: head.run_id.clone(), turn_id: accepted.turn_id, replayed });
                }
                Err(fault) if fault.code == FaultCode::RunEnded => {}
                Err(fault) => return Err(fault),
            }
            self.residents().await_end(&head.run_id).await?;
        }
        let spec = self.next_spec(caller, session_id, &last, agent_name).await?;
        self.join_session(caller, session_id, &spec).await?;
        self.begin(spec, request.prompt).await
    }

    async fn next_spec(
        &self,
        caller: &Caller,
        session_id: &SessionId,
        last: &Run,
        agent_name: &str,
    ) -> Result<RunSpec, Fault> {
        let agent = self.agent(&last.spec.tenant, agent_name, None).await?;
        let wishes = Wishes {
            session_id: Some(session_id.clone()),
            interactive: last.spec.interactive,
            user_id: last.spec.user_id.clone(),
            metadata: last.spec.metadata.clone(),
            isolation: last.spec.isolation,
            sandbox: last.spec.sandbox.clone(),
            turn_timeout: last.spec.turn_timeout_ms.map(std::time::Duration::from_millis),
            idle_ttl: None,
        };
        let key = Self::key_use(caller);
        let mut spec = self.root_spec(caller, Self::new_run_id(key.as_ref()), agent, wishes);
        spec.tenant.clone_from(&last.spec.tenant);
        spec.subject.clone_from(&last.spec.subject);
        Ok(spec)
    }

    pub async fn transcript(&self, caller: &Caller, session: &str, page: Page) -> Result<Transcript, Fault> {
        let limit = check::page_limit(page.limit)? as usize;
        let skip = cursor::decode_offset(page.cursor.as_deref())?;
        let (session_id, members, _) = self.session_for(caller, session).await?;
        // One more than is shown, to know whether there are more.
        let mut pages = transcript::Pages::new(skip, limit + 1);
        for run_id in members {
            if pages.are_full() {
                break;
            }
            pages.read(&*self.deps.journal, &run_id).await?;
        }
        let mut messages = pages.messages;
        let more = messages.len() > limit;
        messages.truncate(limit);
        let next_cursor = more.then(|| cursor::encode_offset(skip + limit));
        Ok(Transcript { session_id, messages, next_cursor })
    }
}
