//! Which run changed a file: bounded, one table per session, on disk beside the session's record so that the
//! next process knows it too.
//!
//! Writes through the tools are known exactly. What a command changed shows only in a file's stamp;
//! then it was one of the runs that executed something since the reader last looked, and the last of
//! those other than the reader is named.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use hearth_types::RunId;
use serde::{Deserialize, Serialize};

use crate::init::FileStamp;
use crate::node::bounded::Bounded;

/// Pairs of (run, path) that are remembered.
const MAX_SEEN: usize = 4_096;
const MAX_WRITTEN: usize = 4_096;
const MAX_RUNS: usize = 256;
/// A file with a longer path is not watched.
const MAX_PATH: usize = 1_024;
/// Lines after which the file is written anew without what is forgotten.
const COMPACT_AFTER: usize = 2 * (MAX_SEEN + MAX_WRITTEN + MAX_RUNS);

#[derive(Debug)]
pub(crate) struct Provenance {
    /// Counts commands; the moment of a look is the count at it.
    moment: u64,
    seen: Bounded<(RunId, String), Seen>,
    written: Bounded<String, (RunId, FileStamp)>,
    executed: Bounded<RunId, u64>,
    /// Absent: in memory only.
    path: Option<PathBuf>,
    lines: usize,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    stamp: FileStamp,
    moment: u64,
}

/// One line of the file. Lines are appended without a sync: they have to survive this process, not a power
/// cut, which no session survives either.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Saw { run: RunId, path: String, stamp: FileStamp, moment: u64 },
    Wrote { run: RunId, path: String, stamp: FileStamp },
    Ran { run: RunId, moment: u64 },
}

impl Default for Provenance {
    fn default() -> Self {
        Self {
            moment: 0,
            seen: Bounded::new(MAX_SEEN),
            written: Bounded::new(MAX_WRITTEN),
            executed: Bounded::new(MAX_RUNS),
            path: None,
            lines: 0,
        }
    }
}

impl Provenance {
    /// With what an earlier process noted there.
    pub(crate) fn open(path: PathBuf) -> Self {
        let mut table = Self::default();
        match File::open(&path) {
            Ok(file) => table.replay(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, "which run changed which file is not known any more"),
        }
        table.path = Some(path);
        table
    }

    /// Its session is gone: what is still heard of it makes no file any more.
    pub(crate) fn stop_noting(&mut self) {
        self.path = None;
    }

    fn replay(&mut self, file: File) {
        for line in BufReader::new(file).lines().map_while(Result::ok) {
            // The last line may have been torn by the death of its writer.
            let Ok(line) = serde_json::from_str(&line) else { continue };
            self.lines += 1;
            self.take_in(line);
        }
    }

    fn take_in(&mut self, line: Line) {
        match line {
            Line::Saw { run, path, stamp, moment } => drop(self.seen.put((run, path), Seen { stamp, moment })),
            Line::Wrote { run, path, stamp } => drop(self.written.put(path, (run, stamp))),
            Line::Ran { run, moment } => {
                self.moment = self.moment.max(moment);
                self.executed.put(run, moment);
            }
        }
    }

    fn note(&mut self, line: Line) {
        let noted = self.append(&line);
        self.take_in(line);
        if let Err(error) = noted {
            tracing::warn!(%error, "which run changed which file could not be noted");
        }
    }

    fn append(&mut self, line: &Line) -> io::Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        if self.lines >= COMPACT_AFTER {
            self.compact(&path)?;
        }
        self.lines += 1;
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        OpenOptions::new().create(true).append(true).mode(0o600).open(path)?.write_all(&bytes)
    }

    fn compact(&mut self, path: &PathBuf) -> io::Result<()> {
        let ran = self.executed.iter().map(|(run, moment)| Line::Ran { run: run.clone(), moment: *moment });
        let wrote = self.written.iter().map(|(path, (run, stamp))| Line::Wrote {
            run: run.clone(),
            path: path.clone(),
            stamp: *stamp,
        });
        let saw = self.seen.iter().map(|((run, path), seen)| Line::Saw {
            run: run.clone(),
            path: path.clone(),
            stamp: seen.stamp,
            moment: seen.moment,
        });
        let mut bytes = Vec::new();
        let mut lines = 0;
        for line in ran.chain(wrote).chain(saw) {
            serde_json::to_writer(&mut bytes, &line)?;
            bytes.push(b'\n');
            lines += 1;
        }
        let beside = path.with_extension("seen-new");
        std::fs::write(&beside, bytes)?;
        std::fs::rename(beside, path)?;
        self.lines = lines;
        Ok(())
    }

    pub(crate) fn wrote(&mut self, run: &RunId, path: &str, stamp: FileStamp) {
        if path.len() > MAX_PATH {
            return;
        }
        self.note(Line::Wrote { run: run.clone(), path: path.to_owned(), stamp });
        self.saw(run, path, stamp);
    }

    /// To be called at the start of a command and at its end: it may have changed files in between.
    pub(crate) fn executed(&mut self, run: &RunId) {
        let moment = self.moment + 1;
        self.note(Line::Ran { run: run.clone(), moment });
    }

    /// Notes what the reader sees, and names the run that changed it since the reader last looked.
    pub(crate) fn read(&mut self, run: &RunId, path: &str, stamp: FileStamp) -> Option<RunId> {
        let before = self.seen.get(&(run.clone(), path.to_owned())).copied();
        // Only the first look, and one that finds a change or follows a command, says anything new.
        if before.is_none_or(|seen| seen.stamp != stamp || seen.moment != self.moment) {
            self.saw(run, path, stamp);
        }
        let before = before.filter(|seen| seen.stamp != stamp)?;
        if let Some((writer, written)) = self.written.get(path)
            && *written == stamp
        {
            return (writer != run).then(|| writer.clone());
        }
        let last = |since: u64| {
            let others = self.executed.iter().filter(|(other, at)| *other != run && **at > since);
            others.max_by_key(|(_, at)| **at).map(|(other, _)| other.clone())
        };
        if let Some(other) = last(before.moment) {
            return Some(other);
        }
        let itself = self.executed.get(run).is_some_and(|at| *at > before.moment);
        // Nobody's command ended since: one that is still under way, or was, changed it.
        if itself { None } else { last(0) }
    }

    fn saw(&mut self, run: &RunId, path: &str, stamp: FileStamp) {
        if path.len() <= MAX_PATH {
            self.note(Line::Saw { run: run.clone(), path: path.to_owned(), stamp, moment: self.moment });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> RunId {
        RunId::parse(name).unwrap()
    }

    fn stamp(version: i64) -> FileStamp {
        FileStamp { mtime_ns: version, ..FileStamp::default() }
    }

    #[test]
    fn a_first_look_and_an_unchanged_file_name_nobody() {
        let mut table = Provenance::default();
        table.wrote(&run("a"), "f", stamp(1));
        assert_eq!(table.read(&run("b"), "f", stamp(1)), None);
        assert_eq!(table.read(&run("b"), "f", stamp(1)), None);
    }

    #[test]
    fn a_write_of_another_run_is_named_once() {
        let mut table = Provenance::default();
        table.read(&run("b"), "f", stamp(1));
        table.wrote(&run("a"), "f", stamp(2));
        assert_eq!(table.read(&run("b"), "f", stamp(2)), Some(run("a")));
        assert_eq!(table.read(&run("b"), "f", stamp(2)), None);
        assert_eq!(table.read(&run("a"), "f", stamp(2)), None, "the writer knows");
    }

    #[test]
    fn a_command_of_another_run_is_named_the_last_one_first() {
        let mut table = Provenance::default();
        table.read(&run("b"), "f", stamp(1));
        table.executed(&run("a"));
        table.executed(&run("c"));
        table.executed(&run("b"));
        assert_eq!(table.read(&run("b"), "f", stamp(2)), Some(run("c")));
    }

    #[test]
    fn ones_own_command_names_nobody() {
        let mut table = Provenance::default();
        table.executed(&run("a"));
        table.read(&run("b"), "f", stamp(1));
        table.executed(&run("b"));
        assert_eq!(table.read(&run("b"), "f", stamp(2)), None);
    }

    #[test]
    fn a_command_still_under_way_is_named() {
        let mut table = Provenance::default();
        table.executed(&run("a"));
        table.read(&run("b"), "f", stamp(1));
        assert_eq!(table.read(&run("b"), "f", stamp(2)), Some(run("a")));
    }

    #[test]
    fn the_table_is_bounded() {
        let mut table = Provenance::default();
        for index in 0..(2 * MAX_SEEN) {
            table.wrote(&run("a"), &format!("f{index}"), stamp(1));
        }
        assert_eq!(table.seen.len(), MAX_SEEN);
        assert_eq!(table.written.len(), MAX_WRITTEN);
        assert_eq!(table.read(&run("a"), "f0", stamp(2)), None);
    }

    #[test]
    fn the_next_process_knows_it_and_the_file_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sbx_1.seen");
        let mut table = Provenance::open(path.clone());
        table.read(&run("b"), "f", stamp(1));
        table.read(&run("b"), "g", stamp(1));
        table.wrote(&run("a"), "f", stamp(2));
        table.executed(&run("c"));
        drop(table);
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"saw\":{\"ru").unwrap();
        let mut table = Provenance::open(path.clone());
        assert_eq!(table.read(&run("b"), "f", stamp(2)), Some(run("a")));
        assert_eq!(table.read(&run("b"), "g", stamp(2)), Some(run("c")));
        for _ in 0..(2 * COMPACT_AFTER) {
            table.executed(&run("c"));
        }
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= COMPACT_AFTER + 1, "{lines}");
        let mut table = Provenance::open(path);
        assert_eq!(table.read(&run("b"), "f", stamp(3)), Some(run("c")));
    }
}
