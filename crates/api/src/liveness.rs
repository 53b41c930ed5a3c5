//! Whether a run tree lives, as its root's index row says. Asked before a sandbox is closed.

use async_trait::async_trait;
use hearth_journal::SharedJournal;
use hearth_sandbox::{Liveness, RunLiveness};
use hearth_types::RunId;

pub struct JournalLiveness {
    journal: SharedJournal,
}

impl JournalLiveness {
    pub fn new(journal: SharedJournal) -> Self {
        Self { journal }
    }
}

#[async_trait]
impl RunLiveness for JournalLiveness {
    /// Only a final state that was read says that a tree has ended.
    async fn liveness(&self, root_run: &RunId) -> Liveness {
        match self.journal.head(root_run).await {
            Ok(Some(head)) if head.state.is_final() => Liveness::Ended,
            Ok(Some(_)) => Liveness::Alive,
            Ok(None) => Liveness::Unknown,
            Err(error) => {
                tracing::debug!(%error, "a run tree's state could not be read; its sandboxes stay");
                Liveness::Unknown
            }
        }
    }
}
