//! `hearth demo`: the main job, for real, told as it happens. It talks HTTP to a replica that it starts
//! as a child process, and knows nothing that another user could not know.

mod builder;
mod census;
mod checks;
mod ending;
mod folder;
mod interruption;
mod opening;
mod project;
mod replica;
mod stage;
mod telling;
mod trouble;
mod work;

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, Verdict};
use crate::screen::{Screen, program};
use checks::Checks;
use folder::Folder;
use stage::Stage;
use telling::Telling;
use trouble::Trouble;
use work::Timing;

/// Far more than it takes: past this something hangs, and that is a failure too.
const LIMIT: Duration = Duration::from_secs(300);

/// Show the main job, for real, in under a minute
///
/// Starts a replica, lets a parent run open a resident builder with a durable workspace, has a small
/// program built, changed, tested and mended in one warm sandbox session, kills the replica with SIGKILL
/// in the middle of a build, and closes everything. Exit code 0 only when every check held.
///
/// Nothing is left behind but the workspace, under XDG_CACHE_HOME/hearth or ~/.cache/hearth: the next demo
/// finds it warm.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth demo
  hearth demo --keep           leaves the server up, to look around
  hearth --json demo           a report for machines; the story goes to stderr")]
pub struct DemoArgs {
    /// Leave the server up at the end, and say how to look around
    #[arg(long)]
    keep: bool,
}

/// What the story has told, for the end and the report.
#[derive(Default)]
pub struct Story {
    pub checks: Checks,
    pub timings: Vec<Timing>,
    pub parent: Option<String>,
    pub builder: Option<String>,
    pub language: Option<&'static str>,
}

pub async fn demo(args: DemoArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let telling = Telling::new(*screen);
    telling.text(&screen.bold("hearth demo: a resident builder in a warm sandbox"));
    let root = folder::cache_root();
    let folder = Folder::take(&root).map_err(|error| Failure::failed(format!("{}: {error}", root.display())))?;
    let mut stage =
        Stage::set(folder, telling.clone(), args.keep).map_err(|trouble| Failure::failed(trouble.to_string()))?;
    let mut story = Story::default();
    let told = tokio::select! {
        told = tokio::time::timeout(LIMIT, tell(&mut stage, &mut story)) => told.unwrap_or_else(|_| {
            Err(Trouble::Here(format!("the demo took longer than {} s", LIMIT.as_secs())))
        }),
        interrupted = interrupted() => Err(interrupted),
    };
    let kept = args.keep && told.is_ok();
    if let Err(trouble) = &told {
        telling.bad(&trouble.to_string());
    }
    if !kept {
        if told.is_err() {
            telling.heading("Taking everything down");
        }
        // The log is for finding out what failed; an interruption needs no finding out.
        let well_so_far = matches!(told, Ok(()) | Err(Trouble::Interrupted)) && story.checks.failed().is_empty();
        stage.strike(&mut story.checks, !well_so_far).await;
    }
    finish(screen, stage, &story, told, kept)
}

/// The five steps.
async fn tell(stage: &mut Stage, story: &mut Story) -> Result<(), Trouble> {
    opening::replica(stage).await?;
    let cast = opening::cast(stage, story).await?;
    work::build_and_test(stage, story, &cast).await?;
    interruption::kill_in_the_middle(stage, story, &cast).await?;
    ending::close(stage, story, &cast).await
}

async fn interrupted() -> Trouble {
    let wait = |kind| async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
    Trouble::Interrupted
}

fn finish(
    screen: &Screen,
    stage: Stage,
    story: &Story,
    told: Result<(), Trouble>,
    kept: bool,
) -> Result<Verdict, Failure> {
    let telling = stage.telling.clone();
    let failed = story.checks.failed();
    let good = told.is_ok() && failed.is_empty();
    let seconds = telling.elapsed().as_secs_f64();
    telling.text("");
    if good {
        telling.text(&screen.green(&format!("All {} checks held, in {seconds:.0} s.", story.checks.count())));
    } else {
        let cause = told.as_ref().err().filter(|trouble| !matches!(trouble, Trouble::Interrupted));
        for line in failed.iter().cloned().chain(cause.map(ToString::to_string)) {
            telling.text(&screen.warning(&format!("failed: {line}")));
        }
        if stage.folder.log().exists() && (!stage.folder.is_fleeting() || kept) {
            telling.text(&format!("The replica's log: {}", stage.folder.log().display()));
        }
    }
    if kept {
        how_to_look_around(&telling, &stage, story);
    } else if good {
        telling.text(
            "Run it again: the workspace is still there, and the first build is warm. --keep leaves the server up.",
        );
    }
    if screen.json() {
        screen.document(&report(&stage, story, &told, kept))?;
    }
    if kept {
        stage.folder.keep();
    }
    match told {
        Err(Trouble::Interrupted) if failed.is_empty() => Err(Failure::Interrupted(vec![
            "everything was taken down; the workspace stays for the next demo".to_owned(),
        ])),
        _ if good => Ok(Verdict::Done),
        _ => Ok(Verdict::Failed),
    }
}

fn how_to_look_around(telling: &Telling, stage: &Stage, story: &Story) {
    let builder = story.builder.as_deref().unwrap_or("RUN");
    let pid = stage.pid().unwrap_or(0);
    let (url, token, hearth) = (stage.address.url(), &stage.address.token, program());
    telling.text(&format!(
        "
The server is still up. To look around:
  export HEARTH_URL={url} HEARTH_TOKEN={token}
  {hearth} ls
  {hearth} tail {builder}
  {hearth} transcript {builder}
  {hearth} run dev/exec '{{\"workspace\":\"demo\",\"commands\":[\"ls\"]}}'
To end it:
  kill {pid}"
    ));
}

fn report(stage: &Stage, story: &Story, told: &Result<(), Trouble>, kept: bool) -> Value {
    let server = kept.then(|| json!({ "url": stage.address.url(), "token": stage.address.token, "pid": stage.pid() }));
    json!({
        "ok": told.is_ok() && story.checks.failed().is_empty(),
        "seconds": (stage.telling.elapsed().as_secs_f64() * 10.0).round() / 10.0,
        "language": story.language,
        "parent_run_id": story.parent,
        "child_run_id": story.builder,
        "turns": story.timings.iter().map(Timing::to_json).collect::<Vec<_>>(),
        "checks": story.checks.to_json(),
        "error": told.as_ref().err().map(ToString::to_string),
        "server": server,
    })
}
