//! The sessions of a node: which there are, which of them a run tree shares, and how many may be.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroUsize;
use std::sync::Arc;

use hearth_types::{Fault, FaultCode, RunId, SandboxId, Tenant, Timestamp};

use crate::SharedDriver;
use crate::node::metrics::SESSIONS;
use crate::node::past::Why;
use crate::node::session::{Phase, Session};
use crate::node::state::{Record, Stage, StateFolder};
use crate::node::workspaces::{Hold, Place};

/// By what an open finds a session that is there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The shared session of a run tree.
    Shared {
        principal: Tenant,
        root_run: RunId,
        image: Option<String>,
        workspace: Option<String>,
        /// A read-only view of a workspace is another session than one that may write.
        read_only: bool,
    },
    /// A session of the caller's own: by the call that opened it.
    Call { principal: Tenant, root_run: Option<RunId>, call: String },
}

pub(crate) struct Table {
    max: NonZeroUsize,
    sessions: HashMap<SandboxId, Arc<Session>>,
    keys: HashMap<Key, SandboxId>,
    /// Workspaces that are handled as a whole now.
    held: HashMap<Place, Hold>,
}

impl Table {
    pub(crate) fn new(max: NonZeroUsize) -> Self {
        Self { max, sessions: HashMap::new(), keys: HashMap::new(), held: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn get(&self, id: &SandboxId) -> Option<Arc<Session>> {
        self.sessions.get(id).cloned()
    }

    pub(crate) fn find(&self, key: &Key) -> Option<Arc<Session>> {
        self.get(self.keys.get(key)?)
    }

    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        self.sessions.values().cloned().collect()
    }

    pub(crate) fn of_tree(&self, principal: &str, root_run: &RunId) -> Vec<Arc<Session>> {
        let of_tree = |session: &&Arc<Session>| {
            session.record.principal == principal && session.record.spec.root_run.as_ref() == Some(root_run)
        };
        self.sessions.values().filter(of_tree).cloned().collect()
    }

    /// Whether the workspace was free for it.
    pub(crate) fn hold(&mut self, place: Place, hold: Hold) -> bool {
        match self.held.entry(place) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(hold);
                true
            }
        }
    }

    pub(crate) fn release(&mut self, place: &Place) {
        self.held.remove(place);
    }

    /// Refuses a session on a workspace that is being replaced or removed.
    pub(crate) fn require_unheld(&self, place: &Place) -> Result<(), Fault> {
        match self.held.get(place) {
            Some(Hold::Change) => {
                Err(Fault::new(FaultCode::Conflict, "the workspace is being replaced or removed; try again"))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn require_room(&self) -> Result<(), Fault> {
        if self.sessions.len() < self.max.get() {
            return Ok(());
        }
        Err(Fault::new(
            FaultCode::QuotaExceeded,
            format!("the node holds {} sessions, as many as it may; close one, or try again later", self.max),
        ))
    }

    pub(crate) fn insert(&mut self, session: Arc<Session>, key: Option<Key>) {
        if let Some(key) = key {
            self.keys.insert(key, session.id().clone());
        }
        if self.sessions.insert(session.id().clone(), session).is_none() {
            SESSIONS.inc();
        }
    }

    /// Frees the place of a session that is gone.
    pub(crate) fn remove(&mut self, session: &Session) {
        if self.sessions.remove(session.id()).is_some() {
            SESSIONS.dec();
        }
        self.keys.retain(|_, id| id != session.id());
    }

    /// Takes over a session of an earlier process, even past the bound: it is there.
    pub(crate) fn adopt(&mut self, record: Record, drivers: &[SharedDriver], state: &StateFolder, now: Timestamp) {
        let driver = drivers.iter().find(|driver| {
            let runtime = record.spec.runtime.as_deref();
            driver.kind() == record.kind
                && driver.isolation() == record.isolation
                && runtime.is_none_or(|name| driver.has_runtime(name))
        });
        let phase = match record.stage {
            Stage::Open => Phase::Detached,
            Stage::Opening => Phase::Unstopped(Why::Failed),
            Stage::Closing => Phase::Unstopped(Why::Closed),
        };
        let key = key(&record).filter(|_| record.stage == Stage::Open);
        self.insert(Session::new(record, driver.cloned(), phase, state, now), key);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        SESSIONS.sub(i64::try_from(self.sessions.len()).unwrap_or(0));
    }
}

/// Nothing for a session that only its opener knows of.
pub(crate) fn key(record: &Record) -> Option<Key> {
    let (principal, root_run) = (record.principal.clone(), record.spec.root_run.clone());
    if record.own {
        return Some(Key::Call { principal, root_run, call: record.call.clone()? });
    }
    Some(Key::Shared {
        principal,
        root_run: root_run?,
        image: record.spec.image.clone(),
        workspace: record.workspace.clone(),
        read_only: matches!(record.spec.work, crate::Work::Durable { read_only: true, .. }),
    })
}
