//! Which MCP sessions there are, whose they are, and when they end.
//!
//! A session holds nothing but the streams of its answers: what a call may do follows from the headers of
//! its own request. So ending one early costs its client a new handshake and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::Owner;
use crate::metrics::SESSIONS;

struct Entry {
    owner: Owner,
    /// Requests and streams under way.
    open: usize,
    last_used: Instant,
    /// When its client last asked for a stream that it had lost.
    taken_up: Option<Instant>,
}

#[derive(Default)]
struct Table {
    entries: HashMap<String, Entry>,
    /// Places of handshakes under way.
    reserved: usize,
    /// Of sessions that are to be closed.
    ended: Vec<String>,
}

pub(crate) struct Sessions {
    max: usize,
    /// How many an owner may have before its own oldest gives way.
    share: usize,
    idle: Duration,
    table: Mutex<Table>,
}

impl Sessions {
    pub(crate) fn new(max: usize, idle: Duration) -> Arc<Self> {
        Arc::new(Self { max, share: (max / 4).max(1), idle, table: Mutex::default() })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a session that is about to begin. None: the table is full.
    pub(crate) fn reserve(self: &Arc<Self>, owner: &Owner) -> Option<Place> {
        let mut table = self.table();
        let own = table.entries.values().filter(|entry| entry.owner == *owner).count();
        if own >= self.share {
            let idle = table.entries.iter().filter(|(_, entry)| entry.owner == *owner && entry.open == 0);
            let oldest = idle.min_by_key(|(_, entry)| entry.last_used).map(|(id, _)| id.clone());
            if let Some(oldest) = oldest {
                table.end(oldest);
            }
        }
        if table.entries.len() + table.reserved >= self.max {
            return None;
        }
        table.reserved += 1;
        Some(Place { sessions: self.clone() })
    }

    /// A request of a session. None: it is unknown, or another owner's.
    pub(crate) fn begin(self: &Arc<Self>, id: &str, owner: &Owner) -> Option<Use> {
        let mut table = self.table();
        let entry = table.entries.get_mut(id).filter(|entry| entry.owner == *owner)?;
        entry.open += 1;
        Some(Use { sessions: self.clone(), id: id.to_owned() })
    }

    /// The client goes on with a stream that it had lost.
    pub(crate) fn taken_up(&self, id: &str) {
        if let Some(entry) = self.table().entries.get_mut(id) {
            entry.taken_up = Some(Instant::now());
        }
    }

    pub(crate) fn taken_up_since(&self, id: &str, since: Instant) -> bool {
        self.table().entries.get(id).and_then(|entry| entry.taken_up).is_some_and(|at| at >= since)
    }

    /// Forgets a session that was closed by its client, or is gone.
    pub(crate) fn forget(&self, id: &str) {
        self.table().remove(id);
    }

    /// Closes a session that found no place.
    pub(crate) fn end(&self, id: String) {
        self.table().end(id);
    }

    /// Those to be closed now: idle for too long, or given up for another.
    pub(crate) fn expired(&self) -> Vec<String> {
        let mut table = self.table();
        let now = Instant::now();
        let idle = table
            .entries
            .iter()
            .filter(|(_, entry)| entry.open == 0 && now.saturating_duration_since(entry.last_used) >= self.idle);
        let idle: Vec<String> = idle.map(|(id, _)| id.clone()).collect();
        idle.into_iter().for_each(|id| table.end(id));
        std::mem::take(&mut table.ended)
    }
}

impl Table {
    fn remove(&mut self, id: &str) {
        if self.entries.remove(id).is_some() {
            SESSIONS.dec();
        }
    }

    fn end(&mut self, id: String) {
        self.remove(&id);
        self.ended.push(id);
    }
}

/// A reserved place; free again when it is dropped.
pub(crate) struct Place {
    sessions: Arc<Sessions>,
}

impl Place {
    /// The session has begun.
    pub(crate) fn fill(self, id: &str, owner: &Owner) {
        let entry = Entry { owner: owner.clone(), open: 0, last_used: Instant::now(), taken_up: None };
        if self.sessions.table().entries.insert(id.to_owned(), entry).is_none() {
            SESSIONS.inc();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut table = self.sessions.table();
        table.reserved = table.reserved.saturating_sub(1);
    }
}

/// Something under way in a session; its end renews the idle time.
pub(crate) struct Use {
    sessions: Arc<Sessions>,
    id: String,
}

impl Drop for Use {
    fn drop(&mut self) {
        if let Some(entry) = self.sessions.table().entries.get_mut(&self.id) {
            entry.open = entry.open.saturating_sub(1);
            entry.last_used = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    fn owner(name: &str) -> Owner {
        Owner(name.to_owned())
    }

    fn add(sessions: &Arc<Sessions>, id: &str, name: &str) {
        sessions.reserve(&owner(name)).unwrap().fill(id, &owner(name));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_its_owners_only_and_ends_once_it_is_idle() {
        let sessions = Sessions::new(8, IDLE);
        add(&sessions, "s", "ann");
        assert!(sessions.begin("s", &owner("bob")).is_none());
        let stream = sessions.begin("s", &owner("ann")).unwrap();
        tokio::time::advance(IDLE * 2).await;
        assert!(sessions.expired().is_empty(), "a stream is open");
        drop(stream);
        assert!(sessions.expired().is_empty(), "the end of the stream renewed it");
        tokio::time::advance(IDLE).await;
        assert_eq!(sessions.expired(), ["s"]);
        assert!(sessions.begin("s", &owner("ann")).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_past_its_share_loses_its_own_oldest_and_a_full_table_refuses() {
        let sessions = Sessions::new(4, IDLE);
        add(&sessions, "a1", "ann");
        add(&sessions, "b1", "bob");
        tokio::time::advance(Duration::from_secs(1)).await;
        add(&sessions, "a2", "ann");
        assert_eq!(sessions.expired(), ["a1"]);
        let held = sessions.begin("a2", &owner("ann")).unwrap();
        add(&sessions, "a3", "ann");
        assert!(sessions.begin("a2", &owner("ann")).is_some(), "one in use does not give way");
        add(&sessions, "c1", "cid");
        assert!(sessions.reserve(&owner("dan")).is_none());
        drop(held);
        sessions.forget("c1");
        let place = sessions.reserve(&owner("dan")).unwrap();
        assert!(sessions.reserve(&owner("eve")).is_none(), "a place counts while the handshake is under way");
        drop(place);
        assert!(sessions.reserve(&owner("eve")).is_some());
    }
}
