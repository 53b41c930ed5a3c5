//! A day's mixture: of twenty rounds fourteen send, two open and close, two poll, two list.

use std::sync::OnceLock;

use async_trait::async_trait;
use hearth_client::{ListRuns, Poll};

use super::open_send_close::OpenSendClose;
use super::{Round, Scenario};
use crate::Error;
use crate::load::options::Plan;
use crate::load::world::World;

pub(super) struct Mixed {
    count: usize,
    residents: OnceLock<Vec<String>>,
}

impl Mixed {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { count: plan.residents, residents: OnceLock::new() }
    }
}

#[async_trait]
impl Scenario for Mixed {
    async fn prepare(&self, world: &World) -> Result<(), Error> {
        let opened = world.open_many(self.count).await?;
        self.residents.set(opened).ok();
        Ok(())
    }

    async fn once(&self, world: &World, round: Round) {
        let residents = self.residents.get().map(Vec::as_slice).unwrap_or_default();
        let resident = round.pick(residents);
        match round.scattered() % 20 {
            0 | 1 => OpenSendClose.once(world, round).await,
            2 | 3 => {
                let poll = Poll::default();
                world.timed("poll", round.intended, world.replica().poll(resident, &poll)).await;
            }
            4 | 5 => {
                let page = ListRuns { limit: Some(50), ..ListRuns::default() };
                world.timed("list", round.intended, world.replica().list_residents(&page)).await;
            }
            _ => world.send("send", world.replica(), resident, round.number, round.intended).await,
        }
    }
}
