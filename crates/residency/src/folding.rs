//! Folding: what a snapshot has made superfluous leaves the journal.
//!
//! In three steps, each safe to lose and to repeat. What is still asked for goes into the run's history;
//! then the run's next frame says that reading begins at the snapshot; then the frames before it are
//! removed. The journal holds all that these steps need to know, so whoever owns the run goes on.

use std::sync::Arc;
use std::time::Duration;

use hearth_journal::{LogKey, Position};
use hearth_run_core::Mark;
use hearth_types::RunId;
use ractor::ActorRef;

use crate::actor::Message;
use crate::residents::Inner;
use crate::{history, metrics};

/// Foldings of one replica at the same time: they are never urgent.
pub(crate) const AT_ONCE: usize = 1;
/// Frames that one call removes, and the pause before the next.
const TRIM_FRAMES: usize = 256;
const TRIM_PAUSE: Duration = Duration::from_millis(20);

/// Writes the history up to the snapshot, then tells the activation that reading may begin there.
pub(crate) fn extend_history(inner: &Arc<Inner>, run_id: RunId, mark: Mark, actor: ActorRef<Message>) {
    let folder = inner.clone();
    inner.tasks.spawn(async move {
        let Ok(_turn) = folder.folding.acquire().await else { return };
        let floor = Position(mark.position);
        match history::extend(&*folder.journal, &run_id, floor).await {
            // Who has ended meanwhile leaves it to the next activation.
            Ok(()) => drop(actor.cast(Message::Folded { floor })),
            Err(error) => {
                metrics::FOLD_FAILURES.inc();
                tracing::warn!(%run_id, %error, "a journal was not folded; the next snapshot tries again");
            }
        }
    });
}

/// Removes the frames before the floor that the journal's last frame names.
pub(crate) fn trim(inner: &Arc<Inner>, run_id: RunId) {
    let folder = inner.clone();
    inner.tasks.spawn(async move {
        let Ok(_turn) = folder.folding.acquire().await else { return };
        let key = LogKey::Run(run_id.clone());
        loop {
            match folder.journal.trim(&key, TRIM_FRAMES).await {
                Ok(removed) => {
                    metrics::FOLDED_FRAMES.inc_by(removed);
                    if removed < TRIM_FRAMES as u64 || folder.over.is_cancelled() {
                        return;
                    }
                }
                Err(error) => {
                    metrics::FOLD_FAILURES.inc();
                    tracing::warn!(%run_id, %error, "folded frames were not removed; the next folding tries again");
                    return;
                }
            }
            tokio::time::sleep(TRIM_PAUSE).await;
        }
    });
}
