//! How big workspaces are, and what is done about one that grows too big.
//!
//! Few hosts can hold a folder to a size, so it is measured: while commands run that may write to it, every few
//! seconds, and now and then as long as a session has it, since a command may have left something behind that writes.
//! Past its limit a workspace takes no more writes, and commands under which it goes on growing are ended; others may
//! run, to make room. Where it grows without a command, the session is ended.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use hearth_types::{Fault, FaultCode, Timestamp};
use tokio::time::Instant;

use crate::node::Inner;
use crate::node::archive::Size;
use crate::node::close;
use crate::node::metrics::WORKSPACE_STOPS;
use crate::node::past::Why;
use crate::node::session::{Phase, Session, locked};
use crate::node::workspaces::{Place, limit_bytes, measure};

/// How old a size may be that a list shows.
const FRESH: Duration = Duration::from_secs(10);
/// Between two looks at a workspace, and as a multiple of what the last one took: large ones are not walked
/// all the time.
const PAUSE: Duration = Duration::from_secs(3);
const SHARE: u32 = 10;
/// The same while nothing is known to write.
const SELDOM: Duration = Duration::from_secs(30);
const SELDOM_SHARE: u32 = 100;
/// Workspaces whose size is remembered.
const MAX_KNOWN: usize = 4_096;

#[derive(Debug, Clone, Copy)]
struct Known {
    size: Size,
    before: u64,
    at: Timestamp,
    looked: Instant,
    took: Duration,
    /// Something was used before it, and may have left behind what writes.
    after_use: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Usage(HashMap<Place, Known>);

impl Usage {
    pub(crate) fn note(&mut self, place: &Place, size: Size, at: Timestamp, took: Duration) {
        if self.0.len() >= MAX_KNOWN && !self.0.contains_key(place) {
            self.0.clear();
        }
        let before = self.0.get(place).map_or(size.bytes, |known| known.size.bytes);
        self.0.insert(place.clone(), Known { size, before, at, looked: Instant::now(), took, after_use: false });
    }

    fn was_used(&mut self, place: &Place, used: bool) {
        if let Some(known) = self.0.get_mut(place) {
            known.after_use = used;
        }
    }

    pub(crate) fn forget(&mut self, place: &Place) {
        self.0.remove(place);
    }

    pub(crate) fn fresh(&self, place: &Place) -> Option<(Size, Timestamp)> {
        let known = self.0.get(place).filter(|known| known.looked.elapsed() < FRESH.max(known.took * SHARE))?;
        Some((known.size, known.at))
    }

    fn is_due(&self, place: &Place, written: impl FnOnce() -> bool) -> bool {
        let Some(known) = self.0.get(place) else { return true };
        let age = known.looked.elapsed();
        age >= SELDOM.max(known.took * SELDOM_SHARE)
            || (age >= PAUSE.max(known.took * SHARE)
                && (known.size.bytes > known.before || known.after_use || written()))
    }

    fn bytes(&self, place: &Place) -> Option<u64> {
        self.0.get(place).map(|known| known.size.bytes)
    }

    /// Whether the last look found more than the one before, and more than there may be.
    fn grows_past(&self, place: &Place, limit: u64) -> bool {
        self.0.get(place).is_some_and(|known| known.size.bytes > limit && known.size.bytes > known.before)
    }
}

/// Refuses a write to a workspace that is too big already.
pub(crate) fn check_room(inner: &Inner, session: &Session) -> Result<(), Fault> {
    let Some(place) = session.place() else { return Ok(()) };
    let limit = limit_bytes(inner);
    match locked(&inner.usage).bytes(&place) {
        Some(bytes) if bytes > limit => Err(Fault::new(
            FaultCode::QuotaExceeded,
            format!("the workspace holds {bytes} bytes, and may hold {limit}; remove something with a command"),
        )),
        _ => Ok(()),
    }
}

/// What a workspace holds, as it was measured last; measured now if it never was.
pub(crate) async fn known_bytes(inner: &Arc<Inner>, place: &Place) -> Option<u64> {
    if let Some(bytes) = locked(&inner.usage).bytes(place) {
        return Some(bytes);
    }
    measure(inner, place).await.ok().map(|(size, _)| size.bytes)
}

/// Measures the workspaces in which something may be written now, or was since they were measured last, and the others
/// of open sessions now and then.
pub(crate) async fn look(inner: &Arc<Inner>, sessions: &[Arc<Session>]) {
    let due = |session: &Arc<Session>| {
        let place = session.place().filter(|_| session.writes_durably())?;
        locked(&inner.usage).is_due(&place, || session.may_have_written()).then_some(place)
    };
    let places: BTreeSet<Place> = sessions.iter().filter_map(due).collect();
    for place in places {
        let having: Vec<&Arc<Session>> = sessions
            .iter()
            .filter(|session| session.writes_durably() && session.place().as_ref() == Some(&place))
            .collect();
        // All of them are asked.
        let used = having.iter().map(|session| session.take_written()).fold(false, |one, other| one | other);
        if let Err(error) = measure(inner, &place).await {
            tracing::debug!(error = &error as &dyn std::error::Error, "a workspace could not be measured");
            continue;
        }
        locked(&inner.usage).was_used(&place, used);
        if locked(&inner.usage).grows_past(&place, limit_bytes(inner)) {
            // What a command wrote that has ended meanwhile is no growth without a command.
            let left_behind = !used && !having.iter().any(|session| session.may_have_written());
            stop_growth(inner, &having, &place, left_behind).await;
        }
    }
}

async fn stop_growth(inner: &Arc<Inner>, sessions: &[&Arc<Session>], place: &Place, left_behind: bool) {
    for session in sessions {
        if left_behind {
            tracing::warn!(session = %session.id(), workspace = place.1, "a workspace is over its limit and grows without a command; the session is ended");
            WORKSPACE_STOPS.inc();
            drop(close::begin(inner, session, Why::Overgrown));
            continue;
        }
        let Phase::Live(live) = session.phase() else { continue };
        for exec_id in session.running() {
            tracing::warn!(session = %session.id(), %exec_id, workspace = place.1, "a workspace is over its limit and grows; a command is ended");
            WORKSPACE_STOPS.inc();
            if let Err(error) = live.client.kill(&exec_id).await {
                tracing::debug!(error = &error as &dyn std::error::Error, "it could not be ended");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_is_over_its_limit_and_grows_is_stopped() {
        let mut usage = Usage::default();
        let place = ("acme".to_owned(), "build".to_owned());
        let mut note = |bytes| {
            usage.note(&place, Size { bytes, files: 1 }, Timestamp::from_millis(0), Duration::ZERO);
            usage.grows_past(&place, 100)
        };
        assert!(!note(90) && !note(95), "within its limit");
        assert!(note(120) && note(130));
        assert!(!note(130) && !note(110), "a command that makes room may run");
    }
}
