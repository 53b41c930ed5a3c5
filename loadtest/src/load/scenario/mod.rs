//! What a caller does in a round.

mod chaos;
mod cross;
mod mixed;
mod open_send_close;
mod parked;
mod sandbox;
mod stream;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use super::options::{Plan, ScenarioName};
use super::outcome::Check;
use super::world::World;
use crate::Error;

/// One round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    /// Of all rounds; no two have the same.
    pub number: u64,
    /// Who makes it, where there are users.
    pub user: Option<u32>,
    /// When it was to begin; its first call counts from then.
    pub intended: Instant,
}

impl Round {
    /// One of many, the same for the same user, so that no two users wait for each other's turns.
    pub(crate) fn pick<'i, T>(&self, items: &'i [T]) -> &'i T {
        let number = self.user.map_or_else(|| self.scattered(), u64::from);
        &items[usize::try_from(number).unwrap_or(0) % items.len()]
    }

    /// A number that looks random, and is the same in each run.
    pub(crate) fn scattered(&self) -> u64 {
        let mut x = self.number.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }
}

#[async_trait]
pub(crate) trait Scenario: Send + Sync {
    /// Before any time is taken.
    async fn prepare(&self, _world: &World) -> Result<(), Error> {
        Ok(())
    }

    /// One round. What fails is counted where it fails.
    async fn once(&self, world: &World, round: Round);

    /// After all rounds: what else has to hold.
    async fn finish(&self, _world: &World) -> Result<Vec<Check>, Error> {
        Ok(Vec::new())
    }
}

pub(super) fn of(plan: &Plan) -> Arc<dyn Scenario> {
    match plan.scenario {
        ScenarioName::OpenSendClose => Arc::new(open_send_close::OpenSendClose),
        ScenarioName::Parked => Arc::new(parked::Parked::new(plan)),
        ScenarioName::Cross => Arc::new(cross::Cross::new(plan)),
        ScenarioName::Stream => Arc::new(stream::Streams::new(plan)),
        ScenarioName::Sandbox => Arc::new(sandbox::Sandbox),
        ScenarioName::Chaos => Arc::new(chaos::Chaos::new(plan)),
        ScenarioName::Mixed => Arc::new(mixed::Mixed::new(plan)),
    }
}
