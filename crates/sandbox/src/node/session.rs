//! One session in memory: its phase, what runs in it, when it was last used.
//!
//! All changes of the phase go through the methods here, each under one lock that is never held across
//! an await; calls to the driver are serialised by [`Session::driver_turn`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use hearth_types::{ExecId, Fault, FaultCode, RunId, SandboxId, SharedClock, Tenant, Timestamp};

use crate::init::InitClient;
use crate::node::exec_log::ExecLog;
use crate::node::metrics::EXECS;
use crate::node::past::{Gone, Why};
use crate::node::policy::Existing;
use crate::node::provenance::Provenance;
use crate::node::state::{Record, StateFolder};
use crate::{Caller, Network, SessionRow, SessionUsage, SharedDriver, Started, Work};

/// Commands of one session at once.
pub(crate) const MAX_RUNNING: usize = 32;

/// The init's clock began at its start; a machine's may have been set since.
const CLOCKS_APART: Duration = Duration::from_secs(2);

/// A task that finishes by itself, and whose result any number of callers can await.
pub(crate) type Job<T> = Shared<BoxFuture<'static, Result<T, Fault>>>;

pub(crate) fn start_job<T, F>(name: &'static str, future: F) -> Job<T>
where
    T: Clone + Send + Sync + 'static,
    F: Future<Output = Result<T, Fault>> + Send + 'static,
{
    let task = hearth_telemetry::task::spawn(name, future);
    async move {
        match task.await {
            Ok(Some(result)) => result,
            Ok(None) | Err(_) => Err(Fault::internal(format!("the task {name} ended without a result"))),
        }
    }
    .boxed()
    .shared()
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone)]
pub(crate) struct Live {
    pub client: InitClient,
    pub started: Started,
}

#[derive(Clone)]
pub(crate) enum Phase {
    /// [`Session::opened`] tells how it ends.
    Opening,
    Live(Live),
    /// Of an earlier process, not found again yet.
    Detached,
    Closing(Why, Job<()>),
    /// Could not be stopped; the sweeper tries again, and its place is taken until then.
    Unstopped(Why),
}

struct State {
    phase: Phase,
    /// Reads, writes and commands under way.
    busy: u32,
    /// How many callers each command under way has here.
    running: HashMap<ExecId, u32>,
    last_used: Timestamp,
    used_since: bool,
    /// Nobody has used it since it was opened, or opened it again.
    untouched: bool,
    usage: Option<SessionUsage>,
}

pub(crate) struct Session {
    /// As it was first written; its stage is in the phase.
    pub record: Record,
    /// Absent when the driver of an earlier process is not at hand now.
    pub driver: Option<SharedDriver>,
    /// Held around every call to the driver for this session.
    pub driver_turn: tokio::sync::Mutex<()>,
    pub provenance: Mutex<Provenance>,
    pub exec_log: ExecLog,
    opening: OnceLock<Job<()>>,
    /// Whether it came from the pool. Taken back when what came from there turns out to be dead.
    pooled: AtomicBool,
    state: Mutex<State>,
}

impl Session {
    pub(crate) fn new(
        record: Record,
        driver: Option<SharedDriver>,
        phase: Phase,
        state: &StateFolder,
        now: Timestamp,
    ) -> Arc<Self> {
        let exec_log = ExecLog::new(state.execs_file(&record.spec.session));
        let provenance = Mutex::new(Provenance::open(state.seen_file(&record.spec.session)));
        Arc::new(Self {
            pooled: AtomicBool::new(record.pooled),
            record,
            driver,
            driver_turn: tokio::sync::Mutex::new(()),
            provenance,
            exec_log,
            opening: OnceLock::new(),
            state: Mutex::new(State {
                phase,
                busy: 0,
                running: HashMap::new(),
                last_used: now,
                used_since: true,
                untouched: true,
                usage: None,
            }),
        })
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.record.spec.session
    }

    /// Whether the caller may know of it: its principal's, and inside a run its own tree's.
    pub(crate) fn visible_to(&self, caller: &Caller) -> bool {
        // One of a run's own is nobody else's in the tree.
        let others =
            self.record.own && matches!((&self.record.opened_by, &caller.run), (Some(by), Some(run)) if by != run);
        !others && visible(caller, &self.record.principal, self.record.spec.root_run.as_ref())
    }

    /// Refuses a run what its sandbox may not be: a session that is looser was opened by another run of its tree.
    pub(crate) fn meets(&self, caller: &Caller) -> Result<(), Fault> {
        let (needs, record) = (&caller.needs, &self.record);
        let missing = [
            ("isolation", needs.isolation.is_some_and(|least| record.isolation < least)),
            ("own", needs.own && record.opened_by != caller.run),
            ("read_only", needs.read_only && self.writes_durably()),
            ("network", needs.no_network && record.spec.network == Network::Egress),
        ];
        match missing.into_iter().find(|(_, missing)| *missing) {
            None => Ok(()),
            Some((field, _)) => Err(Fault::new(
                FaultCode::ToolRefused,
                format!("the session is looser in `{field}` than this run allows; open one with sandbox_open"),
            )),
        }
    }

    pub(crate) fn set_opening(&self, job: Job<()>) {
        drop(self.opening.set(job));
    }

    /// Whether an open again would give another one: one of a run tree is the tree's, and one that was opened by a
    /// call is found by the call again.
    pub(crate) fn is_its_openers(&self) -> bool {
        self.record.own && self.record.call.is_none()
    }

    pub(crate) fn pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cold(&self) {
        self.pooled.store(false, Ordering::Relaxed);
    }

    /// Waits until its open has ended, one way or the other.
    pub(crate) async fn opened(&self) -> Result<(), Fault> {
        match self.opening.get() {
            Some(job) => job.clone().await,
            None => Ok(()),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        locked(&self.state).phase.clone()
    }

    /// From `Opening` or `Detached` to `Live`; refused once a close has begun.
    pub(crate) fn go_live(&self, live: &Live, now: Timestamp) -> Result<(), Fault> {
        let mut state = locked(&self.state);
        match &state.phase {
            Phase::Opening | Phase::Detached => {
                state.phase = Phase::Live(live.clone());
                state.last_used = now;
                Ok(())
            }
            Phase::Live(_) => Ok(()),
            Phase::Closing(why, _) | Phase::Unstopped(why) => Err(self.gone_fault(*why)),
        }
    }

    /// Begins a close with the job that `start` makes of its reason and of whether an open is under way,
    /// or joins the one under way. True: it was this call that began the first one.
    pub(crate) fn begin_close(&self, why: Why, start: impl FnOnce(Why, bool) -> Job<()>) -> (Job<()>, bool) {
        begin_close(&mut locked(&self.state), why, start)
    }

    /// The same unless `when` says no, in one step with the change of phase: nothing can begin in the
    /// session in between.
    pub(crate) fn begin_close_if(
        &self,
        why: Why,
        when: impl FnOnce(SessionUse) -> bool,
        start: impl FnOnce(Why, bool) -> Job<()>,
    ) -> Option<Job<()>> {
        let mut state = locked(&self.state);
        let agreed = when(SessionUse { busy: state.busy > 0, last_used: state.last_used, untouched: state.untouched });
        agreed.then(|| begin_close(&mut state, why, start).0)
    }

    pub(crate) fn not_stopped(&self) {
        let mut state = locked(&self.state);
        if let Phase::Closing(why, _) = &state.phase {
            state.phase = Phase::Unstopped(*why);
        }
    }

    /// For an open that failed and left something behind.
    pub(crate) fn not_opened(&self) {
        locked(&self.state).phase = Phase::Unstopped(Why::Failed);
    }

    /// Before its files are removed: a command that is still waited for ends after that.
    pub(crate) fn stop_noting(&self) {
        self.exec_log.stop_noting();
        locked(&self.provenance).stop_noting();
    }

    pub(crate) fn uses(&self, usage: Option<SessionUsage>) {
        locked(&self.state).usage = usage;
    }

    pub(crate) fn renew(&self, now: Timestamp) {
        let mut state = locked(&self.state);
        state.last_used = now;
        state.untouched = false;
    }

    /// A read, a write or a touch begins. Its end, when the guard goes, renews the idle time.
    pub(crate) fn begin(self: &Arc<Self>, clock: &SharedClock) -> Result<Use, Fault> {
        let mut state = locked(&self.state);
        self.require_live(&state)?;
        state.busy += 1;
        state.untouched = false;
        Ok(Use { session: self.clone(), clock: clock.clone(), exec: None })
    }

    /// The same for a command. A second caller of a command under way is always admitted.
    pub(crate) fn begin_exec(
        self: &Arc<Self>,
        clock: &SharedClock,
        exec_id: &ExecId,
        run: Option<&RunId>,
    ) -> Result<Use, Fault> {
        let mut state = locked(&self.state);
        self.require_live(&state)?;
        let callers = state.running.get(exec_id).copied().unwrap_or(0);
        if callers == 0 && state.running.len() >= MAX_RUNNING {
            return Err(Fault::new(
                FaultCode::QueueFull,
                format!("{MAX_RUNNING} commands run in this session; wait for one of them, or kill it"),
            ));
        }
        if callers == 0 {
            self.exec_log.started(exec_id);
            EXECS.inc();
        }
        state.running.insert(exec_id.clone(), callers + 1);
        state.busy += 1;
        state.untouched = false;
        drop(state);
        if let Some(run) = run {
            locked(&self.provenance).executed(run);
        }
        Ok(Use { session: self.clone(), clock: clock.clone(), exec: Some((exec_id.clone(), run.cloned())) })
    }

    fn require_live(&self, state: &State) -> Result<(), Fault> {
        match &state.phase {
            Phase::Live(_) => Ok(()),
            Phase::Closing(why, _) | Phase::Unstopped(why) => Err(self.gone_fault(*why)),
            Phase::Opening | Phase::Detached => Err(Fault::unavailable("the session is not ready yet; try again")),
        }
    }

    fn end_use(&self, exec: Option<&(ExecId, Option<RunId>)>, now: Timestamp) {
        let mut state = locked(&self.state);
        state.busy = state.busy.saturating_sub(1);
        state.used_since = true;
        state.last_used = state.last_used.max(now);
        let Some((exec_id, run)) = exec else { return };
        let callers = state.running.get(exec_id).copied().unwrap_or(0);
        if callers > 1 {
            state.running.insert(exec_id.clone(), callers - 1);
            return;
        }
        state.running.remove(exec_id);
        EXECS.dec();
        self.exec_log.ended(exec_id, state.running.is_empty());
        drop(state);
        if let Some(run) = run {
            locked(&self.provenance).executed(run);
        }
    }

    /// When it could have to end if nothing happens in it until then. None while something runs, but for the
    /// absolute end; none at all for one that is opening or closing.
    pub(crate) fn due_at(&self, idle_ttl: Duration) -> Option<Timestamp> {
        let state = locked(&self.state);
        let deadline = self.record.spec.deadline;
        match &state.phase {
            Phase::Live(_) | Phase::Detached if state.busy > 0 => Some(deadline),
            Phase::Live(_) | Phase::Detached => Some(state.last_used.plus(idle_ttl).min(deadline)),
            Phase::Opening | Phase::Closing(..) | Phase::Unstopped(_) => None,
        }
    }

    /// Why it is gone, when nobody here has ended it: its init ends it by itself at the absolute end.
    pub(crate) fn why_gone(&self, now: Timestamp) -> Why {
        if now.plus(CLOCKS_APART) >= self.record.spec.deadline { Why::Expired } else { Why::Lost }
    }

    /// Its durable workspace.
    pub(crate) fn place(&self) -> Option<(Tenant, String)> {
        Some((self.record.principal.clone(), self.record.workspace.clone()?))
    }

    pub(crate) fn running(&self) -> Vec<ExecId> {
        locked(&self.state).running.keys().cloned().collect()
    }

    pub(crate) fn runs_commands(&self) -> bool {
        !locked(&self.state).running.is_empty()
    }

    pub(crate) fn writes_durably(&self) -> bool {
        matches!(self.record.spec.work, Work::Durable { read_only: false, .. })
    }

    /// Whether something runs, or ran or was written since that was [taken](Self::take_written).
    pub(crate) fn may_have_written(&self) -> bool {
        let state = locked(&self.state);
        state.busy > 0 || state.used_since
    }

    pub(crate) fn take_written(&self) -> bool {
        let mut state = locked(&self.state);
        let used = state.busy > 0 || state.used_since;
        state.used_since = false;
        used
    }

    /// Why the session is, or soon will be, gone.
    pub(crate) fn gone(&self, why: Why) -> Gone {
        Gone {
            session: self.id().clone(),
            principal: self.record.principal.clone(),
            root_run: self.record.spec.root_run.clone(),
            workspace: self.record.workspace.clone(),
            why,
        }
    }

    pub(crate) fn gone_fault(&self, why: Why) -> Fault {
        gone_fault(&self.gone(why))
    }

    /// What a shared open is compared with.
    pub(crate) fn existing<'a>(&'a self, runtime: &'a str) -> Existing<'a> {
        let spec = &self.record.spec;
        Existing { network: spec.network, limits: spec.limits, isolation: self.record.isolation, runtime }
    }

    /// Its row in lists; none for a session that nobody has been told of yet, or that is closing.
    pub(crate) fn row(&self, idle_ttl: Duration, now: Timestamp) -> Option<SessionRow> {
        let state = locked(&self.state);
        let runtime = match &state.phase {
            Phase::Live(live) => live.started.runtime.clone(),
            Phase::Detached => self.record.spec.runtime.clone().unwrap_or_default(),
            Phase::Opening | Phase::Closing(..) | Phase::Unstopped(_) => return None,
        };
        let last_used_at = if state.busy > 0 { now } else { state.last_used };
        let spec = &self.record.spec;
        Some(SessionRow {
            session_id: spec.session.clone(),
            principal: self.record.principal.clone(),
            root_run_id: spec.root_run.clone(),
            workspace: self.record.workspace.clone(),
            image: spec.image.clone(),
            isolation: self.record.isolation,
            runtime,
            network: spec.network.as_str().to_owned(),
            node: spec.node.clone(),
            created_at: self.record.created_at,
            last_used_at,
            expires_at: spec.deadline,
            idle_expires_at: last_used_at.plus(idle_ttl).min(spec.deadline),
            running: u64::try_from(state.running.len()).unwrap_or(u64::MAX),
            usage: state.usage,
        })
    }
}

fn begin_close(state: &mut State, why: Why, start: impl FnOnce(Why, bool) -> Job<()>) -> (Job<()>, bool) {
    let (why, opening, first) = match &state.phase {
        Phase::Closing(_, job) => return (job.clone(), false),
        Phase::Unstopped(why) => (*why, false, false),
        Phase::Opening => (why, true, true),
        Phase::Live(_) | Phase::Detached => (why, false, true),
    };
    let job = start(why, opening);
    state.phase = Phase::Closing(why, job.clone());
    (job, first)
}

/// What a close for idleness looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionUse {
    pub busy: bool,
    pub last_used: Timestamp,
    /// Since it was opened.
    pub untouched: bool,
}

/// Something under way in a session; its end renews the idle time.
pub(crate) struct Use {
    session: Arc<Session>,
    clock: SharedClock,
    exec: Option<(ExecId, Option<RunId>)>,
}

impl Drop for Use {
    fn drop(&mut self) {
        self.session.end_use(self.exec.as_ref(), self.clock.now());
    }
}

pub(crate) fn visible(caller: &Caller, principal: &str, root_run: Option<&RunId>) -> bool {
    caller.principal == principal && (caller.root_run.is_none() || caller.root_run.as_ref() == root_run)
}

/// The answer for a session that is gone; it names the workspace, which is not.
pub(crate) fn gone_fault(gone: &Gone) -> Fault {
    let kept = match &gone.workspace {
        Some(name) => format!("; the workspace {name} is kept"),
        None => String::new(),
    };
    let message = format!("{}; open another one{kept}", gone.why.in_words());
    Fault::new(FaultCode::SessionLost, message)
        .with_details(serde_json::json!({ "workspace": gone.workspace, "reason": gone.why.as_str() }))
}
