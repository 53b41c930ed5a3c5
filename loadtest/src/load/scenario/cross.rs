//! Parents and children: sends to a child by a replica that is not its owner, and by its parent's turn.

use std::sync::OnceLock;

use async_trait::async_trait;
use hearth_client::Send;
use serde_json::json;

use super::{Round, Scenario};
use crate::Error;
use crate::load::options::Plan;
use crate::load::world::World;

struct Family {
    parent: String,
    child: String,
    /// A replica that is not the child's owner, where there is one.
    other: usize,
}

pub(super) struct Cross {
    count: usize,
    families: OnceLock<Vec<Family>>,
}

impl Cross {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { count: plan.residents, families: OnceLock::new() }
    }

    async fn family(&self, world: &World, number: usize) -> Result<Family, Error> {
        let home = number % world.clients.len();
        let parent = world.open_on(&world.clients[home]).await?;
        let child = world.open_below(&world.clients[home], Some(parent.clone())).await?;
        Ok(Family { parent, child, other: (home + 1) % world.clients.len() })
    }
}

#[async_trait]
impl Scenario for Cross {
    async fn prepare(&self, world: &World) -> Result<(), Error> {
        let mut families = Vec::new();
        for number in 0..self.count {
            families.push(self.family(world, number).await?);
        }
        self.families.set(families).ok();
        Ok(())
    }

    async fn once(&self, world: &World, round: Round) {
        let families = self.families.get().map(Vec::as_slice).unwrap_or_default();
        let family = round.pick(families);
        let other = &world.clients[family.other];
        if !round.number.is_multiple_of(4) {
            world.send("send_cross", other, &family.child, round.number, round.intended).await;
            return;
        }
        let arguments = json!({ "op": "send", "child_run_id": family.child, "prompt": world.prompt(round.number) });
        let prompt = json!({ "mock": { "tool": { "name": "Agent", "arguments": arguments } } }).to_string();
        let request = Send { prompt, ..Send::default() };
        world.timed("send_by_parent", round.intended, other.send(&family.parent, &request)).await;
    }
}
