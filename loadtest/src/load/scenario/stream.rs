//! Watchers: event streams on all replicas, timed from the send to the event that ends its turn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hearth_client::EventStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Round, Scenario};
use crate::Error;
use crate::load::options::Plan;
use crate::load::outcome::Check;
use crate::load::record::Moments;
use crate::load::world::World;

/// Turns whose events are waited for; past it the times of the oldest ones' events are given up.
const ASKED: usize = 1 << 20;
/// Events that wait to be counted.
const QUEUE: usize = 65_536;

/// The event of a turn's end as a watcher saw it.
struct Seen {
    output: String,
    at: Instant,
}

pub(super) struct Streams {
    residents: usize,
    streams: usize,
    ids: OnceLock<Vec<String>>,
    watchers: Mutex<JoinSet<()>>,
    seen: Mutex<Option<mpsc::Receiver<Seen>>>,
    /// When the turn with this output was asked for.
    asked: Mutex<HashMap<String, Instant>>,
    broken: Arc<AtomicU64>,
    events: AtomicU64,
}

impl Streams {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            residents: plan.residents.min(plan.streams),
            streams: plan.streams,
            ids: OnceLock::new(),
            watchers: Mutex::default(),
            seen: Mutex::default(),
            asked: Mutex::default(),
            broken: Arc::default(),
            events: AtomicU64::new(0),
        }
    }

    /// Counts what the watchers have seen so far.
    fn collect(&self, world: &World) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = seen.as_mut() else { return };
        while let Ok(event) = seen.try_recv() {
            let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner).get(&event.output).copied();
            let Some(asked) = asked else { continue };
            self.events.fetch_add(1, Ordering::Relaxed);
            world.recorder.record("event", Moments { intended: asked, began: asked, ended: event.at }, None);
        }
    }
}

#[async_trait]
impl Scenario for Streams {
    async fn prepare(&self, world: &World) -> Result<(), Error> {
        let ids = world.open_many(self.residents).await?;
        let (tell, told) = mpsc::channel(QUEUE);
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
        let mut watchers = JoinSet::new();
        for number in 0..self.streams {
            let events = world.clients[number % world.clients.len()].stream(&ids[number % ids.len()], 0);
            watchers.spawn(watch(events, tell.clone(), self.broken.clone()));
        }
        *self.watchers.lock().unwrap_or_else(PoisonError::into_inner) = watchers;
        self.ids.set(ids).ok();
        // Until they are attached: the streams begin with what was before.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    async fn once(&self, world: &World, round: Round) {
        self.collect(world);
        let ids = self.ids.get().map(Vec::as_slice).unwrap_or_default();
        let resident: &String = round.pick(ids);
        let output = world.output(round.number);
        {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            if asked.len() >= ASKED {
                asked.clear();
            }
            asked.insert(output, round.intended);
        }
        world.send("send", world.replica(), resident, round.number, round.intended).await;
    }

    async fn finish(&self, world: &World) -> Result<Vec<Check>, Error> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        self.collect(world);
        let mut watchers = std::mem::take(&mut *self.watchers.lock().unwrap_or_else(PoisonError::into_inner));
        watchers.shutdown().await;
        let (broken, events) = (self.broken.load(Ordering::Relaxed), self.events.load(Ordering::Relaxed));
        let detail = format!("{events} ends of turns seen by {} streams, {broken} streams broke", self.streams);
        Ok(vec![Check { what: "streams stay attached".to_owned(), held: broken == 0, detail }])
    }
}

async fn watch(mut events: EventStream, tell: mpsc::Sender<Seen>, broken: Arc<AtomicU64>) {
    loop {
        match events.next().await {
            Ok(Some(event)) if event.ends_turn() => {
                let output = event.data["output"].as_str().unwrap_or_default().to_owned();
                // A full queue only costs a figure.
                tell.try_send(Seen { output, at: Instant::now() }).ok();
            }
            Ok(Some(_)) => {}
            Ok(None) => return,
            Err(_) => {
                broken.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}
