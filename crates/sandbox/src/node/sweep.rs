//! The sweeper: compares what there is with what should be, and closes the difference.
//!
//! It takes no input; start, crash and every day go the same way. A session ends when its absolute time
//! is over, when its run tree has ended, when it was idle for too long, and when it is gone from outside.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use hearth_types::{RunId, Timestamp};
use tokio::time::Instant;

use crate::node::Inner;
use crate::node::close;
use crate::node::metrics::LEFTOVERS;
use crate::node::past::Why;
use crate::node::session::{Phase, Session, SessionUse, locked};
use crate::node::usage;
use crate::{Liveness, SessionUsage, SharedDriver};

/// Questions to drivers and to run trees at once.
const WIDTH: usize = 16;
/// How long a look at a list counts.
const LOOKED_WITHIN: Duration = Duration::from_secs(30);
const LIVENESS_DEADLINE: Duration = Duration::from_secs(2);
const LIST_DEADLINE: Duration = Duration::from_secs(30);
/// Looking for containers without a record is done at the first sweep, then at every so many.
const LEFTOVERS_EVERY: u64 = 12;

/// Between two looks at what is due, at the least.
const SHORTEST: Duration = Duration::from_millis(20);

pub(crate) async fn run(inner: Weak<Inner>) {
    let mut turn: u64 = 0;
    let mut next = Instant::now();
    let mut seen = Timestamp::from_millis(0);
    loop {
        let Some(node) = inner.upgrade() else { return };
        let now = node.clock.now();
        if Instant::now() >= next {
            once(&node).await;
            if turn.is_multiple_of(LEFTOVERS_EVERY) {
                remove_leftovers(&node).await;
            }
            turn += 1;
            next = Instant::now() + node.options.sweep_interval;
        } else {
            end_due(&node, seen, now).await;
        }
        seen = now;
        let pause = until_due(&node).min(next.saturating_duration_since(Instant::now()));
        drop(node);
        tokio::time::sleep(pause.max(SHORTEST)).await;
    }
}

/// Until the next session could be idle for too long, or at its absolute end. One that is opened meanwhile cannot
/// be due before its idle time is over.
fn until_due(inner: &Inner) -> Duration {
    let now = inner.clock.now();
    let sessions = locked(&inner.table).sessions();
    let due = sessions.iter().filter_map(|session| session.due_at(inner.options.idle_ttl)).filter(|at| *at > now);
    due.map(|at| at.since(now)).min().unwrap_or(Duration::MAX).min(inner.options.idle_ttl)
}

/// Looks at those that came due after `seen`: a session ends when it is due, and not at the sweep after that.
async fn end_due(inner: &Arc<Inner>, seen: Timestamp, now: Timestamp) {
    let mut sessions = locked(&inner.table).sessions();
    sessions.retain(|session| session.due_at(inner.options.idle_ttl).is_some_and(|at| at > seen && at <= now));
    look_at(inner, sessions).await;
}

pub(crate) async fn once(inner: &Arc<Inner>) {
    let sessions = locked(&inner.table).sessions();
    usage::look(inner, &sessions).await;
    look_at(inner, sessions).await;
}

async fn look_at(inner: &Arc<Inner>, sessions: Vec<Arc<Session>>) {
    let trees = liveness(inner, &sessions).await;
    let looks = sessions.into_iter().map(|session| {
        let tree = session.record.spec.root_run.as_ref().and_then(|run| trees.get(run)).copied();
        look(inner, session, tree)
    });
    futures::stream::iter(looks).buffer_unordered(WIDTH).collect::<Vec<()>>().await;
}

/// Each tree is asked about once.
async fn liveness(inner: &Arc<Inner>, sessions: &[Arc<Session>]) -> HashMap<RunId, Liveness> {
    let mut roots: Vec<RunId> = sessions.iter().filter_map(|session| session.record.spec.root_run.clone()).collect();
    roots.sort();
    roots.dedup();
    let ask = |root: RunId| async move {
        let answer = tokio::time::timeout(LIVENESS_DEADLINE, inner.liveness.liveness(&root)).await;
        (root, answer.unwrap_or(Liveness::Unknown))
    };
    futures::stream::iter(roots.into_iter().map(ask)).buffer_unordered(WIDTH).collect().await
}

async fn look(inner: &Arc<Inner>, session: Arc<Session>, tree: Option<Liveness>) {
    let past_saving = session.driver.is_none() && session.record.spec.deadline <= inner.clock.now();
    match session.phase() {
        Phase::Opening | Phase::Closing(..) => {}
        // Its driver is not at hand, but its init has ended by itself; what is left of it is found, as a
        // leftover, once the driver is back.
        Phase::Detached | Phase::Unstopped(_) if past_saving => forget(inner, &session),
        Phase::Unstopped(why) => drop(close::begin(inner, &session, why)),
        Phase::Detached | Phase::Live(_) => {
            let now = inner.clock.now();
            let idle_ttl = inner.options.idle_ttl;
            if let Some(why) = fixed_end(session.record.spec.deadline, tree, now) {
                drop(close::begin(inner, &session, why));
            } else if may_idle(tree)
                && close::begin_if(inner, &session, Why::Idle, |seen| is_idle(seen, idle_ttl, now)).is_some()
            {
                tracing::debug!(session = %session.id(), "a sandbox session was idle for too long");
            } else {
                // A sign of life for the init, and the proof that it is there; a session that is gone ends here.
                if let Ok(disk) = inner.alive(&session).await.map(|(_, disk)| disk) {
                    measure(inner, &session, disk).await;
                }
            }
        }
    }
}

/// What a session uses is asked only while somebody looks: an engine takes its time for it.
async fn measure(inner: &Arc<Inner>, session: &Session, disk: Option<u64>) {
    let looked_at = Timestamp::from_millis(inner.looked_at.load(Ordering::Relaxed));
    if inner.clock.now().since(looked_at) > LOOKED_WITHIN {
        return session.uses(None);
    }
    let Some(driver) = &session.driver else { return };
    match tokio::time::timeout(LIVENESS_DEADLINE, driver.usage(session.id())).await {
        Ok(Ok(Some(usage))) => {
            let disk_bytes = match session.place() {
                Some(place) => usage::known_bytes(inner, &place).await,
                None => usage.disk_bytes.or(disk),
            };
            session.uses(Some(SessionUsage { disk_bytes, ..usage }));
        }
        Ok(Ok(None)) => session.uses(None),
        Ok(Err(error)) => tracing::debug!(error = &error as &dyn std::error::Error, "a session's usage is not known"),
        Err(_) => {}
    }
}

/// The ends that come whatever the session does.
fn fixed_end(deadline: Timestamp, tree: Option<Liveness>, now: Timestamp) -> Option<Why> {
    if now >= deadline {
        return Some(Why::Expired);
    }
    (tree == Some(Liveness::Ended)).then_some(Why::RunEnded)
}

/// A tree that lives, or of which nothing is known, holds its sessions.
fn may_idle(tree: Option<Liveness>) -> bool {
    match tree {
        None | Some(Liveness::Unheld) => true,
        Some(Liveness::Alive | Liveness::Unknown | Liveness::Ended) => false,
    }
}

fn is_idle(seen: SessionUse, idle_ttl: Duration, now: Timestamp) -> bool {
    !seen.busy && now.since(seen.last_used) >= idle_ttl
}

fn forget(inner: &Arc<Inner>, session: &Session) {
    session.stop_noting();
    if let Err(error) = inner.state.remove(session.id()) {
        tracing::warn!(error = &error as &dyn std::error::Error, "a record could not be removed");
        return;
    }
    locked(&inner.table).remove(session);
}

/// Stops what a driver has of this node's and the node does not know: a record is written before
/// anything of a session exists, so these are remains of a state that was lost.
async fn remove_leftovers(inner: &Arc<Inner>) {
    for driver in &inner.drivers {
        let owned = match tokio::time::timeout(LIST_DEADLINE, driver.owned()).await {
            Ok(Ok(owned)) => owned,
            Ok(Err(error)) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "leftovers could not be looked for");
                continue;
            }
            Err(_) => continue,
        };
        for id in owned {
            // In this order: an open takes a session from the pool into the table.
            let pooled = locked(&inner.pool).holds(&id);
            if !pooled && locked(&inner.table).get(&id).is_none() {
                stop_leftover(driver, &id).await;
            }
        }
    }
}

async fn stop_leftover(driver: &SharedDriver, id: &hearth_types::SandboxId) {
    tracing::warn!(session = %id, driver = driver.kind(), "something is left of a session that is not known; removing it");
    match tokio::time::timeout(close::STOP_DEADLINE, driver.stop(id)).await {
        Ok(Ok(())) => LEFTOVERS.with_label_values(&[driver.kind()]).inc(),
        Ok(Err(error)) => tracing::warn!(error = &error as &dyn std::error::Error, "it could not be removed"),
        Err(_) => tracing::warn!("it could not be removed in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(100_000);
    const TTL: Duration = Duration::from_secs(10);

    #[test]
    fn a_live_or_unknown_tree_holds_its_sessions() {
        assert!(may_idle(None) && may_idle(Some(Liveness::Unheld)));
        assert!(!may_idle(Some(Liveness::Alive)) && !may_idle(Some(Liveness::Unknown)));
    }

    #[test]
    fn the_absolute_time_out_ends_it_in_any_case() {
        for tree in [None, Some(Liveness::Alive), Some(Liveness::Unknown)] {
            assert_eq!(fixed_end(NOW, tree, NOW), Some(Why::Expired));
            assert_eq!(fixed_end(NOW.plus(TTL), tree, NOW), None);
        }
        assert_eq!(fixed_end(NOW.plus(TTL), Some(Liveness::Ended), NOW), Some(Why::RunEnded));
    }

    #[test]
    fn idle_counts_from_the_last_end_and_never_while_something_runs() {
        let used = |ago: u64, busy| SessionUse {
            busy,
            untouched: false,
            last_used: Timestamp::from_millis(NOW.as_millis() - i64::try_from(ago).unwrap() * 1_000),
        };
        assert!(is_idle(used(10, false), TTL, NOW));
        assert!(!is_idle(used(9, false), TTL, NOW));
        assert!(!is_idle(used(9_999, true), TTL, NOW));
    }
}
