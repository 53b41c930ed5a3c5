//! A registry that misbehaves as told: lost writes, lost answers, delays.

use std::time::Duration;

use async_trait::async_trait;
use hearth_types::{ReplicaId, RunId, SandboxId, SeededRandom, Tenant};

use crate::{Error, Location, NodeRow, Registry, ReplicaRow, SandboxPlace, Seat, WorkspaceHome};

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// Done, but the caller hears [`Error::Unavailable`].
    LoseAnswer,
    /// Not done, and the caller hears [`Error::Unavailable`].
    Refuse,
    /// Passes after a while.
    Delay(Duration),
}

/// Passes calls on to another registry, or fails them as `decide` says.
pub struct FaultyRegistry<R> {
    inner: R,
    decide: Box<dyn Fn() -> Fate + Send + Sync>,
}

impl<R: Registry> FaultyRegistry<R> {
    pub fn new(inner: R, decide: impl Fn() -> Fate + Send + Sync + 'static) -> Self {
        Self { inner, decide: Box::new(decide) }
    }

    /// Fates drawn from a seed: the same seed and the same calls give the same fates.
    pub fn seeded(inner: R, seed: u64, odds: Odds) -> Self {
        let random = SeededRandom::new(seed);
        Self::new(inner, move || odds.draw(&random))
    }

    async fn befall<T>(&self, call: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        let lost = || Error::Unavailable { reason: "lost by the fault injection".into() };
        match (self.decide)() {
            Fate::Pass => call.await,
            Fate::LoseAnswer => call.await.and_then(|_| Err(lost())),
            Fate::Refuse => Err(lost()),
            Fate::Delay(span) => {
                tokio::time::sleep(span).await;
                call.await
            }
        }
    }
}

/// How often, in thousandths of all calls, each misfortune happens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Odds {
    pub lose_answer: u16,
    pub refuse: u16,
    pub delay: u16,
    /// The longest delay; each is drawn below it.
    pub max_delay: Duration,
}

impl Odds {
    fn draw(&self, random: &SeededRandom) -> Fate {
        let mut rest = random.below(1_000);
        let delay = Duration::from_micros(random.below(u64::try_from(self.max_delay.as_micros()).unwrap_or(u64::MAX)));
        for (odds, fate) in
            [(self.lose_answer, Fate::LoseAnswer), (self.refuse, Fate::Refuse), (self.delay, Fate::Delay(delay))]
        {
            if rest < u64::from(odds) {
                return fate;
            }
            rest -= u64::from(odds);
        }
        Fate::Pass
    }
}

#[async_trait]
impl<R: Registry> Registry for FaultyRegistry<R> {
    async fn claim(&self, run: &RunId, location: Location) -> Result<(), Error> {
        self.befall(self.inner.claim(run, location)).await
    }

    async fn release(&self, run: &RunId, location: &Location) -> Result<(), Error> {
        self.befall(self.inner.release(run, location)).await
    }

    async fn locate(&self, run: &RunId) -> Result<Option<Location>, Error> {
        self.befall(self.inner.locate(run)).await
    }

    async fn heartbeat(&self, row: ReplicaRow, lease: Duration) -> Result<bool, Error> {
        self.befall(self.inner.heartbeat(row, lease)).await
    }

    async fn leave(&self, replica: &ReplicaId) -> Result<(), Error> {
        self.befall(self.inner.leave(replica)).await
    }

    async fn replicas(&self) -> Result<Vec<ReplicaRow>, Error> {
        self.befall(self.inner.replicas()).await
    }

    async fn announce(&self, row: NodeRow, lease: Duration) -> Result<(), Error> {
        self.befall(self.inner.announce(row, lease)).await
    }

    async fn withdraw(&self, node: &str) -> Result<(), Error> {
        self.befall(self.inner.withdraw(node)).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        self.befall(self.inner.nodes()).await
    }

    async fn take_seat(&self, tenant: &Tenant, run: &RunId, limit: u64) -> Result<Seat, Error> {
        self.befall(self.inner.take_seat(tenant, run, limit)).await
    }

    async fn leave_seat(&self, tenant: &Tenant, run: &RunId) -> Result<(), Error> {
        self.befall(self.inner.leave_seat(tenant, run)).await
    }

    async fn seats(&self, tenant: &Tenant, skip: u64, limit: usize) -> Result<Vec<(RunId, Duration)>, Error> {
        self.befall(self.inner.seats(tenant, skip, limit)).await
    }

    async fn seat_all(&self, tenant: &Tenant, runs: &[RunId]) -> Result<(), Error> {
        self.befall(self.inner.seat_all(tenant, runs)).await
    }

    async fn counted(&self, tenant: &Tenant, whole: bool) -> Result<(), Error> {
        self.befall(self.inner.counted(tenant, whole)).await
    }

    async fn home(&self, workspace: &str) -> Result<Option<WorkspaceHome>, Error> {
        self.befall(self.inner.home(workspace)).await
    }

    async fn move_home(&self, workspace: &str, home: WorkspaceHome) -> Result<WorkspaceHome, Error> {
        self.befall(self.inner.move_home(workspace, home)).await
    }

    async fn forget_home(&self, workspace: &str) -> Result<(), Error> {
        self.befall(self.inner.forget_home(workspace)).await
    }

    async fn note_sandbox(&self, session: &SandboxId, place: SandboxPlace, keep: Duration) -> Result<(), Error> {
        self.befall(self.inner.note_sandbox(session, place, keep)).await
    }

    async fn sandbox(&self, session: &SandboxId) -> Result<Option<SandboxPlace>, Error> {
        self.befall(self.inner.sandbox(session)).await
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::Epoch;

    use super::*;
    use crate::MemoryRegistry;

    /// Late and lost claims of older activations never win over the newest one that arrived.
    #[tokio::test(start_paused = true)]
    async fn misfortune_never_turns_a_location_back() {
        let odds = Odds { lose_answer: 200, refuse: 200, delay: 300, max_delay: Duration::from_millis(50) };
        for seed in 0..50 {
            let memory = MemoryRegistry::new();
            let registry = std::sync::Arc::new(FaultyRegistry::seeded(memory.clone(), seed, odds));
            let run = RunId::parse("run_a").unwrap();
            let mut claims = tokio::task::JoinSet::new();
            for epoch in 1..=20 {
                let (registry, run) = (registry.clone(), run.clone());
                let location = Location { replica: ReplicaId::generate(), epoch: Epoch(epoch) };
                claims.spawn(async move { registry.claim(&run, location).await.map(|()| epoch) });
            }
            let mut newest = 0;
            while let Some(claim) = claims.join_next().await {
                newest = claim.unwrap().unwrap_or(0).max(newest);
                let seen = memory.locate(&run).await.unwrap().map_or(0, |location| location.epoch.0);
                assert!(seen >= newest, "seed {seed}: epoch {seen} after {newest} was claimed");
            }
        }
    }
}
