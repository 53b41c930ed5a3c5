//! The commands under way in one session, on disk: a process that finds the session again must not take
//! it for idle while they run.
//!
//! Lines are appended without a sync: they have to survive this process, not a power cut, which no
//! session survives either. The file stays open and is cut only now and then, since a command that does nothing
//! takes little more time than making and removing a file.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use hearth_types::ExecId;

/// Bytes after which the file begins anew, once nothing runs.
const CUT_AFTER: u64 = 64 * 1024;

#[derive(Debug)]
pub(crate) struct ExecLog {
    path: PathBuf,
    notes: Mutex<Notes>,
}

#[derive(Debug)]
enum Notes {
    Unopened,
    Open(Open),
    /// The session is gone, and its file with it.
    Over,
}

#[derive(Debug)]
struct Open {
    file: File,
    len: u64,
}

impl ExecLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, notes: Mutex::new(Notes::Unopened) }
    }

    pub(crate) fn started(&self, exec_id: &ExecId) {
        self.note('+', exec_id, false);
    }

    /// `last`: nothing else runs, so that the file can begin anew.
    pub(crate) fn ended(&self, exec_id: &ExecId, last: bool) {
        self.note('-', exec_id, last);
    }

    /// What an earlier process saw begin and not end.
    pub(crate) fn pending(&self) -> io::Result<BTreeSet<ExecId>> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(error),
        };
        let mut pending = BTreeSet::new();
        for line in text.lines() {
            if let Some(id) = line.strip_prefix('+').and_then(|id| ExecId::parse(id).ok()) {
                pending.insert(id);
            } else if let Some(id) = line.strip_prefix('-').and_then(|id| ExecId::parse(id).ok()) {
                pending.remove(&id);
            }
        }
        Ok(pending)
    }

    fn note(&self, sign: char, exec_id: &ExecId, nothing_runs: bool) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = self.append(&mut notes, &format!("{sign}{exec_id}\n"), nothing_runs) {
            // Opened again the next time.
            *notes = Notes::Unopened;
            tracing::warn!(%error, path = %self.path.display(), "a command under way could not be noted");
        }
    }

    /// Its session is gone: what is still heard of it makes no file any more, not even what is being noted now.
    pub(crate) fn stop_noting(&self) {
        *self.notes.lock().unwrap_or_else(PoisonError::into_inner) = Notes::Over;
    }

    fn append(&self, notes: &mut Notes, line: &str, nothing_runs: bool) -> io::Result<()> {
        if let Notes::Unopened = notes {
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
            let len = file.metadata()?.len();
            *notes = Notes::Open(Open { file, len });
        }
        let Notes::Open(at) = notes else { return Ok(()) };
        at.file.write_all(line.as_bytes())?;
        at.len += line.len() as u64;
        if nothing_runs && at.len > CUT_AFTER {
            at.file.set_len(0)?;
            at.len = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> ExecId {
        ExecId::parse(text).unwrap()
    }

    #[test]
    fn only_what_has_not_ended_is_pending() {
        let dir = tempfile::tempdir().unwrap();
        let log = ExecLog::new(dir.path().join("log"));
        log.started(&id("exec_a"));
        log.started(&id("exec_b"));
        log.ended(&id("exec_a"), false);
        let again = ExecLog::new(dir.path().join("log"));
        assert_eq!(again.pending().unwrap(), BTreeSet::from([id("exec_b")]));
        again.ended(&id("exec_b"), true);
        assert_eq!(again.pending().unwrap(), BTreeSet::new());
    }

    #[test]
    fn the_file_does_not_grow_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let log = ExecLog::new(dir.path().join("log"));
        log.started(&id("exec_long"));
        for round in 0..10_000 {
            let short = id(&format!("exec_{round}"));
            log.started(&short);
            log.ended(&short, false);
        }
        assert_eq!(log.pending().unwrap(), BTreeSet::from([id("exec_long")]), "never cut while something runs");
        log.ended(&id("exec_long"), true);
        assert_eq!(std::fs::metadata(dir.path().join("log")).unwrap().len(), 0);
        log.started(&id("exec_next"));
        assert_eq!(log.pending().unwrap(), BTreeSet::from([id("exec_next")]));
    }
}
