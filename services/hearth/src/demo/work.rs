//! Step 3: build, change, build, test, fix, test. Each is a `send` to the same resident.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::Story;
use super::builder::{Turn, Work};
use super::opening::Cast;
use super::project::{Edit, SourceFile, Tests, compiled};
use super::stage::Stage;
use super::telling::{Telling, counted, shown};
use super::trouble::Trouble;

/// One row of the table.
#[derive(Debug, Clone)]
pub struct Timing {
    pub turn: String,
    pub commands: Duration,
    pub round_trip: Duration,
    pub compiled: usize,
    pub result: String,
}

impl Timing {
    pub fn new(name: &str, turn: &Turn, result: impl Into<String>) -> Self {
        Self {
            turn: name.to_owned(),
            commands: turn.duration(),
            round_trip: turn.round_trip,
            compiled: compiled(turn.output()),
            result: result.into(),
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "turn": self.turn,
            "command_ms": u64::try_from(self.commands.as_millis()).unwrap_or(u64::MAX),
            "round_trip_ms": u64::try_from(self.round_trip.as_millis()).unwrap_or(u64::MAX),
            "compiled": self.compiled,
            "result": self.result,
        })
    }

    fn row(&self) -> Vec<String> {
        let compiled = if self.compiled == 0 { "-".to_owned() } else { self.compiled.to_string() };
        vec![self.turn.clone(), shown(self.commands), shown(self.round_trip), compiled, self.result.clone()]
    }
}

pub fn table(telling: &Telling, timings: &[Timing]) {
    let rows: Vec<Vec<String>> = timings.iter().map(Timing::row).collect();
    telling.table(&["TURN", "IN THE SANDBOX", "ROUND TRIP", "COMPILED", "RESULT"], &rows);
}

pub async fn build_and_test(stage: &mut Stage, story: &mut Story, cast: &Cast) -> Result<(), Trouble> {
    let project = cast.project;
    let title = format!("3  A small {} program, built and tested by sends to the builder", project.language);
    stage.telling.heading(&title);
    let mut turns = Turns { telling: stage.telling.clone(), story, cast };

    let sources = project.sources();
    let (missing, kept) = turns.compare(&sources).await?;
    let known = kept > 0;
    turns.telling.note(&match known {
        true => format!("the workspace was kept from an earlier demo: {kept} of {} files are there", sources.len()),
        false => format!("the workspace is new; the demo writes {}", counted(sources.len(), "file")),
    });
    let name = if known { "build (kept workspace)" } else { "build (cold)" };
    let first = turns.build(name, missing).await?;
    let second = turns.change_and_build(&project.change).await?;
    turns.compare_builds(known, &first, &second);

    let before = turns.test("test", None).await?;
    let seen = format!("{} of {}: {}", before.failed.len(), before.total(), before.failed.join(", "));
    turns.check(before.failed == project.failing, "two tests fail, really", &seen);
    let after = turns.test("fix, test", Some(&project.fix)).await?;
    let mended = after.failed.is_empty() && after.passed == before.total();
    turns.check(mended, "after the fix all pass", &format!("{} of {}", after.passed, after.total()));
    Ok(())
}

struct Turns<'a> {
    telling: Telling,
    story: &'a mut Story,
    cast: &'a Cast,
}

impl Turns<'_> {
    fn check(&mut self, holds: bool, claim: &str, detail: &str) {
        self.story.checks.that(&self.telling, holds, claim, detail);
    }

    /// One send, which has to run in the session that the builder began with.
    async fn send(&mut self, doing: &'static str, work: &Work) -> Result<Turn, Trouble> {
        let turn = {
            let _busy = self.telling.busy(doing);
            self.cast.builder.send(doing, work).await?
        };
        let session = turn.report.session_id.as_deref();
        if session != Some(self.cast.session.as_str()) {
            self.check(false, "each turn runs in the same sandbox session", session.unwrap_or("none"));
        }
        Ok(turn)
    }

    /// Which files are not in the workspace as they should be, and how many files are there at all.
    /// Writing a file that is right already would make the compiler start over.
    async fn compare(&mut self, sources: &[SourceFile]) -> Result<(Vec<SourceFile>, usize), Trouble> {
        let paths: Vec<&str> = sources.iter().map(|file| file.path.as_str()).collect();
        let command = format!("sha256sum {} 2>/dev/null || true", paths.join(" "));
        let turn = self.send("looking at the workspace", &Work::command(command)).await?;
        Ok(differing(sources, turn.output()))
    }

    async fn build(&mut self, name: &str, files: Vec<SourceFile>) -> Result<Timing, Trouble> {
        let work = Work::command(self.cast.project.build).with_files(files);
        let turn = self.send("building", &work).await?;
        let timing = Timing::new(name, &turn, if turn.succeeded() { "ok" } else { "failed" });
        let detail = match turn.succeeded() {
            true => format!("{}, {} compiled", shown(timing.commands), counted(timing.compiled, "unit")),
            false => format!("{}: {}", ended(&turn), turn.output()),
        };
        self.check(turn.succeeded(), name, &detail);
        self.story.timings.push(timing.clone());
        Ok(timing)
    }

    async fn change_and_build(&mut self, edit: &Edit) -> Result<Timing, Trouble> {
        self.telling.note(&format!("change {}: {}", edit.path, edit.what));
        let changed = self.cast.project.edited(edit).into_iter().collect();
        self.build("change, build (warm)", changed).await
    }

    fn compare_builds(&mut self, known: bool, first: &Timing, second: &Timing) {
        self.check(second.compiled == 1, "only what changed was compiled again", "");
        let units = self.cast.project.units;
        if known {
            let kept = units.saturating_sub(first.compiled);
            self.telling.note(&format!("{kept} of {units} units came from the cache of the earlier demo"));
        } else {
            let times = first.commands.as_secs_f64() / second.commands.as_secs_f64().max(0.001);
            self.check(times > 1.0, "warm is faster than cold", &format!("{times:.0} times"));
        }
    }

    async fn test(&mut self, name: &str, fix: Option<&Edit>) -> Result<Tests, Trouble> {
        let files = match fix {
            Some(edit) => {
                self.telling.note(&format!("change {}: {}", edit.path, edit.what));
                self.cast.project.edited(edit).into_iter().collect()
            }
            None => Vec::new(),
        };
        let turn = self.send("testing", &Work::command(self.cast.project.test).with_files(files)).await?;
        let tests = Tests::read(turn.output());
        if turn.succeeded() != tests.failed.is_empty() || tests.total() == 0 {
            let detail = format!("{}: {}", ended(&turn), turn.output());
            self.check(false, "the test run tells how it went", &detail);
        }
        let result = format!("{} of {} pass", tests.passed, tests.total());
        self.story.timings.push(Timing::new(name, &turn, result));
        Ok(tests)
    }
}

/// How the last command ended.
pub fn ended(turn: &Turn) -> String {
    turn.exit_code().map_or("no exit code".to_owned(), |code| format!("exit code {code}"))
}

/// `listing` is what sha256sum says.
fn differing(sources: &[SourceFile], listing: &str) -> (Vec<SourceFile>, usize) {
    let digests: HashMap<&str, &str> =
        listing.lines().filter_map(|line| line.split_once("  ")).map(|(digest, path)| (path, digest)).collect();
    let same = |file: &&SourceFile| digests.get(file.path.as_str()).is_none_or(|digest| *digest != file.digest());
    let missing = sources.iter().filter(same).cloned().collect();
    (missing, sources.iter().filter(|file| digests.contains_key(file.path.as_str())).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_differ_are_written() {
        let file = |path: &str, content: &str| SourceFile { path: path.to_owned(), content: content.to_owned() };
        let sources = [file("a", "one"), file("b", "two"), file("c", "three")];
        let listing = format!("{}  a\n{}  b\n", sources[0].digest(), "0".repeat(64));
        assert_eq!(differing(&sources, &listing), (vec![sources[1].clone(), sources[2].clone()], 2));
        assert_eq!(differing(&sources, ""), (sources.to_vec(), 0));
    }
}
