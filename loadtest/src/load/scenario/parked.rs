//! Many residents, of which a few are busy: one send in twenty wakes one that may have gone to sleep.

use std::sync::OnceLock;

use async_trait::async_trait;

use super::{Round, Scenario};
use crate::Error;
use crate::load::options::Plan;
use crate::load::world::World;

pub(super) struct Parked {
    count: usize,
    residents: OnceLock<Vec<String>>,
}

impl Parked {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { count: plan.residents, residents: OnceLock::new() }
    }
}

#[async_trait]
impl Scenario for Parked {
    async fn prepare(&self, world: &World) -> Result<(), Error> {
        let opened = world.open_many(self.count).await?;
        // Set once: a scenario is prepared once.
        self.residents.set(opened).ok();
        Ok(())
    }

    async fn once(&self, world: &World, round: Round) {
        let residents = self.residents.get().map(Vec::as_slice).unwrap_or_default();
        let busy = &residents[..(residents.len() / 20).max(1).min(residents.len())];
        let scattered = round.scattered();
        let asleep = &residents[usize::try_from(scattered).unwrap_or(0) % residents.len().max(1)];
        let (operation, resident) =
            if scattered.is_multiple_of(20) { ("send_any", asleep) } else { ("send_busy", round.pick(busy)) };
        world.send(operation, world.replica(), resident, round.number, round.intended).await;
    }
}
