//! Which run changed a file: pure, bounded, one table per session.
//!
//! Writes through the tools are known exactly. What a command changed shows only in a file's stamp;
//! then it was one of the runs that executed something since the reader last looked, and the last of
//! those other than the reader is named.

use hearth_types::RunId;

use crate::init::FileStamp;
use crate::node::bounded::Bounded;

/// Pairs of (run, path) that are remembered.
const MAX_SEEN: usize = 4_096;
const MAX_WRITTEN: usize = 4_096;
const MAX_RUNS: usize = 256;

#[derive(Debug)]
pub(crate) struct Provenance {
    /// Counts commands; the moment of a look is the count at it.
    moment: u64,
    seen: Bounded<(RunId, String), Seen>,
    written: Bounded<String, (RunId, FileStamp)>,
    executed: Bounded<RunId, u64>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    stamp: FileStamp,
    moment: u64,
}

impl Default for Provenance {
    fn default() -> Self {
        Self {
            moment: 0,
            seen: Bounded::new(MAX_SEEN),
            written: Bounded::new(MAX_WRITTEN),
            executed: Bounded::new(MAX_RUNS),
        }
    }
}

impl Provenance {
    pub(crate) fn wrote(&mut self, run: &RunId, path: &str, stamp: FileStamp) {
        self.written.put(path.to_owned(), (run.clone(), stamp));
        self.saw(run, path, stamp);
    }

    /// To be called at the start of a command and at its end: it may have changed files in between.
    pub(crate) fn executed(&mut self, run: &RunId) {
        self.moment += 1;
        self.executed.put(run.clone(), self.moment);
    }

    /// Notes what the reader sees, and names the run that changed it since the reader last looked.
    pub(crate) fn read(&mut self, run: &RunId, path: &str, stamp: FileStamp) -> Option<RunId> {
        let before = self.seen.get(&(run.clone(), path.to_owned())).copied();
        self.saw(run, path, stamp);
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
        let seen = Seen { stamp, moment: self.moment };
        self.seen.put((run.clone(), path.to_owned()), seen);
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
}
