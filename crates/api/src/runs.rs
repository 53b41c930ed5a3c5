//! Runs: create, get, list, input.

use std::time::Duration;

use hearth_journal::{HeadQuery, RunHead};
use hearth_residency::Accepted;
use hearth_run_core::{Accept, HeadBody};
use hearth_types::{Envelope, Fault, InputMode, RunId, TurnId};

use serde_json::json;

use crate::answers::{Answer, InputAnswer, LastTurn, Listing, RunAnswer, RunView};
use crate::hearth::parse_session_id;
use crate::start::{Begun, Wishes};
use crate::{Caller, CreateRun, Hearth, Input, ListRuns, check, cursor};

impl Hearth {
    /// Accepts a run and answers when it parks or ends, or when the wait has passed.
    pub async fn create_run(&self, caller: &Caller, request: CreateRun) -> Result<Answer<RunAnswer>, Fault> {
        let wait = check::wait("wait_ms", request.wait_ms)?;
        let begun = self.accept_run(caller, request).await?;
        let envelope = self.await_for(&begun.run_id, &begun.turn_id, wait).await?;
        self.run_answer(begun, envelope).await
    }

    /// Accepts a run and answers at once, for callers that stream it.
    pub async fn start_run(&self, caller: &Caller, request: CreateRun) -> Result<Answer<RunAnswer>, Fault> {
        let begun = self.accept_run(caller, request).await?;
        let envelope = self.residents().turn(&begun.run_id, &begun.turn_id).await?;
        self.run_answer(begun, envelope).await
    }

    async fn accept_run(&self, caller: &Caller, request: CreateRun) -> Result<Begun, Fault> {
        let prompt = prompt_of(&request)?;
        check::label("user_id", request.user_id.as_deref())?;
        check::metadata(request.metadata.as_ref())?;
        check::sandbox(request.isolation, request.sandbox.as_ref())?;
        let turn_timeout = check::seconds("run_timeout_seconds", request.run_timeout_seconds)?;
        let session_id = request.session_id.as_deref().map(parse_session_id).transpose()?;
        let key = Self::key_use(caller);
        if let Some(begun) = self.begun_before(key.as_ref()).await? {
            return Ok(begun);
        }
        let agent = self.agent(&caller.principal.tenant, &request.agent, None).await?;
        let wishes = Wishes {
            session_id: session_id.clone(),
            interactive: request.interactive,
            user_id: request.user_id,
            metadata: request.metadata.unwrap_or_default(),
            isolation: request.isolation,
            sandbox: request.sandbox,
            turn_timeout,
            idle_ttl: None,
        };
        let spec = self.root_spec(caller, Self::new_run_id(key.as_ref()), agent, wishes);
        if let Some(session_id) = session_id
            && let Some(begun) = self.join_session(caller, &session_id, &spec).await?
        {
            return Ok(begun);
        }
        self.begin(spec, prompt).await
    }

    pub(crate) async fn run_answer(
        &self,
        begun: Begun,
        envelope: hearth_types::Envelope,
    ) -> Result<Answer<RunAnswer>, Fault> {
        let (run, _) = self.residents().look(&begun.run_id).await?;
        let body = RunAnswer {
            envelope,
            session_id: run.spec.session_id.clone(),
            root_run_id: run.spec.root_run_id.clone(),
            usage: run.usage,
        };
        Ok(Answer { body, replayed: begun.replayed })
    }

    pub async fn get_run(&self, caller: &Caller, run: &str) -> Result<RunView, Fault> {
        let head = self.run_for(caller, run).await?;
        let (run, _) = self.residents().look(&head.run_id).await?;
        let mut view = self.run_view(&head)?;
        view.state = run.state;
        view.last_turn = run.last_ended().map(|turn| LastTurn {
            turn_id: turn.turn_id.clone(),
            outcome: turn.outcome,
            output: turn.output.clone().unwrap_or_default(),
            truncated: turn.truncated,
            error: turn.error.clone(),
            started_at: turn.started_at,
            ended_at: turn.ended_at,
        });
        view.turns = run.turns;
        view.epoch = run.epoch.0;
        view.usage = run.usage;
        view.last_used_at = run.last_used_at;
        view.owner_replica = self.residents().locate(&head.run_id).await.filter(|_| !run.state.is_final());
        view.resident_state = view.resident_state.map(|_| resident_state(view.owner_replica.as_ref()));
        Ok(view)
    }

    pub async fn list_runs(&self, caller: &Caller, request: ListRuns) -> Result<Listing<RunView>, Fault> {
        self.list_heads(caller, request, false, |head| self.run_view(head)).await
    }

    /// A page of runs that the caller may see, each as `show` makes it.
    pub(crate) async fn list_heads<T>(
        &self,
        caller: &Caller,
        request: ListRuns,
        live: bool,
        show: impl Fn(&RunHead) -> Result<T, Fault>,
    ) -> Result<Listing<T>, Fault> {
        let (tenant, subject) = Self::list_scope(caller, request.tenant)?;
        let request_excludes_residents = request.resident == Some(false);
        let query = HeadQuery {
            tenant,
            subject,
            state: request.state,
            agent: request.agent,
            root_run_id: request.root_run_id,
            parent_run_id: request.parent_run_id,
            resident: if live { Some(true) } else { request.resident },
            live,
            limit: check::page_limit(request.limit)?,
            after: request.cursor.as_deref().map(cursor::decode_run).transpose()?,
            ..HeadQuery::default()
        };
        let as_of = self.deps.clock.now();
        if live && request_excludes_residents {
            return Ok(Listing { items: Vec::new(), next_cursor: None, as_of, partial: false });
        }
        let page = self.deps.journal.heads(&query).await.map_err(hearth_residency::Error::from)?;
        let last = page.heads.last().filter(|_| page.more);
        let next_cursor = last.map(|head| cursor::encode_run(head.created_at, &head.run_id));
        let items = page.heads.iter().map(show).collect::<Result<_, _>>()?;
        Ok(Listing { items, next_cursor, as_of, partial: false })
    }

    fn run_view(&self, head: &RunHead) -> Result<RunView, Fault> {
        let body = body_of(head)?;
        let owner = self.residents().owner(&head.run_id, body.owner.as_ref()).filter(|_| !head.state.is_final());
        let last_turn = body.last_turn.map(|turn| LastTurn {
            turn_id: turn.turn_id,
            outcome: turn.outcome,
            output: turn.output,
            truncated: turn.truncated,
            error: turn.error,
            started_at: turn.started_at,
            ended_at: turn.ended_at,
        });
        Ok(RunView {
            run_id: head.run_id.clone(),
            session_id: head.session_id.clone(),
            root_run_id: head.root_run_id.clone(),
            parent_run_id: head.parent_run_id.clone(),
            agent: head.agent.clone(),
            tenant_id: head.tenant.clone(),
            state: head.state,
            last_turn,
            resident: head.resident,
            resident_state: (head.resident && !head.state.is_final()).then_some(resident_state(owner.as_ref())),
            owner_replica: owner,
            epoch: body.epoch.0,
            turns: body.turns,
            user_id: body.user_id,
            metadata: body.metadata,
            created_at: head.created_at,
            last_used_at: body.last_used_at,
            usage: body.usage,
            trace_id: body.trace_id,
        })
    }

    pub async fn input(&self, caller: &Caller, run: &str, request: Input) -> Result<Answer<InputAnswer>, Fault> {
        check::prompt("text", &request.text)?;
        let head = self.run_for(caller, run).await?;
        let (accepted, _) = self.accept(caller, &head.run_id, request.text, request.mode, Duration::ZERO).await?;
        let delivered = if accepted.queued { "queued" } else { "now" };
        let body = InputAnswer { run_id: head.run_id, turn_id: accepted.turn_id, delivered };
        Ok(Answer { body, replayed: accepted.replayed })
    }

    /// Accepts an input; with the turn's envelope where it was known at once that the turn has ended. No longer
    /// than `wait` is waited for that.
    pub(crate) async fn accept(
        &self,
        caller: &Caller,
        run_id: &RunId,
        prompt: String,
        mode: InputMode,
        wait: Duration,
    ) -> Result<(Accepted, Option<Envelope>), Fault> {
        let key = Self::key_for_once(caller);
        let turn_id = TurnId::derive(&["turn", run_id.as_str(), &key.id]);
        let trace = hearth_telemetry::current_trace().or_else(|| caller.trace.clone());
        let accept = Accept { turn_id, prompt, mode, key: Some(key), trace };
        Ok(self.residents().accept_and_wait(run_id, accept, wait).await?)
    }
}

fn prompt_of(request: &CreateRun) -> Result<String, Fault> {
    match (&request.prompt, &request.segments) {
        (Some(prompt), None) => {
            check::prompt("prompt", prompt)?;
            Ok(prompt.clone())
        }
        (None, Some(segments)) => {
            let joined = segments.join("\n\n");
            check::prompt("segments", &joined)?;
            Ok(joined)
        }
        (None, None) => Err(Fault::missing("prompt", "text of at least one character, or `segments` in its place")),
        (Some(_), Some(segments)) => {
            Err(Fault::invalid("segments", json!(segments), "absent where `prompt` is given, or the reverse"))
        }
    }
}

fn resident_state(owner: Option<&hearth_types::ReplicaId>) -> &'static str {
    if owner.is_some() { "active" } else { "passivated" }
}

pub(crate) fn body_of(head: &RunHead) -> Result<HeadBody, Fault> {
    head.body.read().map_err(|error| {
        tracing::error!(run_id = %head.run_id, %error, "an index row cannot be read");
        Fault::internal("an index row cannot be read")
    })
}
