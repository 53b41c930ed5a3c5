//! Whose a run is: fixed when it begins and never changed, so that it is read once and not at each call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hearth_journal::RunHead;
use hearth_run_core::RunSpec;
use hearth_types::{RunId, Tenant};

/// What the access to a run is judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub run_id: RunId,
    pub tenant: Tenant,
    pub subject: String,
    pub parent: Option<RunId>,
}

impl From<&RunHead> for Identity {
    fn from(head: &RunHead) -> Self {
        Self {
            run_id: head.run_id.clone(),
            tenant: head.tenant.clone(),
            subject: head.subject.clone(),
            parent: head.parent_run_id.clone(),
        }
    }
}

impl Identity {
    pub(crate) fn of(spec: &RunSpec) -> Self {
        Self {
            run_id: spec.run_id.clone(),
            tenant: spec.tenant.clone(),
            subject: spec.subject.clone(),
            parent: spec.parent.as_ref().map(|parent| parent.run_id.clone()),
        }
    }
}

/// Of each of the two halves.
const MOST: usize = 16_384;

/// Those that were used lately. When one half is full it replaces the other, whose runs have not been
/// used for longer.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    young: HashMap<RunId, Arc<Identity>>,
    old: HashMap<RunId, Arc<Identity>>,
}

impl Identities {
    pub(crate) fn get(&self, run: &RunId) -> Option<Arc<Identity>> {
        let mut halves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = halves.young.get(run) {
            return Some(known.clone());
        }
        let known = halves.old.remove(run)?;
        halves.put(known.clone());
        Some(known)
    }

    pub(crate) fn put(&self, identity: Identity) -> Arc<Identity> {
        let identity = Arc::new(identity);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).put(identity.clone());
        identity
    }
}

impl Halves {
    fn put(&mut self, identity: Arc<Identity>) {
        if self.young.len() >= MOST {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(identity.run_id.clone(), identity);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(number: usize) -> Identity {
        let run_id = RunId::derive(&[&number.to_string()]);
        Identity { run_id, tenant: "acme".into(), subject: "ann".into(), parent: None }
    }

    #[test]
    fn what_is_in_use_stays_and_the_number_is_bounded() {
        let known = Identities::default();
        let used = identity(0);
        known.put(used.clone());
        for number in 1..MOST * 4 {
            known.put(identity(number));
            if number % 1_000 == 0 {
                assert_eq!(known.get(&used.run_id).as_deref(), Some(&used), "after {number}");
            }
        }
        let halves = known.0.lock().unwrap();
        assert!(halves.young.len() + halves.old.len() <= MOST * 2);
        drop(halves);
        assert_eq!(known.get(&identity(1).run_id), None, "not used for long");
    }
}
