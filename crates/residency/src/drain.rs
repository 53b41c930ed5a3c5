//! Giving everything up in good order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use hearth_registry::ReplicaRow;
use hearth_types::ReplicaId;

use crate::actor::Message;
use crate::remote::{NoAnswer, Question, Said, What};
use crate::{Error, Residents, sweep};

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the other members' news of a drain is waited for; they hear of it at the next heartbeat anyway.
const TELL_WITHIN: Duration = Duration::from_secs(1);

impl Residents {
    /// Nothing is activated here from now on, and the members' list says so. Whoever runs this replica goes on with
    /// [`Residents::drain`]. The same again changes nothing.
    pub async fn begin_drain(&self) -> ReplicaRow {
        if !self.inner.draining.swap(true, Ordering::Relaxed) {
            self.inner.asked_to_end.cancel();
            tokio::time::timeout(TELL_WITHIN, sweep::beat(self)).await.ok();
        }
        self.row()
    }

    /// Returns once a drain was asked for.
    pub async fn drain_begun(&self) {
        self.inner.asked_to_end.cancelled().await;
    }

    /// Drains a replica, this one or another. `NotFound`: there is none of that id.
    pub async fn drain_replica(&self, replica: &ReplicaId) -> Result<ReplicaRow, Error> {
        if replica == self.replica() {
            return Ok(self.begin_drain().await);
        }
        let question = Question { run_id: self.inner.probe.clone(), place: false, what: What::Drain };
        match self.question(replica, &question).await {
            Ok(Said::Draining(row)) => return Ok(*row),
            Ok(Said::Failed(failure)) => return Err(failure.into()),
            Ok(_) | Err(NoAnswer::Silent | NoAnswer::TooLarge) => {}
        }
        self.refresh_peers().await;
        if !self.inner.peers.is_live(replica) {
            return Err(Error::NotFound);
        }
        Err(hearth_journal::Error::Unavailable { reason: format!("{replica} does not answer") }.into())
    }

    /// Stops: nothing new is activated; turns are handed over at their next boundary, and after the
    /// deadline wherever they are. Whoever starts next on the journal goes on with them.
    pub async fn drain(&self, deadline: Duration) {
        self.begin_drain().await;
        let until = tokio::time::Instant::now() + deadline;
        self.tell_all(false);
        while self.inner.slots.len() > 0 && tokio::time::Instant::now() < until {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.tell_all(true);
        let patience = tokio::time::Instant::now() + Duration::from_secs(2);
        while self.inner.slots.len() > 0 && tokio::time::Instant::now() < patience {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        self.inner.over.cancel();
        self.inner.tasks.close();
        // What effects have begun is found undone by the next owner if it does not end in time.
        tokio::time::timeout(Duration::from_secs(2), self.inner.tasks.wait()).await.ok();
        if let Err(error) = self.inner.registry.leave(self.replica()).await {
            tracing::debug!(%error, "this replica could not take its leave; its lease runs out");
        }
    }

    fn tell_all(&self, force: bool) {
        for (_, handle) in self.inner.slots.all() {
            // One that has ended meanwhile needs no telling.
            handle.actor.cast(Message::Drain { force }).ok();
        }
    }
}
