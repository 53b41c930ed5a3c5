//! From a session's id to its init, over the death of this process and the loss of the container.

use std::sync::Arc;
use std::time::Duration;

use hearth_types::{ExecId, Fault, SandboxId};
use tokio::time::Instant;

use crate::init::InitClient;
use crate::node::close::{self, no_driver};
use crate::node::commands;
use crate::node::open::START_DEADLINE;
use crate::node::past::Why;
use crate::node::session::{Live, Phase, Session, gone_fault, locked, visible};
use crate::node::{Homes, Inner, blocking, fault, lease};
use crate::{Caller, Error, ErrorKind, SessionState};

/// How long a session whose init is silent may take to be gone.
const DYING: Duration = Duration::from_secs(5);
const DYING_PAUSE: Duration = Duration::from_millis(100);

impl Inner {
    /// The session of a call, ready for use. An unknown id and another principal's are one answer.
    pub(crate) async fn find(self: &Arc<Self>, caller: &Caller, id: &SandboxId) -> Result<(Arc<Session>, Live), Fault> {
        let session = locked(&self.table).get(id);
        let Some(session) = session else {
            return Err(match locked(&self.past).gone(id) {
                Some(gone) if visible(caller, &gone.principal, gone.root_run.as_ref()) => gone_fault(gone),
                _ => Fault::not_found(),
            });
        };
        if !session.visible_to(caller) {
            return Err(Fault::not_found());
        }
        session.meets(caller)?;
        session.opened().await?;
        let live = match session.phase() {
            Phase::Live(live) => live,
            _ => self.attached(&session).await?,
        };
        Ok((session, live))
    }

    /// Makes sure that the session answers, and ends it if it is gone. Also what its `/work` holds, where that is a
    /// file system of its own.
    pub(crate) async fn alive(self: &Arc<Self>, session: &Arc<Session>) -> Result<(Live, Option<u64>), Fault> {
        let live = self.attached(session).await?;
        match live.client.ping().await {
            Ok(disk) => Ok((live, disk)),
            Err(error) => Err(self.examine(session, error).await),
        }
    }

    /// The connection of a session, which is found again first if it is of an earlier process.
    async fn attached(self: &Arc<Self>, session: &Arc<Session>) -> Result<Live, Fault> {
        match session.phase() {
            Phase::Live(live) => return Ok(live),
            Phase::Closing(why, _) | Phase::Unstopped(why) => return Err(session.gone_fault(why)),
            Phase::Opening => return Err(Fault::unavailable("the session is being opened; try again")),
            Phase::Detached => {}
        }
        match self.attach(session).await {
            Ok(live) => Ok(live),
            Err(error) if error.kind() == ErrorKind::SessionLost => Err(self.end_gone(session)),
            Err(error) => Err(fault("reattach", &error)),
        }
    }

    async fn attach(self: &Arc<Self>, session: &Arc<Session>) -> Result<Live, Error> {
        let driver = session.driver.as_ref().ok_or_else(no_driver)?;
        self.require_home(session).await?;
        let _turn = session.driver_turn.lock().await;
        if let Phase::Live(live) = session.phase() {
            return Ok(live);
        }
        let started = match tokio::time::timeout(START_DEADLINE, driver.reattach(&session.record.spec)).await {
            Ok(started) => started?,
            Err(_) => return Err(Error::new(ErrorKind::Unavailable, "the session did not answer in time; try again")),
        };
        let client = InitClient::connect(&started.socket).await?;
        lease::begin(self, session, &client).await?;
        let live = Live { client, started };
        let pending = self.pending_execs(session).await;
        // Commands are counted before the session can be taken for idle.
        if session.go_live(&live, self.clock.now()).is_err() {
            return Err(Error::new(ErrorKind::SessionLost, "the session was closed meanwhile"));
        }
        for exec_id in pending {
            commands::follow_again(self, session, &live, exec_id);
        }
        tracing::info!(session = %session.id(), "a sandbox session of an earlier process was found again");
        Ok(live)
    }

    /// A workspace that another node took over while no process of this one lived is that node's now.
    async fn require_home(&self, session: &Session) -> Result<(), Error> {
        let (Some((principal, name)), Some(root)) = (session.place(), self.options.workspace_root.clone()) else {
            return Ok(());
        };
        let home = blocking(move || Homes::on(&root).of(&principal, &name)).await?;
        match home {
            Some(home) if home.node != self.options.name => {
                let message = format!("the workspace of the session is on sandbox node {} now", home.node);
                Err(Error::new(ErrorKind::SessionLost, message))
            }
            _ => Ok(()),
        }
    }

    async fn pending_execs(self: &Arc<Self>, session: &Arc<Session>) -> Vec<ExecId> {
        let of = session.clone();
        let pending = blocking(move || {
            of.exec_log.pending().map_err(|error| Error::caused(ErrorKind::Unavailable, "its execs are unknown", error))
        });
        match pending.await {
            Ok(pending) => pending.into_iter().collect(),
            Err(error) => {
                tracing::warn!(session = %session.id(), error = &error as &dyn std::error::Error, "a log cannot be read");
                Vec::new()
            }
        }
    }

    /// What a failed call means: the session may be gone, and then it is ended here and now.
    pub(crate) async fn examine(self: &Arc<Self>, session: &Arc<Session>, error: Error) -> Fault {
        if !matches!(error.kind(), ErrorKind::SessionLost | ErrorKind::Unavailable | ErrorKind::Deadline) {
            return fault("call", &error);
        }
        let until = Instant::now() + DYING;
        loop {
            let live = match session.phase() {
                Phase::Closing(why, _) | Phase::Unstopped(why) => return session.gone_fault(why),
                Phase::Live(live) => live,
                Phase::Opening | Phase::Detached => return fault("call", &error),
            };
            if self.is_gone(session).await {
                return self.end_gone(session);
            }
            // A dead init takes its session along, but an engine needs a moment to notice.
            if live.client.ping().await.is_ok() || Instant::now() >= until {
                if error.kind() != ErrorKind::SessionLost {
                    return fault("call", &error);
                }
                let message = "the session does not answer; try again, or close it";
                return fault("call", &Error::caused(ErrorKind::Unavailable, message, error));
            }
            tokio::time::sleep(DYING_PAUSE).await;
        }
    }

    /// Ends a session of which nothing runs any more; what its callers are told.
    fn end_gone(self: &Arc<Self>, session: &Arc<Session>) -> Fault {
        let why = session.why_gone(self.clock.now());
        if why == Why::Lost {
            tracing::warn!(session = %session.id(), "a sandbox session is gone from outside");
        }
        drop(close::begin(self, session, why));
        session.gone_fault(why)
    }

    /// Whether the driver is sure that nothing of the session runs.
    pub(crate) async fn is_gone(self: &Arc<Self>, session: &Arc<Session>) -> bool {
        let Some(driver) = &session.driver else { return false };
        let _turn = session.driver_turn.lock().await;
        let seen = tokio::time::timeout(START_DEADLINE, driver.inspect(session.id())).await;
        matches!(seen, Ok(Ok(SessionState::Gone)))
    }
}
