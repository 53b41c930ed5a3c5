//! The sweep: compares what should be with what is, and takes no input. The same at the start,
//! after a crash and on every other day.

use std::sync::PoisonError;
use std::time::Duration;

use futures::StreamExt;
use hearth_registry::{Location, ReplicaRow};
use hearth_types::RunId;

use crate::actor::Message;
use crate::commands::Holder;
use crate::remote::{Question, Said, What};
use crate::slots::Handle;
use crate::{Error, Residents, metrics};

/// Runs that one look at an index asks for.
const BATCH: usize = 128;
/// How often parked activations are looked at.
const PASSIVATE_EVERY: Duration = Duration::from_secs(2);

pub(crate) fn start(residents: &Residents) {
    let tasks = &residents.inner.tasks;
    tasks.spawn(every(residents.clone(), residents.inner.options.sweep_every, |r| async move {
        if !r.is_draining() {
            report("due times", due(&r).await);
            report("sleepers", wake(&r).await);
        }
    }));
    let quiet = PASSIVATE_EVERY.min(residents.inner.options.passivate_after.max(Duration::from_millis(50)));
    tasks.spawn(every(residents.clone(), quiet, |r| async move { passivate(&r) }));
    // Until everything is handed over: a lease that ran out would have it taken instead.
    let beat = residents.inner.options.lease / 4;
    tasks.spawn(every(residents.clone(), beat, |r| async move { self::beat(&r).await }));
}

async fn every<F, Fut>(residents: Residents, pause: Duration, mut look: F)
where
    F: FnMut(Residents) -> Fut,
    Fut: Future<Output = ()>,
{
    loop {
        tokio::select! {
            () = residents.inner.over.cancelled() => return,
            () = async {
                let next = tokio::time::Instant::now() + pause;
                look(residents.clone()).await;
                // On a busy machine a look takes long; the next one is due all the same.
                tokio::time::sleep_until(next.max(tokio::time::Instant::now() + pause / 4)).await;
            } => {}
        }
    }
}

fn report(what: &'static str, result: Result<(), Error>) {
    if let Err(error) = result {
        tracing::warn!(%error, what, "a sweep did not finish; the next one goes on");
    }
}

/// Idle times and deadlines that have come.
async fn due(residents: &Residents) -> Result<(), Error> {
    let now = residents.inner.clock.now();
    let runs = residents.inner.journal.due(now, BATCH).await?;
    for_each(runs, |run_id| async move { residents.tick(&run_id).await }).await;
    Ok(())
}

/// Runs that need an owner and have none here.
async fn wake(residents: &Residents) -> Result<(), Error> {
    let mut after: Option<RunId> = None;
    loop {
        let runs = residents.inner.journal.waking(after.as_ref(), BATCH).await?;
        after = runs.last().cloned();
        let whole = runs.len() == BATCH;
        let sleeps =
            |run_id: &RunId| residents.inner.slots.get(run_id).is_none_or(|handle| handle.parked_since().is_some());
        let asleep: Vec<RunId> = runs.into_iter().filter(sleeps).collect();
        for_each(asleep, |run_id| async move { wake_if_orphaned(residents, &run_id).await }).await;
        if !whole {
            return Ok(());
        }
    }
}

/// Takes up a run whose owner is gone. That is: the registry does not know it as live, and it does not
/// answer for the run over the bus either.
async fn wake_if_orphaned(residents: &Residents, run_id: &RunId) -> Result<(), Error> {
    if let Some(handle) = residents.inner.slots.get(run_id) {
        // It thinks itself parked while the index says that the run is under way: perhaps the run was
        // taken over and it has not met the fence. It must not keep the run from being taken up here.
        residents.end_if_superseded(run_id, &handle).await;
        return Ok(());
    }
    match residents.holder(run_id).await? {
        Holder::Nobody { epoch } => residents.take_over(run_id, epoch).await,
        // One that parked since the index was read needs no owner.
        Holder::NotNeeded | Holder::Other(_) => Ok(()),
    }
}

async fn for_each<F, Fut>(runs: Vec<RunId>, act: F)
where
    F: Fn(RunId) -> Fut,
    Fut: Future<Output = Result<(), Error>>,
{
    let acts = runs.into_iter().map(|run_id| {
        let acting = act(run_id.clone());
        async move {
            if let Err(error) = acting.await
                && !matches!(error, Error::Draining | Error::Refused(_))
                // A member that was upgraded takes it.
                && !error.newer()
            {
                tracing::warn!(%run_id, %error, "a run could not be woken; the next sweep tries again");
            }
        }
    });
    futures::future::join_all(acts).await;
}

async fn each_slot<F, Fut>(residents: &Residents, act: F)
where
    F: Fn(RunId, Handle) -> Fut,
    Fut: Future<Output = ()>,
{
    let slots = futures::stream::iter(residents.inner.slots.all());
    slots.for_each_concurrent(BATCH, |(run_id, handle)| act(run_id, handle)).await;
}

fn passivate(residents: &Residents) {
    let now = residents.inner.clock.now();
    for (_, handle) in residents.inner.slots.all() {
        let Some(parked) = handle.parked_since() else { continue };
        if now.since(parked) >= residents.inner.options.passivate_after {
            // An activation that ended meanwhile needs no telling.
            handle.actor.cast(Message::Passivate).ok();
        }
    }
}

/// Renews the lease, and learns who else is there. A lease is renewed only by a replica that works:
/// one that has just had an answer from itself over the bus, and from the journal.
pub(crate) async fn beat(residents: &Residents) {
    let inner = &residents.inner;
    let began = tokio::time::Instant::now();
    if let Err(reason) = residents.works().await {
        tracing::warn!(reason, "the lease is not renewed: this replica does not work");
        return;
    }
    let registered = inner.registry.heartbeat(residents.row(), inner.options.lease).await;
    if let Err(error) = &registered {
        tracing::warn!(%error, "a heartbeat was not registered");
    }
    if !inner.trusts_itself() {
        tracing::warn!("this replica stood still for longer than its lease bears: it looks for what it has lost");
        residents.end_all_superseded().await;
    }
    *inner.worked_at.lock().unwrap_or_else(PoisonError::into_inner) = began;
    if matches!(registered, Ok(false)) {
        residents.claim_all().await;
    }
    residents.refresh_peers().await;
}

impl Residents {
    async fn end_all_superseded(&self) {
        each_slot(self, |run_id, handle| async move { self.end_if_superseded(&run_id, &handle).await }).await;
    }

    /// Tells a registry that has lost what it knew, or this replica, where the activations of this one are.
    async fn claim_all(&self) {
        each_slot(self, |run_id, handle| async move {
            let location = Location { replica: self.replica().clone(), epoch: handle.epoch };
            if let Err(error) = self.inner.registry.claim(&run_id, location).await {
                tracing::debug!(%error, "a location was not registered; lookups go through the journal");
            }
        })
        .await;
    }

    async fn works(&self) -> Result<(), &'static str> {
        let probe = Question { run_id: self.inner.probe.clone(), place: false, what: What::Owned };
        // Side by side: on a busy machine each takes long.
        let (answer, ready) = tokio::join!(self.question(self.replica(), &probe), self.inner.journal.ready());
        match answer {
            Ok(Said::Owned(_)) => {}
            _ => return Err("no answer from itself over the bus"),
        }
        ready.map_err(|_| "no answer from the journal")
    }

    /// Learns who else is there. An empty or failed answer proves nothing, so the last good one stays.
    pub(crate) async fn refresh_peers(&self) {
        match self.inner.registry.replicas().await {
            Ok(rows) => self.inner.peers.set(rows),
            Err(error) => tracing::debug!(%error, "the registry could not be asked for the replicas"),
        }
    }

    /// What this replica says of itself.
    pub fn row(&self) -> ReplicaRow {
        ReplicaRow {
            replica: self.replica().clone(),
            url: self.inner.options.url.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.inner.started_at,
            draining: self.is_draining(),
            active: self.inner.slots.len() as u64,
            turns: u64::try_from(metrics::TURNS_RUNNING.get()).unwrap_or(0),
        }
    }
}
