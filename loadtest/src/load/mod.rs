//! Load: a scenario, driven at a pace, for a time.

mod chaos;
mod drive;
mod options;
mod outcome;
mod pace;
mod record;
mod scenario;
mod screen;
mod world;

use std::sync::Arc;
use std::time::Duration;

pub use options::RunArgs;
pub(crate) use outcome::{Check, FORMAT, Mark, Operation, Outcome, Stage, Tick};

use crate::Error;
use crate::machine::Machine;
use crate::report;
use crate::stop::Stop;
use options::Plan;
use pace::StagePace;
use world::World;

/// How long calls in flight may take when somebody wants to go home.
const PATIENCE_WHEN_STOPPED: Duration = Duration::from_secs(5);

/// Whether everything that the scenario checks held.
pub async fn run(args: RunArgs) -> Result<bool, Error> {
    let stop = Stop::on_signals()?;
    let plan = Plan::of(&args, |name| std::env::var(name).ok())?;
    let world = Arc::new(World::new(&plan, stop.clone())?);
    stop.unless(world.reach()).await?;
    let scenario = scenario::of(&plan);
    let prepared = tokio::select! {
        prepared = scenario.prepare(&world) => prepared,
        // What it has begun is to end, so that it can be closed.
        () = stop.wait_and(PATIENCE_WHEN_STOPPED) => Err(Error::Interrupted),
    };
    let driven = match prepared {
        Ok(()) => stages(&plan, &world, &scenario, &stop).await,
        Err(error) => Err(error),
    };
    // Whatever happened, what was opened is closed.
    let checks = scenario.finish(&world).await;
    world.close_all().await;
    let (stages, saturated) = driven?;
    let broken = |what: &str, detail: String| Check { what: what.to_owned(), held: false, detail };
    let mut checks = checks.unwrap_or_else(|error| vec![broken("the checks were made", error.to_string())]);
    let answered = stages.iter().flat_map(|stage| &stage.operations).any(|operation| operation.count > 0);
    if !answered && !stop.asked() {
        checks.push(broken("calls succeed", "not one did".to_owned()));
    }
    let outcome = Outcome {
        format: FORMAT,
        scenario: plan.scenario.name().to_owned(),
        started_at: plan.started_at.clone(),
        targets: plan.urls.clone(),
        machine: Machine::here(),
        settings: plan.settings(),
        sustained_per_s: plan.ramps().then(|| pace::sustained(&stages, plan.limit_ms)).flatten(),
        saturated,
        checks,
        stages,
    };
    screen::summary(&outcome);
    write(&plan, &outcome)?;
    if stop.asked() {
        return Err(Error::Interrupted);
    }
    Ok(outcome.checks.iter().all(|check| check.held))
}

/// One stage after the other, until one is more than the target can take.
async fn stages(
    plan: &Plan,
    world: &Arc<World>,
    scenario: &Arc<dyn scenario::Scenario>,
    stop: &Stop,
) -> Result<(Vec<Stage>, bool), Error> {
    let chaos = plan.kills.clone().map(|kills| chaos::start(kills, world.clone()));
    let mut stages = Vec::new();
    let mut saturated = false;
    for pace in plan.stages() {
        let name = pace.name();
        screen::stage(&name);
        let stage = drive::stage(plan, world, scenario, pace, stop).await?;
        saturated = plan.ramps() && pace::is_saturated(&stage, plan.limit_ms);
        stages.push(stage);
        if saturated || stop.asked() {
            break;
        }
    }
    if let Some(chaos) = chaos {
        chaos.end().await;
    }
    Ok((stages, saturated))
}

fn write(plan: &Plan, outcome: &Outcome) -> Result<(), Error> {
    if let Some(path) = &plan.json {
        let text = serde_json::to_string_pretty(outcome)?;
        std::fs::write(path, format!("{text}\n")).map_err(Error::io(path.display().to_string()))?;
    }
    if let Some(path) = &plan.html {
        std::fs::write(path, report::page(outcome)).map_err(Error::io(path.display().to_string()))?;
    }
    Ok(())
}

impl StagePace {
    fn name(self) -> String {
        match self {
            Self::Closed { users } => format!("{users} users"),
            Self::Open { rate } => format!("{} a second", crate::report::number(rate)),
        }
    }
}
