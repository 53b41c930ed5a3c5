//! The index of heads in memory.

use std::collections::{BTreeMap, BTreeSet};

use hearth_types::{RunId, Timestamp};

use crate::{HeadPage, HeadQuery, RunHead};

/// Heads by id, with the orders that the port's questions ask for.
#[derive(Debug, Default)]
pub(crate) struct HeadIndex {
    rows: BTreeMap<RunId, RunHead>,
    by_age: BTreeSet<(Timestamp, RunId)>,
    waking: BTreeSet<RunId>,
    due: BTreeSet<(Timestamp, RunId)>,
}

impl HeadIndex {
    pub(crate) fn put(&mut self, head: RunHead) {
        let run = head.run_id.clone();
        if let Some(old) = self.rows.remove(&run) {
            self.by_age.remove(&(old.created_at, run.clone()));
            self.waking.remove(&run);
            if let Some(at) = old.due_at {
                self.due.remove(&(at, run.clone()));
            }
        }
        self.by_age.insert((head.created_at, run.clone()));
        if head.wake {
            self.waking.insert(run.clone());
        }
        if let Some(at) = head.due_at {
            self.due.insert((at, run.clone()));
        }
        self.rows.insert(run, head);
    }

    pub(crate) fn get(&self, run: &RunId) -> Option<&RunHead> {
        self.rows.get(run)
    }

    pub(crate) fn page(&self, query: &HeadQuery) -> HeadPage {
        let limit = query.limit as usize;
        let mut matching = match &query.after {
            Some(after) => self.by_age.range(..after),
            None => self.by_age.range::<(Timestamp, RunId), _>(..),
        }
        .rev()
        .filter_map(|(_, run)| self.rows.get(run))
        .filter(|head| query.admits(head));
        let heads: Vec<RunHead> = matching.by_ref().take(limit).cloned().collect();
        let more = matching.next().is_some();
        HeadPage { heads, more }
    }

    pub(crate) fn waking(&self, after: Option<&RunId>, limit: usize) -> Vec<RunId> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        self.waking.range::<RunId, _>((from, Unbounded)).take(limit).cloned().collect()
    }

    pub(crate) fn due(&self, now: Timestamp, limit: usize) -> Vec<RunId> {
        self.due.iter().take_while(|(at, _)| *at <= now).take(limit).map(|(_, run)| run.clone()).collect()
    }
}
