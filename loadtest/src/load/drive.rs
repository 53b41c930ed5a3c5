//! Drives one stage: begins calls at its pace and waits for what is in flight at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::options::Plan;
use super::outcome::Stage;
use super::pace::{StagePace, moments, planned};
use super::scenario::{Round, Scenario};
use super::screen;
use super::world::World;
use crate::Error;
use crate::stop::Stop;

/// How long calls in flight may take after the end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Rounds of the scenario.
pub(super) struct Counts {
    begun: AtomicU64,
    ended: AtomicU64,
}

pub(super) async fn stage(
    plan: &Plan,
    world: &Arc<World>,
    scenario: &Arc<dyn Scenario>,
    pace: StagePace,
    stop: &Stop,
) -> Result<Stage, Error> {
    let counts = Arc::new(Counts { begun: AtomicU64::new(0), ended: AtomicU64::new(0) });
    let span = plan.warm_up + plan.duration;
    let from = Instant::now() + plan.warm_up;
    world.recorder.restart(from);
    let watching = screen::watch(world.clone(), counts.clone(), plan.warm_up, plan.duration);
    let mut calls = JoinSet::new();
    let began = Instant::now();
    let driving = async {
        match pace {
            StagePace::Closed { users } => closed(plan, world, scenario, users, &counts, &mut calls).await,
            StagePace::Open { rate } => open(plan, world, scenario, rate, &counts, &mut calls).await,
        }
    };
    tokio::select! {
        () = driving => {}
        () = stop.wait() => {}
    }
    let ending = async { while calls.join_next().await.is_some() {} };
    if tokio::time::timeout(PATIENCE, ending).await.is_err() {
        calls.shutdown().await;
    }
    watching.abort();
    let seconds = began.elapsed().saturating_sub(plan.warm_up);
    let (rate, users) = match pace {
        StagePace::Closed { users } => (None, Some(users)),
        StagePace::Open { rate } => (Some(rate), None),
    };
    let begun = counts.begun.load(Ordering::Relaxed);
    #[allow(clippy::cast_precision_loss, reason = "a count of calls")]
    let achieved = counts.ended.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64().max(1e-9);
    Ok(Stage {
        name: pace.name(),
        offered_per_s: rate,
        users,
        seconds: seconds.as_secs_f64(),
        achieved_per_s: achieved,
        unstarted: rate.map_or(0, |rate| planned(rate, span).saturating_sub(begun)),
        operations: world.recorder.operations(seconds),
    })
}

/// Each user on its own, until the time is over or the calls are used up.
async fn closed(
    plan: &Plan,
    world: &Arc<World>,
    scenario: &Arc<dyn Scenario>,
    users: u32,
    counts: &Arc<Counts>,
    calls: &mut JoinSet<()>,
) {
    let until = Instant::now() + plan.warm_up + plan.duration;
    for user in 0..users {
        let (world, scenario, counts) = (world.clone(), scenario.clone(), counts.clone());
        calls.spawn(async move {
            while Instant::now() < until && world.admit() {
                let number = counts.begun.fetch_add(1, Ordering::Relaxed);
                scenario.once(&world, Round { number, user: Some(user), intended: Instant::now() }).await;
                counts.ended.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tokio::time::sleep_until(until).await;
}

/// At the moments that were planned, as far as there is room in flight.
async fn open(
    plan: &Plan,
    world: &Arc<World>,
    scenario: &Arc<dyn Scenario>,
    rate: f64,
    counts: &Arc<Counts>,
    calls: &mut JoinSet<()>,
) {
    let span = plan.warm_up + plan.duration;
    let until = Instant::now() + span;
    let room = Arc::new(Semaphore::new(plan.max_in_flight));
    let mut moments = moments(rate, span);
    while let Some(intended) = moments.recv().await {
        let Ok(Ok(place)) = tokio::time::timeout_at(until, room.clone().acquire_owned()).await else { return };
        if !world.admit() {
            return;
        }
        let (world, scenario, counts) = (world.clone(), scenario.clone(), counts.clone());
        let number = counts.begun.fetch_add(1, Ordering::Relaxed);
        calls.spawn(async move {
            scenario.once(&world, Round { number, user: None, intended }).await;
            counts.ended.fetch_add(1, Ordering::Relaxed);
            drop(place);
        });
        while calls.try_join_next().is_some() {}
    }
}

impl Counts {
    pub(super) fn in_flight(&self) -> u64 {
        self.begun.load(Ordering::Relaxed).saturating_sub(self.ended.load(Ordering::Relaxed))
    }
}
