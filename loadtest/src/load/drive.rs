//! Drives one stage: begins calls at its pace and waits for what is in flight at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::PATIENCE_WHEN_STOPPED;
use super::options::Plan;
use super::outcome::Stage;
use super::pace::{StagePace, Window, moments, planned};
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
    /// Of those that ended, the ones that did so within the time that counts.
    ended_in_time: AtomicU64,
    window: Window,
}

pub(super) async fn stage(
    plan: &Plan,
    world: &Arc<World>,
    scenario: &Arc<dyn Scenario>,
    pace: StagePace,
    stop: &Stop,
) -> Result<Stage, Error> {
    let began = Instant::now();
    let from = began + plan.warm_up;
    let counts = Arc::new(Counts::of(Window { from, until: from + plan.duration }));
    world.recorder.restart(from);
    let watching = screen::watch(world.clone(), counts.clone(), plan.warm_up, plan.duration);
    let mut calls = JoinSet::new();
    let driving = async {
        match pace {
            StagePace::Closed { users } => closed(world, scenario, users, &counts, &mut calls, stop).await,
            StagePace::Open { rate } => open(plan, world, scenario, rate, &counts, &mut calls).await,
        }
    };
    tokio::select! {
        () = driving => {}
        () = stop.wait() => {}
    }
    let driven = began.elapsed();
    let in_time = counts.ended_in_time.load(Ordering::Relaxed);
    let ending = async { while calls.join_next().await.is_some() {} };
    tokio::select! {
        ended = tokio::time::timeout(PATIENCE, ending) => drop(ended),
        () = stop.wait_and(PATIENCE_WHEN_STOPPED) => {}
    }
    let cut_off = u64::try_from(calls.len()).unwrap_or(u64::MAX);
    calls.shutdown().await;
    watching.abort();
    world.recorder.end();
    let seconds = began.elapsed().saturating_sub(plan.warm_up);
    let (rate, users) = match pace {
        StagePace::Closed { users } => (None, Some(users)),
        StagePace::Open { rate } => (Some(rate), None),
    };
    let begun = counts.begun.load(Ordering::Relaxed);
    let counted = driven.saturating_sub(plan.warm_up).min(plan.duration);
    #[allow(clippy::cast_precision_loss, reason = "a count of calls")]
    let achieved = if counted.is_zero() { 0.0 } else { in_time as f64 / counted.as_secs_f64() };
    let planned = |rate| planned(rate, driven.min(plan.warm_up + plan.duration));
    Ok(Stage {
        name: pace.name(),
        offered_per_s: rate,
        users,
        seconds: seconds.as_secs_f64(),
        achieved_per_s: achieved,
        unstarted: rate.map_or(0, |rate| planned(rate).saturating_sub(begun)),
        cut_off,
        operations: world.recorder.operations(seconds),
        marks: world.recorder.marks(),
    })
}

/// Each user on its own, until the time is over or the calls are used up.
async fn closed(
    world: &Arc<World>,
    scenario: &Arc<dyn Scenario>,
    users: u32,
    counts: &Arc<Counts>,
    calls: &mut JoinSet<()>,
    stop: &Stop,
) {
    let until = counts.window.until;
    for user in 0..users {
        let (world, scenario, counts, stop) = (world.clone(), scenario.clone(), counts.clone(), stop.clone());
        calls.spawn(async move {
            while Instant::now() < until && !stop.asked() && world.admit() {
                let number = counts.begin();
                scenario.once(&world, Round { number, user: Some(user), intended: Instant::now() }).await;
                counts.end();
            }
        });
    }
    let all = async { while calls.join_next().await.is_some() {} };
    // Earlier than that when the calls are used up.
    tokio::time::timeout_at(until, all).await.ok();
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
    let until = counts.window.until;
    let room = Arc::new(Semaphore::new(plan.max_in_flight));
    let mut moments = moments(rate, plan.warm_up + plan.duration);
    while let Some(intended) = moments.recv().await {
        let Ok(Ok(place)) = tokio::time::timeout_at(until, room.clone().acquire_owned()).await else { return };
        if !world.admit() {
            return;
        }
        let (world, scenario, counts) = (world.clone(), scenario.clone(), counts.clone());
        let number = counts.begin();
        calls.spawn(async move {
            scenario.once(&world, Round { number, user: None, intended }).await;
            counts.end();
            drop(place);
        });
        while calls.try_join_next().is_some() {}
    }
}

impl Counts {
    fn of(window: Window) -> Self {
        let none = || AtomicU64::new(0);
        Self { begun: none(), ended: none(), ended_in_time: none(), window }
    }

    /// The number of a round that begins.
    fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::Relaxed)
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        if self.window.holds(Instant::now()) {
            self.ended_in_time.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.begun.load(Ordering::Relaxed).saturating_sub(self.ended.load(Ordering::Relaxed))
    }
}
