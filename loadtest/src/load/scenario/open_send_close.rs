//! A short life: opened, sent to, closed, each call by the next replica.

use async_trait::async_trait;
use hearth_client::OpenResident;
use tokio::time::Instant;

use super::{Round, Scenario};
use crate::load::world::World;

const SENDS: u64 = 3;

pub(super) struct OpenSendClose;

#[async_trait]
impl Scenario for OpenSendClose {
    async fn once(&self, world: &World, round: Round) {
        let prompt = world.prompt(round.number);
        let request = OpenResident { agent: "mock".to_owned(), prompt, ..OpenResident::default() };
        let opened = world.timed("open", round.intended, world.replica().open(&request)).await;
        let Some(opened) = opened else { return };
        let id = opened.body.run_id.to_string();
        world.opened(&id);
        for send in 0..SENDS {
            let number = round.number * SENDS + send;
            world.send("send", world.replica(), &id, number, Instant::now()).await;
        }
        if world.timed("close", Instant::now(), world.replica().close(&id, None)).await.is_some() {
            world.closed(&id);
        }
    }
}
