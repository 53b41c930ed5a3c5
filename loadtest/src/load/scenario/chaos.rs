//! Sends while replicas are killed. A call that fails is made again by the next replica with the same key,
//! and in the end each resident must have had exactly the turns that were acknowledged.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hearth_client::Send;
use tokio::time::Instant;

use super::{Round, Scenario};
use crate::Error;
use crate::load::chaos::KILLS;
use crate::load::options::Plan;
use crate::load::outcome::Check;
use crate::load::record::Moments;
use crate::load::world::{World, code_of};

/// How long a call is made again before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// Of one resident: how many were asked for, and how many of those were answered.
#[derive(Debug, Clone, Copy, Default)]
struct Turns {
    asked: u64,
    acknowledged: u64,
}

impl Turns {
    /// Each answered one once. One that was asked for and never answered, because the time was over or
    /// nobody was there, may have counted all the same.
    fn agree_with(self, counted: Option<u64>) -> bool {
        counted.is_some_and(|counted| (self.acknowledged..=self.asked).contains(&counted))
    }
}

pub(super) struct Chaos {
    count: usize,
    residents: OnceLock<Vec<String>>,
    turns: Mutex<HashMap<String, Turns>>,
    repeats: AtomicU64,
    lost: AtomicU64,
    wrong: AtomicU64,
}

impl Chaos {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            count: plan.residents,
            residents: OnceLock::new(),
            turns: Mutex::default(),
            repeats: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
        }
    }

    fn count(&self, resident: &str, change: impl FnOnce(&mut Turns)) {
        change(self.turns.lock().unwrap_or_else(PoisonError::into_inner).entry(resident.to_owned()).or_default());
    }

    /// The answer's output, from whichever replica gives one; else the last failure's code.
    async fn insist(&self, world: &World, resident: &str, request: &Send) -> Result<String, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let error = match world.replica().send(resident, request).await {
                Ok(answer) => return Ok(answer.body.output),
                Err(error) => error,
            };
            let retries = error.api().is_none_or(|error| error.retryable || error.status >= 500);
            if !retries || Instant::now() > until {
                return Err(code_of(&error));
            }
            self.repeats.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// How many turns a resident has had beside its first, by its own account.
    async fn counted(&self, world: &World, resident: &str, until: Instant) -> Option<u64> {
        while Instant::now() < until {
            let filter = hearth_client::ListRuns { root_run_id: Some(resident.to_owned()), ..Default::default() };
            if let Ok(page) = world.replica().list_residents(&filter).await {
                return page["resident"][0]["turns"].as_u64().map(|turns| turns.saturating_sub(1));
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }
}

#[async_trait]
impl Scenario for Chaos {
    async fn prepare(&self, world: &World) -> Result<(), Error> {
        let opened = world.open_many(self.count).await?;
        self.residents.set(opened).ok();
        Ok(())
    }

    async fn once(&self, world: &World, round: Round) {
        let residents = self.residents.get().map(Vec::as_slice).unwrap_or_default();
        let resident = round.pick(residents);
        let key = format!("load-{}-{}", std::process::id(), round.number);
        let request = Send { prompt: world.prompt(round.number), key: Some(key), ..Send::default() };
        self.count(resident, |turns| turns.asked += 1);
        let began = Instant::now();
        let answer = self.insist(world, resident, &request).await;
        let moments = Moments { intended: round.intended, began, ended: Instant::now() };
        match &answer {
            Ok(output) => {
                self.count(resident, |turns| turns.acknowledged += 1);
                if *output != world.output(round.number) {
                    self.wrong.fetch_add(1, Ordering::Relaxed);
                }
            }
            Err(_) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        world.recorder.record("send", moments, answer.as_ref().err().map(String::as_str));
    }

    async fn finish(&self, world: &World) -> Result<Vec<Check>, Error> {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (lost, wrong) = (of(&self.lost), of(&self.wrong));
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut off = Vec::new();
        let until = Instant::now() + PATIENCE;
        for (resident, turns) in &turns {
            let counted = self.counted(world, resident, until).await;
            if !turns.agree_with(counted) {
                let counted = counted.map_or_else(|| "an unknown number of".to_owned(), |count| count.to_string());
                let Turns { asked, acknowledged } = turns;
                off.push(format!("{resident} had {counted} turns; {asked} were asked for, {acknowledged} answered"));
            }
        }
        let total: u64 = turns.values().map(|turns| turns.acknowledged).sum();
        let check = |what: &str, held, detail| Check { what: what.to_owned(), held, detail };
        Ok(vec![
            check(
                "every turn once",
                off.is_empty(),
                off.first().cloned().unwrap_or_else(|| format!("{total} turns of {} residents", turns.len())),
            ),
            check("no answer is another turn's", wrong == 0, format!("{wrong} wrong answers")),
            check("no call is lost", lost == 0, format!("{lost} lost, {} repeated with their key", of(&self.repeats))),
            check("replicas were killed", KILLS.load(Ordering::Relaxed) > 0, format!("{} times", of(&KILLS))),
        ])
    }
}
