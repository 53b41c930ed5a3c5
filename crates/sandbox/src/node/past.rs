//! What a node remembers of what is over: sessions that are gone, so that their callers learn why and a
//! repeated close succeeds, and run trees that ended, so that an open that comes late is refused.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use hearth_types::{RunId, SandboxId, Tenant};
use serde::{Deserialize, Serialize};

use crate::node::bounded::Bounded;
use crate::node::state::write_durably;

const MAX_GONE: usize = 4_096;
const MAX_ENDED: usize = 16_384;
/// Lines after which the file is written anew without what is forgotten.
const COMPACT_AFTER: usize = 2 * (MAX_GONE + MAX_ENDED);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Why {
    Closed,
    Idle,
    Expired,
    RunEnded,
    /// The container went away from outside.
    Lost,
    /// Its node was cut off from the cluster, and its workspace may be opened elsewhere.
    CutOff,
    /// Its open did not succeed.
    Failed,
    /// Its opener went away before it was told of it.
    Unclaimed,
    /// Something that no command answers for went on writing to a workspace that was too big.
    Overgrown,
}

impl Why {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Idle => "idle",
            Self::Expired => "expired",
            Self::RunEnded => "run_ended",
            Self::Lost => "lost",
            Self::CutOff => "cut_off",
            Self::Failed => "failed",
            Self::Unclaimed => "unclaimed",
            Self::Overgrown => "overgrown",
        }
    }

    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::Closed => "the session was closed",
            Self::Idle => "the session was closed because it was idle for too long",
            Self::Expired => "the session was closed at its absolute time-out",
            Self::RunEnded => "the session was closed because its run tree ended",
            Self::Lost => "the session's container is gone",
            Self::CutOff => "the session was closed because its node was cut off from the cluster",
            Self::Failed => "the session could not be opened",
            Self::Unclaimed => "the session was closed because its opener had gone away",
            Self::Overgrown => {
                "the session was closed because what a command had left behind went on filling its workspace past the limit"
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Gone {
    pub session: SandboxId,
    pub principal: Tenant,
    pub root_run: Option<RunId>,
    pub workspace: Option<String>,
    pub why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub principal: Tenant,
    pub root_run: RunId,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Gone(Gone),
    Ended(Ended),
}

#[derive(Debug)]
pub(crate) struct Past {
    path: PathBuf,
    file: File,
    lines: usize,
    gone: Bounded<SandboxId, Gone>,
    ended: Bounded<Ended, ()>,
}

impl Past {
    /// Reads what an earlier process knew. A line that was torn by its death is left out.
    pub(crate) fn open(path: PathBuf) -> io::Result<Self> {
        let file = append_to(&path)?;
        let mut past = Self { path, file, lines: 0, gone: Bounded::new(MAX_GONE), ended: Bounded::new(MAX_ENDED) };
        for line in BufReader::new(File::open(&past.path)?).lines() {
            match serde_json::from_str(&line?) {
                Ok(Line::Gone(gone)) => drop(past.gone.put(gone.session.clone(), gone)),
                Ok(Line::Ended(ended)) => drop(past.ended.put(ended, ())),
                Err(error) => tracing::warn!(%error, "a line of the node's past cannot be read"),
            }
        }
        past.compact()?;
        Ok(past)
    }

    pub(crate) fn gone(&self, session: &SandboxId) -> Option<&Gone> {
        self.gone.get(session)
    }

    pub(crate) fn has_ended(&self, principal: &str, root_run: &RunId) -> bool {
        self.ended.get(&Ended { principal: principal.to_owned(), root_run: root_run.clone() }).is_some()
    }

    pub(crate) fn note_gone(&mut self, gone: Gone) -> io::Result<()> {
        self.gone.put(gone.session.clone(), gone.clone());
        self.append(&Line::Gone(gone))
    }

    /// Known from now on; returns once it would survive a power cut.
    pub(crate) fn note_ended(&mut self, ended: Ended) -> io::Result<()> {
        if !self.ended.put(ended.clone(), ()) {
            return Ok(());
        }
        self.append(&Line::Ended(ended))?;
        self.file.sync_data()
    }

    fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.file.write_all(&bytes)?;
        self.lines += 1;
        if self.lines > COMPACT_AFTER { self.compact() } else { Ok(()) }
    }

    fn compact(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        let gone = self.gone.iter().map(|(_, gone)| Line::Gone(gone.clone()));
        for line in gone.chain(self.ended.iter().map(|(ended, ())| Line::Ended(ended.clone()))) {
            serde_json::to_writer(&mut bytes, &line)?;
            bytes.push(b'\n');
        }
        write_durably(&self.path, &bytes)?;
        self.file = append_to(&self.path)?;
        self.lines = self.gone.len() + self.ended.len();
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(index: usize) -> Gone {
        Gone {
            session: SandboxId::parse(&format!("sbx_{index}")).unwrap(),
            principal: "acme".into(),
            root_run: None,
            workspace: None,
            why: Why::Idle,
        }
    }

    #[test]
    fn the_past_survives_the_process_and_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("past.jsonl");
        let root_run = RunId::parse("run_1").unwrap();
        {
            let mut past = Past::open(path.clone()).unwrap();
            past.note_gone(gone(1)).unwrap();
            past.note_ended(Ended { principal: "acme".into(), root_run: root_run.clone() }).unwrap();
        }
        append_to(&path).unwrap().write_all(b"{\"gone\":{\"ses").unwrap();
        let past = Past::open(path).unwrap();
        assert_eq!(past.gone(&gone(1).session), Some(&gone(1)));
        assert!(past.has_ended("acme", &root_run));
        assert!(!past.has_ended("other", &root_run));
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut past = Past::open(dir.path().join("past.jsonl")).unwrap();
        for index in 0..=MAX_GONE {
            past.note_gone(gone(index)).unwrap();
        }
        assert!(past.gone(&gone(0).session).is_none());
        assert!(past.gone(&gone(1).session).is_some());
        assert!(past.gone(&gone(MAX_GONE).session).is_some());
    }
}
