//! SIGKILL at any moment: what was acknowledged is there.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tokio::task::JoinSet;

use super::{key, open, put};
use crate::{Journal, Position};

const FOLDER: &str = "HEARTH_JOURNAL_KILL_FOLDER";
const WRITERS: usize = 6;

/// The child: several writers append for ever and print each acknowledgement.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the process that `acknowledged_frames_survive_sigkill` kills"]
async fn writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let journal = open(Path::new(&folder));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let journal = journal.clone();
        writers.spawn(async move {
            let name = format!("run_{writer}");
            let mut last = journal.last(&key(&name)).await.unwrap();
            loop {
                let frame = content(writer, Position(last.0 + 1));
                last = put(&journal, &name, last, &frame).await.unwrap();
                writeln!(std::io::stdout().lock(), "ack {writer} {last}").unwrap();
            }
        });
    }
    while writers.join_next().await.is_some() {}
}

/// Of sizes between a few bytes and several pages.
fn content(writer: usize, position: Position) -> Vec<u8> {
    format!("{writer}.{position} ").repeat(1 + (position.0 as usize * 7919) % 3_000).into_bytes()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Lets a child write until it acknowledged `acks` appends, kills it, and notes what it acknowledged.
fn write_and_kill(folder: &Path, acks: usize, acknowledged: &mut BTreeMap<usize, u64>) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "tests::kill::writes_until_it_is_killed", "--ignored", "--nocapture"]);
    child.env(FOLDER, folder).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Killed(child.spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut note = |line: &str| {
        // The test harness prints its own words before the first line.
        let Some(at) = line.find("ack ") else { return false };
        let mut words = line[at + 4..].split(' ');
        let writer: usize = words.next().unwrap().parse().unwrap();
        let position: u64 = words.next().unwrap().parse().unwrap();
        acknowledged.insert(writer, position);
        true
    };
    let mut seen = 0;
    while seen < acks {
        let line = lines.next().expect("the child ended by itself").unwrap();
        seen += usize::from(note(&line));
    }
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // What it printed before it died counts too; the last line may be torn.
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    for line in rest.iter().take(rest.len().saturating_sub(1)) {
        note(line);
    }
}

#[tokio::test]
async fn acknowledged_frames_survive_sigkill() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = BTreeMap::new();
    for round in 0..8usize {
        write_and_kill(folder.path(), 1 + round * round * 37 % 400, &mut acknowledged);
        let journal = open(folder.path());
        for (writer, position) in &acknowledged {
            let name = format!("run_{writer}");
            let frames = journal.read(&key(&name), Position(0), usize::MAX).await.unwrap();
            let have = frames.len() as u64;
            assert!(have >= *position, "round {round}: {name} has {have} frames, {position} were acknowledged");
            for stored in frames {
                assert!(stored.frame == content(*writer, stored.position), "{name}@{}", stored.position);
            }
        }
        let report = journal.check().await.unwrap();
        assert!(report.is_clean(), "round {round}: {report:?}");
    }
    assert_eq!(acknowledged.len(), WRITERS, "each writer had an acknowledgement");
}
