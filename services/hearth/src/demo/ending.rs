//! Step 5: the parent is closed, and with it all but the workspace.

use std::time::Duration;

use hearth_client::{CreateRun, ListRuns};
use hearth_types::RunState;
use tokio::time::Instant;

use super::Story;
use super::builder::{AGENT, Turn, WORKSPACE, Work};
use super::interruption::LEDGER;
use super::opening::Cast;
use super::project::compiled;
use super::stage::Stage;
use super::telling::{counted, shown};
use super::trouble::Trouble;
use super::work::ended;

pub async fn close(stage: &mut Stage, story: &mut Story, cast: &Cast) -> Result<(), Trouble> {
    stage.telling.heading("5  The parent is closed");
    let telling = stage.telling.clone();
    let before = (stage.processes().len(), stage.containers().await.len());
    let began = Instant::now();
    let closing = stage.client.close(cast.parent.as_str(), Some("the work is done"));
    let closed = closing.await.map_err(Trouble::call("closing the parent"))?.body;
    let took = began.elapsed();
    let good = closed.state == RunState::Closed && closed.closed_descendants == 1;
    let detail =
        format!("{} closed with it, in {}", counted(to_count(closed.closed_descendants), "descendant"), shown(took));
    story.checks.that(&telling, good, "the parent is closed", &detail);

    let child = stage.client.run(cast.builder.run.as_str()).await.map_err(Trouble::call("looking at the builder"))?;
    let state = child["state"].as_str().unwrap_or("?").to_owned();
    story.checks.that(&telling, state == "closed", "so is the builder", &state);
    let filter = ListRuns { root_run_id: Some(cast.parent.to_string()), ..ListRuns::default() };
    let list = stage.client.list_residents(&filter).await.map_err(Trouble::call("listing the residents"))?;
    let left = list["resident"].as_array().map_or(usize::MAX, Vec::len);
    story.checks.that(&telling, left == 0, "no resident of the tree is left", "");
    let rows = stage.sandboxes(Some(cast.parent.as_str())).await?;
    story.checks.that(&telling, rows.is_empty(), "the sandbox session is gone from the list", "");
    gone(stage, story, before).await;
    warm_again(stage, story, cast).await
}

/// The machine is asked too, not only the server.
async fn gone(stage: &Stage, story: &mut Story, (processes, containers): (usize, usize)) {
    let left = stage.remains().await;
    let detail = match left.is_empty() {
        true => format!("{} and {} before", counted(processes, "process"), counted(containers, "container")),
        false => left.join(", "),
    };
    story.checks.that(&stage.telling, left.is_empty(), "no process or container of it is left", &detail);
}

/// A run of another tree finds the workspace, and the build cache in it.
async fn warm_again(stage: &mut Stage, story: &mut Story, cast: &Cast) -> Result<(), Trouble> {
    let telling = stage.telling.clone();
    let doing = "finding the workspace again";
    let work = Work::command(format!("rm -f {LEDGER}; {}", cast.project.build));
    let request = CreateRun { agent: AGENT.to_owned(), prompt: work.prompt(), ..CreateRun::default() };
    let began = Instant::now();
    let answer = {
        let _busy = telling.busy(doing);
        stage.client.create_run(&request).await.map_err(Trouble::call(doing))?
    };
    let turn = Turn::read(doing, &answer.body.envelope, began.elapsed())?;
    stage.sessions.extend(turn.report.session_id.clone());
    let units = compiled(turn.output());
    let warm = turn.succeeded() && units < cast.project.units;
    let detail = match turn.succeeded() {
        true => {
            let compiled = counted(units, "unit");
            format!("a new run in a new session built it in {}, {compiled} compiled", shown(turn.duration()))
        }
        false => format!("{}: {}", ended(&turn), turn.output()),
    };
    story.checks.that(&telling, warm, "the workspace is still there, and warm", &detail);
    let on_disk = stage.folder.workspace(WORKSPACE);
    let place = on_disk.as_ref().map_or("nowhere".to_owned(), |path| path.display().to_string());
    story.checks.that(&telling, on_disk.is_some(), "it lies on this machine", &place);
    let session_ended = sandbox_ends(stage, answer.body.root_run_id.as_str()).await?;
    story.checks.that(&telling, session_ended, "a run that ends takes its sandbox session along", "");
    Ok(())
}

/// A run that ended by itself is cleaned up after its answer: that may take a moment.
async fn sandbox_ends(stage: &Stage, root: &str) -> Result<bool, Trouble> {
    let began = Instant::now();
    loop {
        if stage.sandboxes(Some(root)).await?.is_empty() {
            return Ok(true);
        }
        if began.elapsed() > Duration::from_secs(5) {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn to_count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
