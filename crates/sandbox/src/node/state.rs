//! A node's state folder: who it is, that it is the only one, and a record of every session, written
//! before anything of the session exists.
//!
//! | name | what |
//! |---|---|
//! | `identity` | made once; what is labelled with it on this host is this node's |
//! | `lock` | held for as long as the process lives |
//! | `sessions/ID.json` | one [`Record`] |
//! | `sessions/ID.execs` | commands under way, one line for a start and one for an end |
//! | `sessions/ID.seen` | which run saw and changed which file |
//! | `pool/ID.json` | one [`PoolRecord`]: a session that is ready and nobody's yet |
//! | `past.jsonl` | sessions that are gone and run trees that ended |

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use hearth_types::{Isolation, RunId, SandboxId, Tenant, Timestamp};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::node::pool::PoolRecord;
use crate::{Error, ErrorKind, SessionSpec};

/// A session as it survives the process. It holds no secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub spec: SessionSpec,
    /// Which driver it is of.
    pub kind: String,
    pub isolation: Isolation,
    pub principal: Tenant,
    pub workspace: Option<String>,
    pub own: bool,
    /// The tool call that opened it.
    pub call: Option<String>,
    /// The run that opened it.
    #[serde(default)]
    pub opened_by: Option<RunId>,
    pub created_at: Timestamp,
    pub stage: Stage,
    /// Whether it came from the pool.
    #[serde(default)]
    pub pooled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stage {
    /// Nobody has been told of it; after a crash it is cleared away.
    Opening,
    Open,
    /// To be cleared away, whatever happens.
    Closing,
}

#[derive(Debug)]
pub(crate) struct StateFolder {
    dir: PathBuf,
    identity: String,
    /// The lock goes with the file.
    _lock: File,
}

impl StateFolder {
    pub(crate) fn open(dir: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| {
            Error::caused(ErrorKind::Unavailable, format!("the state folder {} cannot be used", dir.display()), error)
        };
        // Drivers have folders of their own in it, which code of another user may have to pass through.
        fs::DirBuilder::new().recursive(true).mode(0o711).create(dir).map_err(failed)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir.join("sessions")).map_err(failed)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir.join("pool")).map_err(failed)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(dir.join("lock"))
            .map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let message = format!("another node runs on the state folder {}; give this one its own", dir.display());
                return Err(Error::new(ErrorKind::Conflict, message));
            }
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        clear_remains(dir).map_err(failed)?;
        let identity = node_identity(dir)?;
        Ok(Self { dir: dir.to_owned(), identity, _lock: lock })
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    pub(crate) fn past_file(&self) -> PathBuf {
        self.dir.join("past.jsonl")
    }

    pub(crate) fn execs_file(&self, session: &SandboxId) -> PathBuf {
        self.dir.join("sessions").join(format!("{session}.execs"))
    }

    /// What its runs have seen and changed.
    pub(crate) fn seen_file(&self, session: &SandboxId) -> PathBuf {
        self.dir.join("sessions").join(format!("{session}.seen"))
    }

    fn record_file(&self, session: &SandboxId) -> PathBuf {
        self.dir.join("sessions").join(format!("{session}.json"))
    }

    fn pool_file(&self, session: &SandboxId) -> PathBuf {
        self.dir.join("pool").join(format!("{session}.json"))
    }

    /// Returns once the record would survive a power cut. Blocks on the disk.
    pub(crate) fn put(&self, record: &Record) -> Result<(), Error> {
        put(&self.record_file(&record.spec.session), record)
    }

    pub(crate) fn put_pooled(&self, record: &PoolRecord) -> Result<(), Error> {
        put(&self.pool_file(&record.spec.session), record)
    }

    /// The record goes last: while it is there the next process knows that there is something to remove.
    pub(crate) fn remove(&self, session: &SandboxId) -> Result<(), Error> {
        for path in
            [self.execs_file(session), self.seen_file(session), self.pool_file(session), self.record_file(session)]
        {
            remove(&path)?;
        }
        Ok(())
    }

    pub(crate) fn remove_pooled(&self, session: &SandboxId) -> Result<(), Error> {
        remove(&self.pool_file(session))
    }

    /// The pool's records. Of a session that was taken from the pool its own record is what counts.
    pub(crate) fn pooled(&self) -> Result<Vec<PoolRecord>, Error> {
        let mut records: Vec<PoolRecord> = read_all(&self.dir.join("pool"))?;
        let mut taken = Vec::new();
        records.retain(|record| {
            let session = &record.spec.session;
            let mine = !self.record_file(session).exists();
            if !mine {
                taken.push(session.clone());
            }
            mine
        });
        taken.iter().try_for_each(|session| self.remove_pooled(session))?;
        Ok(records)
    }

    /// All records. One that cannot be read is set aside under another name and reported.
    pub(crate) fn records(&self) -> Result<Vec<Record>, Error> {
        let mut records: Vec<Record> = read_all(&self.dir.join("sessions"))?;
        records.sort_by(|a, b| a.spec.session.cmp(&b.spec.session));
        Ok(records)
    }
}

/// Removes what a process that was killed half-way left beside its records: files that were not renamed yet, and
/// notes on a session that has no record. Under the lock, since nobody else writes there then.
fn clear_remains(dir: &Path) -> io::Result<()> {
    for folder in [dir.join("sessions"), dir.join("pool")] {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let of_a_record = || path.with_extension("json").exists();
            let kept = match path.extension().and_then(|extension| extension.to_str()) {
                Some("json" | "unreadable") => true,
                Some("execs" | "seen") => of_a_record(),
                _ => false,
            };
            if !kept && path.is_file() {
                fs::remove_file(&path)?;
            }
        }
    }
    Ok(())
}

fn put(path: &Path, record: &impl Serialize) -> Result<(), Error> {
    let bytes = serde_json::to_vec(record)
        .map_err(|error| Error::caused(ErrorKind::Internal, "a session record could not be encoded", error))?;
    write_durably(path, &bytes)
        .map_err(|error| Error::caused(ErrorKind::Unavailable, "the node's state folder cannot be written", error))
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::caused(ErrorKind::Unavailable, "the node's state folder cannot be written", error))
        }
        _ => Ok(()),
    }
}

fn read_all<T: DeserializeOwned>(folder: &Path) -> Result<Vec<T>, Error> {
    let failed = |error| Error::caused(ErrorKind::Unavailable, "the node's state folder cannot be read", error);
    let mut records = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|ext| ext != "json") {
            continue;
        }
        let bytes = fs::read(&path).map_err(failed)?;
        match serde_json::from_slice(&bytes) {
            Ok(record) => records.push(record),
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "a session record cannot be read; it is set aside");
                fs::rename(&path, path.with_extension("unreadable")).map_err(failed)?;
            }
        }
    }
    Ok(records)
}

/// The identity in a node's folder, made on first use.
pub(crate) fn node_identity(dir: &Path) -> Result<String, Error> {
    name_in(dir, "identity", "node_")
}

/// The name of the storage that durable workspaces are on, made on first use: nodes that share the storage
/// find the same. No principal can have a folder of the file's name.
pub fn workspace_store(root: &Path) -> Result<String, Error> {
    name_in(root, ".hearth-store", "store_")
}

fn name_in(dir: &Path, file: &str, prefix: &str) -> Result<String, Error> {
    let path = dir.join(file);
    let failed = |error: io::Error| {
        Error::caused(ErrorKind::Unavailable, format!("the name in {} cannot be read", path.display()), error)
    };
    match fs::read_to_string(&path) {
        Ok(text) if hearth_types::check_id(text.trim()).is_ok() => return Ok(text.trim().to_owned()),
        Ok(_) => {
            let message = format!("{} holds no identity; what it labelled cannot be known any more", path.display());
            return Err(Error::new(ErrorKind::Internal, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let identity = SandboxId::generate().as_str().replacen("sbx_", prefix, 1);
    fs::DirBuilder::new().recursive(true).mode(0o711).create(dir).map_err(failed)?;
    // A link fails where a file is: of two processes that start at once, both get the first one's.
    let beside = dir.join(format!("{identity}.new"));
    write_durably(&beside, identity.as_bytes()).map_err(failed)?;
    let linked = fs::hard_link(&beside, &path);
    fs::remove_file(&beside).map_err(failed)?;
    match linked {
        Ok(()) => Ok(identity),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => name_in(dir, file, prefix),
        Err(error) => Err(failed(error)),
    }
}

/// All of it, or the old content: written beside, synced, then renamed over.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("tmp");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// An empty file that would survive a power cut. It is there or not, and never half-written.
pub(crate) fn mark_durably(path: &Path) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)?.sync_all()?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use hearth_types::SandboxLimits;

    use super::*;
    use crate::{Network, Work};

    pub(crate) fn record(session: &str) -> Record {
        Record {
            spec: SessionSpec {
                session: SandboxId::parse(session).unwrap(),
                root_run: None,
                node: "node-0".into(),
                image: None,
                work: Work::Tmpfs { mb: 64 },
                network: Network::None,
                limits: SandboxLimits::default(),
                runtime: None,
                deadline: Timestamp::from_millis(9_000),
                env: BTreeMap::new(),
            },
            kind: "fake".into(),
            isolation: Isolation::L2,
            principal: "acme".into(),
            workspace: None,
            own: false,
            call: None,
            opened_by: None,
            created_at: Timestamp::from_millis(1_000),
            stage: Stage::Opening,
            pooled: false,
        }
    }

    #[test]
    fn two_nodes_cannot_share_a_state_folder() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateFolder::open(dir.path()).unwrap();
        let refused = StateFolder::open(dir.path()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        let identity = first.identity().to_owned();
        drop(first);
        assert_eq!(StateFolder::open(dir.path()).unwrap().identity(), identity);
    }

    #[test]
    fn a_record_is_found_again_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(dir.path()).unwrap();
        let mut written = record("sbx_a");
        folder.put(&written).unwrap();
        written.stage = Stage::Open;
        folder.put(&written).unwrap();
        assert_eq!(folder.records().unwrap(), vec![written.clone()]);
        folder.remove(&written.spec.session).unwrap();
        folder.remove(&written.spec.session).unwrap();
        assert_eq!(folder.records().unwrap(), vec![]);
    }

    #[test]
    fn what_a_killed_process_left_half_written_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(dir.path()).unwrap();
        folder.put(&record("sbx_a")).unwrap();
        drop(folder);
        let names = |part: &str| {
            let entries = fs::read_dir(dir.path().join(part)).unwrap();
            let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        for half in
            ["sbx_a.tmp", "sbx_b.tmp", "sbx_a.execs", "sbx_b.execs", "sbx_a.seen", "sbx_b.seen", "sbx_a.seen-new"]
        {
            fs::write(dir.path().join("sessions").join(half), "").unwrap();
        }
        fs::write(dir.path().join("pool/sbx_c.tmp"), "").unwrap();
        let folder = StateFolder::open(dir.path()).unwrap();
        assert_eq!(names("sessions"), ["sbx_a.execs", "sbx_a.json", "sbx_a.seen"]);
        assert!(names("pool").is_empty());
        // A removal that is cut short leaves the record, so that it is gone on with.
        fs::remove_file(dir.path().join("sessions/sbx_a.execs")).unwrap();
        fs::create_dir(dir.path().join("sessions/sbx_a.execs")).unwrap();
        assert!(folder.remove(&SandboxId::parse("sbx_a").unwrap()).is_err());
        assert_eq!(folder.records().unwrap().len(), 1);
    }

    #[test]
    fn an_unreadable_record_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let folder = StateFolder::open(dir.path()).unwrap();
        folder.put(&record("sbx_a")).unwrap();
        fs::write(dir.path().join("sessions/sbx_b.json"), "{").unwrap();
        assert_eq!(folder.records().unwrap().len(), 1);
        assert!(dir.path().join("sessions/sbx_b.unreadable").exists());
    }
}
