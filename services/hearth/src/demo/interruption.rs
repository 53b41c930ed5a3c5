//! Step 4: the replica is killed in the middle of a build, and nobody notices but for a delay.

use std::time::Duration;

use hearth_types::{Clock, SystemClock};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::Story;
use super::builder::{Turn, Work};
use super::opening::Cast;
use super::stage::Stage;
use super::telling::shown;
use super::trouble::Trouble;
use super::work::{Timing, ended};

/// Where the interrupted command notes that it began and that it ended.
pub const LEDGER: &str = "ledger.txt";
/// For the command to be seen running.
const SEEN_RUNNING: Duration = Duration::from_secs(30);
/// So that the compiler is at work when its replica dies.
const AT_WORK: Duration = Duration::from_millis(700);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

pub async fn kill_in_the_middle(stage: &mut Stage, story: &mut Story, cast: &Cast) -> Result<(), Trouble> {
    stage.telling.heading("4  The replica is killed while a build is running");
    let telling = stage.telling.clone();
    let mark = uuid::Uuid::now_v7().simple().to_string();
    let turns_before = turns(stage, cast).await?;
    let work = Work::command(command(&mark, cast.project.long_build)).reading(LEDGER);

    telling.note("a build from nothing begins; the caller's `send` is blocked on it");
    let busy = telling.busy("a blocked `send`");
    let began = Instant::now();
    let builder = cast.builder.clone();
    let (answer, killing) = tokio::try_join!(builder.call("the blocked send", &work), kill(stage, cast, &mark))?;
    let round_trip = began.elapsed();
    drop(busy);

    let turn = Turn::read("the blocked send", &answer.body, round_trip)?;
    let detail = format!("{} after {}", ended(&turn), shown(round_trip));
    story.checks.that(&telling, turn.succeeded(), "the blocked send returned the build's result", &detail);
    let same = turn.turn_id.as_str() == killing.turn_id;
    story.checks.that(&telling, same, "it is the turn that was running when the replica died", turn.turn_id.as_str());
    let turns_now = turns(stage, cast).await?;
    story.checks.that(
        &telling,
        turns_now == turns_before + 1,
        "the repeated send started no second turn",
        &format!("{turns_before} turns before, {turns_now} after"),
    );
    let ledger = turn.report.read.get(LEDGER).and_then(Value::as_str).unwrap_or_default();
    let entries = Ledger::read(ledger, &mark);
    story.checks.that(&telling, entries.once(), "the command ran once", &entries.described(killing.killed_at_ms));
    let through = entries.ran_through(killing.killed_at_ms);
    story.checks.that(&telling, through, "it was running when the replica died, and ran on", "");
    let session = turn.report.session_id.as_deref() == Some(cast.session.as_str());
    story.checks.that(&telling, session, "in the same sandbox session", &cast.session);
    story.timings.push(Timing::new("build, replica killed", &turn, "ok"));
    super::work::table(&telling, &story.timings);
    Ok(())
}

/// Notes its beginning, builds, notes its end, with the times of this machine's clock.
fn command(mark: &str, build: &str) -> String {
    format!(
        "echo \"{mark} began $(date +%s%3N)\" >> {LEDGER}; ( {build} ); code=$?; \
         echo \"{mark} ended $(date +%s%3N)\" >> {LEDGER}; exit $code"
    )
}

struct Killing {
    killed_at_ms: i64,
    turn_id: String,
}

async fn kill(stage: &mut Stage, cast: &Cast, mark: &str) -> Result<Killing, Trouble> {
    let telling = stage.telling.clone();
    let waiting = tokio::time::timeout(SEEN_RUNNING, running_turn(stage, cast, mark));
    let turn_id = waiting.await.unwrap_or_else(|_| Err(Trouble::Here("the build was not seen running".to_owned())))?;
    telling.good(&format!("the compiler is at work ({turn_id})"));
    let Some(replica) = &mut stage.replica else {
        return Err(Trouble::Here("there is no replica to kill".to_owned()));
    };
    let pid = replica.pid();
    telling.note(&format!("kill -9 {pid}"));
    let status = replica.kill().await?;
    let killed_at_ms = SystemClock::start().now().as_millis();
    telling.good(&format!("the replica is dead ({status})"));
    let began = Instant::now();
    stage.start_replica().await?;
    let pid = stage.pid().unwrap_or_default();
    telling.good(&format!("started again on the same port and data (pid {pid}) in {}", shown(began.elapsed())));
    Ok(Killing { killed_at_ms, turn_id })
}

/// The turn whose command is running: it is in the event stream, and the sandbox says so.
async fn running_turn(stage: &Stage, cast: &Cast, mark: &str) -> Result<String, Trouble> {
    let mut stream = stage.client.stream(cast.builder.run.as_str(), 0);
    let turn_id = loop {
        let next = stream.next().await.map_err(Trouble::call("watching the builder"))?;
        let event = next.ok_or_else(|| Trouble::answer("watching the builder", "its run has ended"))?;
        if event.name == "tool_call" && event.data.to_string().contains(mark) {
            break event.data["turn_id"].as_str().unwrap_or_default().to_owned();
        }
    };
    loop {
        let rows = stage.sandboxes(Some(cast.parent.as_str())).await?;
        let running = |row: &Value| row["session_id"] == cast.session.as_str() && row["running"].as_u64() > Some(0);
        if rows.iter().any(running) {
            break;
        }
        sleep(LOOK_AGAIN).await;
    }
    sleep(AT_WORK).await;
    Ok(turn_id)
}

async fn turns(stage: &Stage, cast: &Cast) -> Result<u64, Trouble> {
    let doing = "counting the builder's turns";
    let run = stage.client.run(cast.builder.run.as_str()).await.map_err(Trouble::call(doing))?;
    run["turns"].as_u64().ok_or_else(|| Trouble::answer(doing, "no number"))
}

/// The entries of one command, in milliseconds since the epoch.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ledger {
    began: Vec<i64>,
    ended: Vec<i64>,
}

impl Ledger {
    fn read(text: &str, mark: &str) -> Self {
        let mut ledger = Self::default();
        for line in text.lines().filter_map(|line| line.strip_prefix(mark)) {
            match line.trim().split_once(' ').map(|(what, at)| (what, at.parse::<i64>())) {
                Some(("began", Ok(at))) => ledger.began.push(at),
                Some(("ended", Ok(at))) => ledger.ended.push(at),
                _ => {}
            }
        }
        ledger
    }

    fn once(&self) -> bool {
        self.began.len() == 1 && self.ended.len() == 1
    }

    fn ran_through(&self, moment_ms: i64) -> bool {
        self.began.iter().all(|at| *at <= moment_ms) && self.ended.iter().all(|at| *at >= moment_ms) && self.once()
    }

    fn described(&self, killed_at_ms: i64) -> String {
        let around = |times: &[i64]| {
            let spans: Vec<String> =
                times.iter().map(|at| format!("{:+.1} s", (at - killed_at_ms) as f64 / 1_000.0)).collect();
            if spans.is_empty() { "never".to_owned() } else { spans.join(" and ") }
        };
        format!("it began {} and ended {} from the kill", around(&self.began), around(&self.ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_ran_twice_or_not_through_is_seen() {
        let once = Ledger::read("m began 100\nother began 1\nm ended 900\n", "m");
        assert_eq!(once, Ledger { began: vec![100], ended: vec![900] });
        assert!(once.once() && once.ran_through(500) && !once.ran_through(50) && !once.ran_through(950));
        assert!(!Ledger::read("m began 1\nm began 2\nm ended 3\n", "m").once());
        assert!(!Ledger::read("m began 1\n", "m").once());
    }

    #[test]
    fn the_noted_command_ends_with_the_builds_own_code() {
        let folder = tempfile::tempdir().unwrap();
        let run = |build: &str| {
            let line = command("m", build);
            std::process::Command::new("bash").args(["-c", &line]).current_dir(&folder).status().unwrap().code()
        };
        assert_eq!((run("true"), run("exit 3")), (Some(0), Some(3)));
        let text = std::fs::read_to_string(folder.path().join(LEDGER)).unwrap();
        let ledger = Ledger::read(&text, "m");
        assert_eq!((ledger.began.len(), ledger.ended.len()), (2, 2), "{text}");
    }
}
