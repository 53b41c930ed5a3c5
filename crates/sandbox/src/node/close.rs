//! Closing sessions: by their callers, with their run tree, and for the reasons of the sweeper.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hearth_telemetry::names::{field, span};
use hearth_types::{Fault, RunId, SandboxId};
use tracing::Instrument as _;

use crate::node::metrics::CLOSED;
use crate::node::open::put;
use crate::node::past::{Ended, Why};
use crate::node::session::{Job, Session, SessionUse, locked, start_job, visible};
use crate::node::state::Stage;
use crate::node::workspace::Workspace;
use crate::node::{Inner, blocking, fault};
use crate::{Caller, CloseRunResult, Error, ErrorKind};

/// A driver that takes longer is asked again by the next sweep.
pub(crate) const STOP_DEADLINE: Duration = Duration::from_secs(60);

/// Begins to close the session, whatever runs in it, or joins the close that is under way. True: it was
/// this call that began it.
pub(crate) fn begin(inner: &Arc<Inner>, session: &Arc<Session>, why: Why) -> (Job<()>, bool) {
    session.begin_close(why, |why, opening| job(inner, session, why, opening))
}

/// The same if `when` agrees.
pub(crate) fn begin_if(
    inner: &Arc<Inner>,
    session: &Arc<Session>,
    why: Why,
    when: impl FnOnce(SessionUse) -> bool,
) -> Option<Job<()>> {
    session.begin_close_if(why, when, |why, opening| job(inner, session, why, opening))
}

fn job(inner: &Arc<Inner>, session: &Arc<Session>, why: Why, opening: bool) -> Job<()> {
    let span = tracing::info_span!(
        span::SANDBOX_CLOSE,
        { field::SANDBOX_SESSION_ID } = %session.id(),
        { field::OUTCOME } = why.as_str(),
    );
    start_job("sandbox-close", carry_out(inner.clone(), session.clone(), why, opening).instrument(span))
}

async fn carry_out(inner: Arc<Inner>, session: Arc<Session>, why: Why, opening: bool) -> Result<(), Fault> {
    if opening {
        // The driver is asked for one thing after the other, and the open leaves nothing to be found late.
        session.opened().await.ok();
    }
    match take_down(&inner, &session, why).await {
        Ok(()) => {
            locked(&inner.table).remove(&session);
            CLOSED.with_label_values(&[why.as_str()]).inc();
            tracing::info!(session = %session.id(), reason = why.as_str(), "a sandbox session is closed");
            Ok(())
        }
        Err(error) => {
            session.not_stopped();
            tracing::warn!(
                session = %session.id(),
                error = &error as &dyn std::error::Error,
                "a sandbox session could not be stopped; the next sweep tries again"
            );
            Err(fault("close", &error))
        }
    }
}

async fn take_down(inner: &Arc<Inner>, session: &Arc<Session>, why: Why) -> Result<(), Error> {
    let driver = session.driver.as_ref().ok_or_else(no_driver)?;
    let _turn = session.driver_turn.lock().await;
    if let Err(error) = put(inner, session, Stage::Closing).await {
        // A disk that is full must not keep a session alive; at worst the next process finds it gone.
        tracing::warn!(error = &error as &dyn std::error::Error, "a close could not be recorded");
    }
    match tokio::time::timeout(STOP_DEADLINE, driver.stop(session.id())).await {
        Ok(stopped) => stopped?,
        Err(_) => return Err(Error::new(ErrorKind::Unavailable, "the session did not stop in time; try again")),
    }
    let (inner, session) = (inner.clone(), session.clone());
    blocking(move || {
        if why == Why::Failed {
            unmark(&inner, &session);
        } else if let Err(error) = locked(&inner.past).note_gone(session.gone(why)) {
            tracing::warn!(%error, "what became of a session could not be written down");
        }
        session.stop_noting();
        inner.state.remove(session.id())
    })
    .await
}

fn unmark(inner: &Inner, session: &Session) {
    let (Some(root), Some(name)) = (&inner.options.workspace_root, &session.record.workspace) else { return };
    if let Err(error) = Workspace::unmark(root, &session.record.principal, name, session.id()) {
        tracing::warn!(%error, workspace = name, "a mark may have been left in a workspace");
    }
}

pub(crate) fn no_driver() -> Error {
    let message = "the driver of this session is not at hand on this node now; try again later";
    Error::new(ErrorKind::Unavailable, message)
}

pub(crate) async fn one(inner: &Arc<Inner>, caller: &Caller, id: &SandboxId) -> Result<(), Fault> {
    let session = locked(&inner.table).get(id);
    match session {
        Some(session) if session.visible_to(caller) => begin(inner, &session, Why::Closed).0.await,
        Some(_) => Err(Fault::not_found()),
        None => match locked(&inner.past).gone(id) {
            Some(gone) if visible(caller, &gone.principal, gone.root_run.as_ref()) => Ok(()),
            _ => Err(Fault::not_found()),
        },
    }
}

/// Begins to close a session whose opener was not told of it, if nothing was done in it.
pub(crate) fn unclaimed(inner: &Arc<Inner>, caller: &Caller, id: &SandboxId) {
    let session = locked(&inner.table).get(id);
    let Some(session) = session.filter(|session| session.visible_to(caller) && session.is_its_openers()) else {
        return;
    };
    if begin_if(inner, &session, Why::Unclaimed, |seen| seen.untouched).is_some() {
        tracing::info!(session = %session.id(), "the opener of a session went away before it was told of it");
    }
}

pub(crate) async fn run_tree(
    inner: &Arc<Inner>,
    caller: &Caller,
    root_run: &RunId,
    tombstone: bool,
) -> Result<CloseRunResult, Fault> {
    if tombstone {
        let (inner, ended) = (inner.clone(), Ended { principal: caller.principal.clone(), root_run: root_run.clone() });
        blocking(move || {
            locked(&inner.past).note_ended(ended).map_err(|error| {
                Error::caused(ErrorKind::Unavailable, "the end of the run tree could not be written down", error)
            })
        })
        .await
        .map_err(|error| fault("close_run", &error))?;
    }
    let sessions = locked(&inner.table).of_tree(&caller.principal, root_run);
    let why = if tombstone { Why::RunEnded } else { Why::Closed };
    let mut jobs = Vec::with_capacity(sessions.len());
    let mut closed = 0;
    for session in &sessions {
        let (job, first) = begin(inner, session, why);
        closed += u64::from(first);
        jobs.push(job);
    }
    all_of(jobs).await?;
    Ok(CloseRunResult { closed })
}

pub(crate) async fn all(inner: &Arc<Inner>) -> Result<(), Fault> {
    let sessions = locked(&inner.table).sessions();
    all_of(sessions.iter().map(|session| begin(inner, session, Why::Closed).0).collect()).await
}

/// Ends sessions whose workspaces another node may open. How many there were.
pub(crate) async fn cut_off(inner: &Arc<Inner>, sessions: &[Arc<Session>]) -> usize {
    let jobs = sessions.iter().map(|session| begin(inner, session, Why::CutOff).0).collect::<Vec<_>>();
    let closed = jobs.len();
    if let Err(fault) = all_of(jobs).await {
        tracing::error!(%fault, "a session goes on whose workspace another node may open");
    }
    closed
}

/// Waits for all of them, then gives the first failure.
async fn all_of(jobs: Vec<Job<()>>) -> Result<(), Fault> {
    join_all(jobs).await.into_iter().collect()
}
