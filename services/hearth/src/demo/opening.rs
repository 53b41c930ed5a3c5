//! Steps 1 and 2: a replica, and on it a parent with its resident builder.

use hearth_client::{ListRuns, OpenResident};
use hearth_types::RunId;
use serde_json::Value;

use super::Story;
use super::builder::{AGENT, Builder, WORKSPACE, Work};
use super::project::{C, Project, RUST};
use super::stage::Stage;
use super::telling::{counted, shown};
use super::trouble::Trouble;

/// Who plays.
pub struct Cast {
    pub parent: RunId,
    pub builder: Builder,
    pub session: String,
    pub project: Project,
}

/// Cargo may be there as a name alone, without a toolchain behind it: only a version proves it.
const PROBE: &str = "if cargo --version 2>/dev/null; then :; \
    elif gcc --version >/dev/null 2>&1 && make --version >/dev/null 2>&1; then gcc --version | head -n 1; \
    else echo none; fi";

pub async fn replica(stage: &mut Stage) -> Result<(), Trouble> {
    stage.telling.heading("1  A replica: its journal in a SQLite file, a sandbox for code");
    let telling = stage.telling.clone();
    if stage.folder.is_fleeting() {
        telling.note("another demo has the warm workspace; this one starts cold, in a folder of its own");
    }
    let here = |error: std::io::Error| Trouble::Here(error.to_string());
    let remains = stage.folder.has_remains().map_err(here)?;
    let busy = telling.busy("starting `hearth dev`");
    if let Err(trouble) = stage.start_replica().await {
        if !remains {
            return Err(trouble);
        }
        // An older version's journal, or one that was cut off with its demo: not worth a failure.
        telling.note("what an earlier demo left behind cannot be used, and goes");
        if let Some(mut replica) = stage.replica.take() {
            replica.stop().await;
        }
        stage.folder.tidy(false).map_err(here)?;
        stage.start_replica().await?;
    }
    if remains {
        match stage.close_all().await? {
            0 => telling.note("an earlier demo left its journal; it goes with this one's"),
            open => telling.note(&format!("an earlier demo was cut off; {} of it closed", counted(open, "run"))),
        }
    }
    let took = busy.elapsed();
    drop(busy);
    let pid = stage.pid().unwrap_or_default();
    telling.good(&format!("serving on {} (pid {pid}) after {}", stage.address.url(), shown(took)));
    telling.note(&format!("its data: {}", stage.folder.path().display()));
    Ok(())
}

pub async fn cast(stage: &mut Stage, story: &mut Story) -> Result<Cast, Trouble> {
    stage.telling.heading("2  A parent opens a resident builder with a durable workspace");
    let telling = stage.telling.clone();
    let request = OpenResident {
        agent: "mock".to_owned(),
        prompt: "I want a program built; a builder shall do it.".to_owned(),
        ..OpenResident::default()
    };
    let parent = stage.client.open(&request).await.map_err(Trouble::call("opening the parent"))?.body.run_id;
    story.parent = Some(parent.to_string());
    telling.good(&format!("parent {parent} (agent mock)"));

    let busy = telling.busy("opening the builder and its sandbox");
    let (builder, turn) = Builder::open(&stage.client, &parent, &Work::command(PROBE)).await?;
    drop(busy);
    story.builder = Some(builder.run.to_string());
    telling.good(&format!("builder {} (agent {AGENT}) in {}", builder.run, shown(turn.round_trip)));
    let session = turn.report.session_id.clone();
    let session = session.ok_or_else(|| Trouble::answer("opening the builder", "no sandbox session was named"))?;
    stage.sessions.push(session.clone());
    let rows = stage.sandboxes(Some(parent.as_str())).await?;
    let row = rows.iter().find(|row| row["session_id"] == session.as_str());
    story.checks.that(&telling, row.is_some(), "one sandbox session for the tree", &described(&session, row));

    let filter = ListRuns { parent_run_id: Some(parent.to_string()), ..ListRuns::default() };
    let list = stage.client.list_residents(&filter).await.map_err(Trouble::call("listing the residents"))?;
    let listed = list["resident"].as_array().is_some_and(|rows| {
        rows.len() == 1 && rows[0]["child_run_id"] == builder.run.as_str() && rows[0]["state"] == "awaiting_input"
    });
    story.checks.that(&telling, listed, "the builder is listed below its parent, waiting for work", "");

    let project = choose(turn.output())?;
    story.language = Some(project.language);
    telling.note(&format!("in the sandbox: {}", turn.output().trim()));
    Ok(Cast { parent, builder, session, project })
}

fn described(session: &str, row: Option<&Value>) -> String {
    let Some(row) = row else { return session.to_owned() };
    let field = |name: &str| row[name].as_str().unwrap_or("?").to_owned();
    format!("{session}, level {}, runtime {}, workspace {WORKSPACE:?}", field("isolation"), field("runtime"))
}

fn choose(probe: &str) -> Result<Project, Trouble> {
    let seen = probe.trim();
    if seen.starts_with("cargo ") {
        Ok(RUST)
    } else if seen.is_empty() || seen == "none" {
        let advice = "the sandbox has neither cargo nor gcc and make: install one of them, or build the session image \
                      with `cargo xtask image`";
        Err(Trouble::Here(advice.to_owned()))
    } else {
        Ok(C)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_is_preferred_and_c_is_the_fallback() {
        assert_eq!(choose("cargo 1.95.0 (abc)\n").unwrap().language, "Rust");
        assert_eq!(choose("gcc (Debian 12.2.0) 12.2.0\n").unwrap().language, "C");
        assert!(choose("none\n").is_err() && choose("").is_err());
    }
}
