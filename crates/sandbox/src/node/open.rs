//! `open`: one shared session per run tree, image and workspace; or one of the caller's own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hearth_telemetry::names::{field, span};
use hearth_types::{Fault, FaultCode, SandboxId, check_id};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::init::InitClient;
use crate::node::metrics::OPEN_SECONDS;
use crate::node::past::Why;
use crate::node::policy::{self, Plan};
use crate::node::pool::{Member, Shape};
use crate::node::session::{Job, Live, Phase, Session, locked, start_job};
use crate::node::state::{Record, Stage};
use crate::node::table;
use crate::node::workspace::Workspace;
use crate::node::workspaces::take_home;
use crate::node::{Inner, blocking, close, fault, lease};
use crate::{Caller, Error, ErrorKind, Network, OpenArgs, OpenResult, SessionSpec, SharedDriver, Work};

/// A driver that takes longer is taken for hung.
pub(crate) const START_DEADLINE: Duration = Duration::from_secs(120);
/// How often an open that meets a session on its way out waits for that and looks again.
const MAX_LOOKS: usize = 8;

enum Claim {
    /// This open made it.
    Fresh(Arc<Session>),
    /// It was there already, or another open is making it.
    There(Arc<Session>),
    /// One is on its way out; look again after that.
    Leaving(Job<()>),
}

pub(crate) async fn open(inner: &Arc<Inner>, caller: &Caller, args: &OpenArgs) -> Result<OpenResult, Fault> {
    let began = Instant::now();
    let opened = claim_and_open(inner, caller, args).await;
    let outcome = match &opened {
        Ok(result) if result.warm => "warm",
        Ok(_) => "cold",
        Err(_) => "failed",
    };
    OPEN_SECONDS.with_label_values(&[outcome]).observe(began.elapsed().as_secs_f64());
    opened
}

async fn claim_and_open(inner: &Arc<Inner>, caller: &Caller, args: &OpenArgs) -> Result<OpenResult, Fault> {
    if check_id(&caller.principal).is_err() {
        return Err(Fault::new(FaultCode::PermissionDenied, "the call names no tenant; sessions belong to one"));
    }
    let plan = policy::plan(args, &inner.options, &inner.drivers)?;
    for _ in 0..MAX_LOOKS {
        match claim(inner, caller, &plan)? {
            Claim::Fresh(session) => {
                let unclaimed = Unclaimed::new(inner, &session);
                let opened = session.opened().await;
                unclaimed.claimed();
                opened?;
                return answer(inner, &session, session.pooled());
            }
            Claim::There(session) => {
                session.opened().await?;
                match there(inner, caller, &plan, &session).await? {
                    Some(result) => return Ok(result),
                    None => continue,
                }
            }
            // A session that could not be stopped keeps its place; the new one does not wait for it.
            Claim::Leaving(job) => drop(job.await),
        }
    }
    Err(Fault::unavailable("the session is being closed again and again; try again"))
}

/// A session that nobody could find again but its opener: it goes if the opener has gone away before it was told the
/// id.
struct Unclaimed {
    of: Option<(Arc<Inner>, Arc<Session>)>,
}

impl Unclaimed {
    fn new(inner: &Arc<Inner>, session: &Arc<Session>) -> Self {
        Self { of: session.is_its_openers().then(|| (inner.clone(), session.clone())) }
    }

    fn claimed(mut self) {
        self.of = None;
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        if let Some((inner, session)) = self.of.take() {
            tracing::debug!(session = %session.id(), "the opener of a session went away before it was told of it");
            drop(close::begin(&inner, &session, Why::Failed));
        }
    }
}

/// The session that is there already, if it still is and is what was asked for.
async fn there(
    inner: &Arc<Inner>,
    caller: &Caller,
    plan: &Plan,
    session: &Arc<Session>,
) -> Result<Option<OpenResult>, Fault> {
    let live = match inner.alive(session).await {
        Ok((live, _)) => live,
        Err(fault) if fault.code == FaultCode::SessionLost => return Ok(None),
        Err(fault) => return Err(fault),
    };
    plan.asked.check(session.existing(&live.started.runtime))?;
    session.renew(inner.clock.now());
    // The same call again gets the same answer as the first time.
    let again = caller.call.is_some() && caller.call == session.record.call;
    answer(inner, session, !again || session.pooled()).map(Some)
}

fn answer(inner: &Inner, session: &Session, warm: bool) -> Result<OpenResult, Fault> {
    let live = match session.phase() {
        Phase::Live(live) => live,
        Phase::Closing(why, _) | Phase::Unstopped(why) => return Err(session.gone_fault(why)),
        Phase::Opening | Phase::Detached => return Err(Fault::internal("an open session has no connection")),
    };
    let row = session.row(inner.options.idle_ttl, inner.clock.now()).ok_or_else(|| session.gone_fault(Why::Closed))?;
    Ok(OpenResult {
        session_id: row.session_id,
        workspace_path: live.started.workspace_path,
        persistent: row.workspace.is_some(),
        network: row.network,
        isolation: row.isolation,
        runtime: live.started.runtime,
        limits: session.record.spec.limits,
        expires_at: row.expires_at,
        idle_expires_at: row.idle_expires_at,
        node: row.node,
        warm,
        notice: notice(inner, session),
    })
}

/// What the level does not hold on this host, and what this session may do beyond it.
fn notice(inner: &Inner, session: &Session) -> Option<String> {
    let durable = format!(
        "the workspace may hold {} MiB, which is measured every few seconds: what goes on writing past it is ended",
        inner.options.max_workspace_mb
    );
    let egress =
        "egress reaches public addresses only: neither the host nor private ranges, a name server there included";
    let spec = &session.record.spec;
    let writes = matches!(spec.work, Work::Durable { read_only: false, .. });
    let parts = [
        session.driver.as_ref().and_then(|driver| driver.notice()),
        writes.then_some(durable),
        (spec.network == Network::Egress).then(|| egress.to_owned()),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Decides, under the table's lock, which session this open is about, and makes it if there is none.
fn claim(inner: &Arc<Inner>, caller: &Caller, plan: &Plan) -> Result<Claim, Fault> {
    let driver = inner.drivers.get(plan.driver).ok_or_else(|| Fault::internal("the plan names no driver"))?;
    let mut record = record(inner, caller, plan, driver);
    let key = table::key(&record);
    let mut table = locked(&inner.table);
    if let Some(root_run) = &caller.root_run
        && locked(&inner.past).has_ended(&caller.principal, root_run)
    {
        return Err(Fault::new(FaultCode::RunEnded, "the run tree has ended; it opens no sessions any more"));
    }
    if let Some(session) = key.as_ref().and_then(|key| table.find(key)) {
        match session.phase() {
            Phase::Closing(_, job) => return Ok(Claim::Leaving(job)),
            Phase::Unstopped(_) => {}
            Phase::Opening | Phase::Live(_) | Phase::Detached => return Ok(Claim::There(session)),
        }
    }
    if inner.draining.load(Ordering::Relaxed) {
        return Err(Fault::new(
            FaultCode::Draining,
            "this sandbox node ends and takes no new sessions; use another one",
        ));
    }
    table.require_room()?;
    if let Some(name) = &record.workspace {
        table.require_unheld(&(record.principal.clone(), name.clone()))?;
    }
    let member = Shape::of(plan, driver).and_then(|shape| locked(&inner.pool).take(&shape, record.created_at));
    if let Some(member) = &member {
        record.spec.session = member.id().clone();
        record.pooled = true;
    }
    let session = Session::new(record, Some(driver.clone()), Phase::Opening, &inner.state, inner.clock.now());
    table.insert(session.clone(), key);
    let spec = &session.record.spec;
    let span = tracing::info_span!(
        span::SANDBOX_OPEN,
        { field::SANDBOX_SESSION_ID } = %spec.session,
        { field::ROOT_RUN_ID } = spec.root_run.as_ref().map(tracing::field::display),
        { field::ISOLATION } = session.record.isolation.as_str(),
    );
    let task = carry_out(inner.clone(), session.clone(), driver.clone(), member).instrument(span);
    session.set_opening(start_job("sandbox-open", task));
    Ok(Claim::Fresh(session))
}

fn record(inner: &Inner, caller: &Caller, plan: &Plan, driver: &SharedDriver) -> Record {
    let now = inner.clock.now();
    let own = plan.own || caller.root_run.is_none();
    let work = match (&plan.workspace, &inner.options.workspace_root) {
        (Some(name), Some(root)) => {
            Work::Durable { host_dir: root.join(&caller.principal).join(name), read_only: plan.read_only }
        }
        _ => Work::Tmpfs { mb: plan.limits.tmpfs_mb.unwrap_or_default() },
    };
    Record {
        spec: SessionSpec {
            session: SandboxId::generate(),
            root_run: caller.root_run.clone(),
            node: inner.options.name.clone(),
            image: plan.image.clone(),
            work,
            network: plan.network,
            limits: plan.limits,
            runtime: plan.runtime.clone(),
            deadline: now.plus(inner.options.max_ttl),
            env: BTreeMap::new(),
        },
        kind: driver.kind().to_owned(),
        isolation: driver.isolation(),
        principal: caller.principal.clone(),
        workspace: plan.workspace.clone(),
        own,
        call: caller.call.clone(),
        opened_by: caller.run.clone(),
        created_at: now,
        stage: Stage::Opening,
        pooled: false,
    }
}

/// The task of an open. Whatever fails, nothing is left behind, or what is left keeps its place until
/// the sweeper has removed it.
async fn carry_out(
    inner: Arc<Inner>,
    session: Arc<Session>,
    driver: SharedDriver,
    member: Option<Member>,
) -> Result<(), Fault> {
    if let Some(member) = member {
        match take_over(&inner, &session, member).await {
            Ok(live) => return session.go_live(&live, inner.clock.now()),
            Err(error) => {
                tracing::warn!(session = %session.id(), error = &error as &dyn std::error::Error, "a session of the pool could not be used; it is started anew");
                session.set_cold();
            }
        }
    }
    let brought = match prepare(&inner, &session, &driver).await {
        Ok(workspace) => Box::pin(bring_up(&inner, &session, &driver, workspace)).await,
        Err(error) if !session.record.pooled => {
            locked(&inner.table).remove(&session);
            return Err(refusal(&session, &error));
        }
        Err(error) => Err(error),
    };
    let error = match brought {
        Ok(live) => return session.go_live(&live, inner.clock.now()),
        Err(error) => error,
    };
    let refusal = refusal(&session, &error);
    if matches!(session.phase(), Phase::Opening) {
        session.not_opened();
        drop(close::begin(&inner, &session, Why::Failed).0.await);
    }
    Err(refusal)
}

/// A session from the pool runs already: what is left is to see that it answers, and to write down whose it
/// is. Until then its record in the pool stands, so that a crash leaves nothing unknown.
async fn take_over(inner: &Arc<Inner>, session: &Session, member: Member) -> Result<Live, Error> {
    let client = InitClient::connect(&member.started.socket).await?;
    put(inner, session, Stage::Open).await?;
    let (node, id) = (inner.clone(), session.id().clone());
    blocking(move || node.state.remove_pooled(&id)).await?;
    Ok(Live { client, started: member.started })
}

fn refusal(session: &Session, error: &Error) -> Fault {
    tracing::warn!(session = %session.id(), error = error as &dyn std::error::Error, "a session could not be opened");
    fault("open", error)
}

/// What can fail before anything of the session exists. The driver is asked first: while it is out of
/// reach, what it may have left behind could not be removed either, and would take up a place.
async fn prepare(inner: &Arc<Inner>, session: &Session, driver: &SharedDriver) -> Result<Option<Workspace>, Error> {
    match tokio::time::timeout(START_DEADLINE, driver.inspect(session.id())).await {
        Ok(seen) => drop(seen?),
        Err(_) => return Err(Error::new(ErrorKind::Unavailable, "the driver did not answer in time; try again")),
    }
    open_workspace(inner, session).await
}

async fn bring_up(
    inner: &Arc<Inner>,
    session: &Session,
    driver: &SharedDriver,
    workspace: Option<Workspace>,
) -> Result<Live, Error> {
    let spec = &session.record.spec;
    put(inner, session, Stage::Opening).await?;
    let _turn = session.driver_turn.lock().await;
    if session.record.pooled {
        // What came from the pool under this id did not answer.
        driver.stop(session.id()).await?;
    }
    let started = match tokio::time::timeout(START_DEADLINE, driver.start(spec)).await {
        Ok(started) => started?,
        Err(_) => return Err(Error::new(ErrorKind::Deadline, "the session did not come up in time; try again")),
    };
    let client = InitClient::connect(&started.socket).await?;
    if let Some(workspace) = workspace {
        let read_only = matches!(spec.work, Work::Durable { read_only: true, .. });
        verify_mount(workspace, read_only, &client, spec).await?;
        lease::begin(inner, session, &client).await?;
    }
    put(inner, session, Stage::Open).await?;
    Ok(Live { client, started })
}

async fn open_workspace(inner: &Arc<Inner>, session: &Session) -> Result<Option<Workspace>, Error> {
    let (Some(name), Some(root)) = (session.record.workspace.clone(), inner.options.workspace_root.clone()) else {
        return Ok(None);
    };
    let principal = session.record.principal.clone();
    take_home(inner, &principal, &name).await?;
    blocking(move || Workspace::ensure(&root, &principal, &name)).await.map(Some)
}

/// Whether the session has as its `/work` the very directory that was opened, and not one that was put
/// in its place before the driver mounted it.
async fn verify_mount(
    workspace: Workspace,
    read_only: bool,
    client: &InitClient,
    spec: &SessionSpec,
) -> Result<(), Error> {
    let session = spec.session.clone();
    let (mark, workspace) = blocking(move || Ok((workspace.mark(&session)?, workspace))).await?;
    let seen = client.read(&mark.name, 0, 1).await;
    drop(mark);
    match seen {
        Ok(_) if read_only => Ok(()),
        Ok(_) => blocking(move || workspace.make_home()).await,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Refused) => Err(Error::caused(
            ErrorKind::Refused,
            "the workspace's folder was replaced while it was opened; the operator has to look at it",
            error,
        )),
        Err(error) => Err(error),
    }
}

/// Writes the session's record with another stage.
pub(crate) async fn put(inner: &Arc<Inner>, session: &Session, stage: Stage) -> Result<(), Error> {
    let (inner, record) = (inner.clone(), Record { stage, pooled: session.pooled(), ..session.record.clone() });
    blocking(move || inner.state.put(&record)).await
}
