//! Workspaces on a storage that other nodes use too: they are open here only while the cluster knows of this node.
//!
//! Another node takes such a workspace over once this one has been absent from the registry for long enough. By
//! then nothing here may use it any more, whether this process lives, hangs or is dead. So each init is told until
//! when its session may go on, again and again, and ends it by itself when the word does not come.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;

use crate::init::InitClient;
use crate::node::session::{Phase, Session, locked};
use crate::node::{Homes, Inner, blocking, close};
use crate::{Error, ErrorKind};

/// Sessions that are told at once.
const WIDTH: usize = 64;

/// How this node stands with a cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Standing {
    /// Nobody has said; there may be none.
    Apart,
    /// No other node takes anything from this one until then.
    Registered {
        until: Instant,
    },
    CutOff,
}

/// Ends the sessions that another node may soon take for its own.
pub(crate) async fn leave(inner: &Arc<Inner>) -> usize {
    *locked(&inner.standing) = Standing::CutOff;
    let sessions = durable(inner);
    if sessions.is_empty() || !storage_is_shared(inner).await.unwrap_or(true) {
        return 0;
    }
    close::cut_off(inner, &sessions).await
}

pub(crate) async fn registered(inner: &Arc<Inner>, until: Instant) {
    *locked(&inner.standing) = Standing::Registered { until };
    let sessions = durable(inner);
    if sessions.is_empty() || !storage_is_shared(inner).await.unwrap_or(true) {
        return;
    }
    // What is not connected yet is told as soon as it is.
    let live = sessions.into_iter().filter_map(|session| match session.phase() {
        Phase::Live(live) => Some((session, live)),
        _ => None,
    });
    let tell = |(session, live): (Arc<Session>, crate::node::session::Live)| async move {
        if let Err(error) = live.client.lease(left(until)).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(session = %session.id(), error, "a session could not be told that its workspace is still its own");
        }
    };
    futures::stream::iter(live.map(tell)).buffer_unordered(WIDTH).collect::<Vec<()>>().await;
}

/// For a session that is about to be used.
pub(crate) async fn begin(inner: &Arc<Inner>, session: &Session, client: &InitClient) -> Result<(), Error> {
    let Standing::Registered { until } = *locked(&inner.standing) else { return Ok(()) };
    if session.record.workspace.is_none() || !storage_is_shared(inner).await? {
        return Ok(());
    }
    if left(until).is_zero() {
        return Err(refused());
    }
    client.lease(left(until)).await
}

/// Refuses workspaces while another node may take them.
pub(crate) async fn require_cluster(inner: &Arc<Inner>) -> Result<(), Error> {
    let cut_off = matches!(*locked(&inner.standing), Standing::CutOff);
    if cut_off && storage_is_shared(inner).await? { Err(refused()) } else { Ok(()) }
}

fn refused() -> Error {
    let message = "this sandbox node is cut off from its cluster, and others use the storage; try again later";
    Error::new(ErrorKind::Unavailable, message)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

fn durable(inner: &Inner) -> Vec<Arc<Session>> {
    let mut sessions = locked(&inner.table).sessions();
    sessions.retain(|session| session.record.workspace.is_some());
    sessions
}

async fn storage_is_shared(inner: &Inner) -> Result<bool, Error> {
    let Some(root) = inner.options.workspace_root.clone() else { return Ok(false) };
    let name = inner.options.name.clone();
    blocking(move || Ok(Homes::on(&root).shared_by_others(&name))).await
}
