//! The commands under way in one session, on disk: a process that finds the session again must not take
//! it for idle while they run.
//!
//! Lines are appended without a sync: they have to survive this process, not a power cut, which no
//! session survives either.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use hearth_types::ExecId;

#[derive(Debug)]
pub(crate) struct ExecLog {
    path: PathBuf,
}

impl ExecLog {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn started(&self, exec_id: &ExecId) {
        self.append('+', exec_id);
    }

    /// `last`: nothing else runs, so that the file can begin anew.
    pub(crate) fn ended(&self, exec_id: &ExecId, last: bool) {
        if !last {
            return self.append('-', exec_id);
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => self.append('-', exec_id),
            _ => {}
        }
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

    fn append(&self, sign: char, exec_id: &ExecId) {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path);
        if let Err(error) = file.and_then(|mut file| file.write_all(format!("{sign}{exec_id}\n").as_bytes())) {
            tracing::warn!(%error, path = %self.path.display(), "a command under way could not be noted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_not_ended_is_pending() {
        let dir = tempfile::tempdir().unwrap();
        let log = ExecLog::new(dir.path().join("log"));
        let id = |text: &str| ExecId::parse(text).unwrap();
        log.started(&id("exec_a"));
        log.started(&id("exec_b"));
        log.ended(&id("exec_a"), false);
        let again = ExecLog::new(dir.path().join("log"));
        assert_eq!(again.pending().unwrap(), BTreeSet::from([id("exec_b")]));
        again.ended(&id("exec_b"), true);
        assert_eq!(again.pending().unwrap(), BTreeSet::new());
    }
}
