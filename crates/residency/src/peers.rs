//! The other replicas as the registry last told of them, and which of them takes a run.

use std::sync::{Mutex, PoisonError};

use hearth_registry::ReplicaRow;
use hearth_types::ReplicaId;

#[derive(Default)]
pub(crate) struct Peers(Mutex<Vec<ReplicaRow>>);

impl Peers {
    pub fn set(&self, rows: Vec<ReplicaRow>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = rows;
    }

    pub fn is_live(&self, replica: &ReplicaId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|row| &row.replica == replica)
    }

    /// Those that take runs, besides this one.
    pub fn others(&self, own: &ReplicaId) -> Vec<ReplicaId> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = rows.iter().filter(|row| row.replica != *own && !row.draining);
        others.map(|row| row.replica.clone()).collect()
    }

    /// Where a run that nobody owns goes: here, unless the less loaded of two others has clearly more
    /// room: `slack` activations fewer. `pick` gives a number below its argument.
    pub fn choose(&self, own: &ReplicaRow, slack: u64, pick: impl Fn(usize) -> usize) -> Option<ReplicaId> {
        let rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others: Vec<&ReplicaRow> = rows.iter().filter(|row| row.replica != own.replica && !row.draining).collect();
        if others.is_empty() {
            return None;
        }
        let (a, b) = (others.get(pick(others.len()))?, others.get(pick(others.len()))?);
        let best = if a.active <= b.active { a } else { b };
        (own.draining || best.active.saturating_add(slack) < own.active).then(|| best.replica.clone())
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::Timestamp;

    use super::*;

    fn row(name: &str, active: u64, draining: bool) -> ReplicaRow {
        ReplicaRow {
            replica: ReplicaId::parse(name).unwrap(),
            url: None,
            version: "1".into(),
            started_at: Timestamp::from_millis(0),
            draining,
            active,
            turns: 0,
        }
    }

    #[test]
    fn a_run_stays_here_until_another_has_clearly_more_room() {
        let peers = Peers::default();
        peers.set(vec![row("a", 100, false), row("b", 90, false), row("c", 10, true)]);
        assert_eq!(peers.choose(&row("a", 100, false), 64, |_| 0), None);
        let moved = peers.choose(&row("a", 500, false), 64, |_| 0).unwrap();
        assert_eq!(moved.as_str(), "b");
    }

    #[test]
    fn a_draining_replica_gets_none_and_gives_all_away() {
        let peers = Peers::default();
        peers.set(vec![row("a", 0, true), row("b", 5_000, false)]);
        assert_eq!(peers.choose(&row("b", 9_000, false), 64, |_| 0), None);
        assert_eq!(peers.choose(&row("a", 0, true), 64, |_| 0).unwrap().as_str(), "b");
    }
}
