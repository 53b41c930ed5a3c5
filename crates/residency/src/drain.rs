//! Giving everything up in good order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::Residents;
use crate::actor::Message;

const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Residents {
    /// Stops: nothing new is activated; turns are handed over at their next boundary, and after the
    /// deadline wherever they are. Whoever starts next on the journal goes on with them.
    pub async fn drain(&self, deadline: Duration) {
        self.inner.draining.store(true, Ordering::Relaxed);
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
