use std::sync::Arc;

use super::open;
use crate::conformance::{Store, run_all};
use crate::{FaultyJournal, MemoryJournal};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sqlite_journal_keeps_the_contract() {
    run_all(async || {
        let folder = tempfile::tempdir().unwrap();
        let journal = open(folder.path());
        Store::new(vec![Arc::new(journal.clone()), Arc::new(journal)], folder)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_journal_keeps_the_contract() {
    // It never suspends, so nothing can be abandoned half-way; a wrapper that waits makes it so.
    run_all(async || {
        let journal = MemoryJournal::new();
        let slow = |journal| {
            FaultyJournal::new(journal, |operation| match operation {
                crate::Operation::Append(_) => crate::Fate::Delay(std::time::Duration::from_micros(200)),
                crate::Operation::Trim | crate::Operation::Read => crate::Fate::Pass,
            })
        };
        Store::new(vec![Arc::new(slow(journal.clone())), Arc::new(slow(journal))], ())
    })
    .await;
}
