//! Which node a durable workspace is on, written down where the workspace is.
//!
//! Nodes may share a storage, and what a cluster remembers elsewhere may be lost. So the storage itself
//! says whose a workspace is: a node that opens one writes its name beside it first, and takes one over only
//! from a node that is gone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::node::state::write_durably;
use crate::{Error, ErrorKind};

/// No principal can have a folder of this name.
const FOLDER: &str = ".hearth-homes";
/// In it, one empty file for each node that has used the storage; no principal is named so.
const NODES: &str = ".nodes";

/// The node that a workspace is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    pub node: String,
    /// Grows by one with every move.
    pub generation: u64,
}

/// The homes on one storage.
#[derive(Debug, Clone)]
pub struct Homes {
    root: PathBuf,
}

impl Homes {
    pub fn on(root: &Path) -> Self {
        Self { root: root.join(FOLDER) }
    }

    /// Where the workspace is, if any node has opened it.
    ///
    /// # Errors
    /// The storage cannot be read, or holds something else there.
    pub fn of(&self, principal: &str, name: &str) -> Result<Option<Home>, Error> {
        match fs::read(self.file(principal, name)) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(io::Error::other(error))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Makes `node` the home, if the workspace has none or is on `from`. Otherwise the home that stands.
    pub(crate) fn claim(&self, principal: &str, name: &str, node: &str, from: Option<&Home>) -> Result<Home, Error> {
        let _alone = self.lock()?;
        let known = self.of(principal, name)?;
        if let Some(known) = known.as_ref().filter(|known| known.node == node || from != Some(known)) {
            return Ok(known.clone());
        }
        let home = Home { node: node.to_owned(), generation: known.map_or(1, |known| known.generation + 1) };
        self.folder(principal)?;
        let bytes = serde_json::to_vec(&home).map_err(|error| failed(io::Error::other(error)))?;
        write_durably(&self.file(principal, name), &bytes).map_err(failed)?;
        Ok(home)
    }

    pub(crate) fn forget(&self, principal: &str, name: &str) -> Result<(), Error> {
        match fs::remove_file(self.file(principal, name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// Notes that this node uses the storage.
    pub(crate) fn join(&self, node: &str) -> Result<(), Error> {
        self.folder(NODES)?;
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.root.join(NODES).join(node))
            .map(drop)
            .map_err(failed)
    }

    /// Whether another node has ever used the storage. One that cannot be read may well be shared.
    pub(crate) fn shared_by_others(&self, node: &str) -> bool {
        let Ok(entries) = fs::read_dir(self.root.join(NODES)) else { return true };
        entries.filter_map(Result::ok).any(|entry| entry.file_name() != node)
    }

    fn file(&self, principal: &str, name: &str) -> PathBuf {
        self.root.join(principal).join(name)
    }

    fn folder(&self, name: &str) -> Result<(), Error> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.root.join(name)).map_err(failed)
    }

    /// Held while a home is looked at and changed, by one node of the storage at a time.
    fn lock(&self) -> Result<File, Error> {
        self.folder(NODES)?;
        let lock = OpenOptions::new().create(true).append(true).mode(0o600).open(self.root.join(".lock"));
        let lock = lock.map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(lock)
    }
}

fn failed(error: io::Error) -> Error {
    Error::caused(ErrorKind::Unavailable, "the home of the workspace cannot be read or written on its storage", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_has_one_home_and_moves_from_the_one_that_was_seen_only() {
        let root = tempfile::tempdir().unwrap();
        let homes = Homes::on(root.path());
        let home = |node: &str, generation| Home { node: node.to_owned(), generation };
        assert_eq!(homes.of("acme", "build").unwrap(), None);
        assert_eq!(homes.claim("acme", "build", "a", None).unwrap(), home("a", 1));
        assert_eq!(homes.claim("acme", "build", "a", None).unwrap(), home("a", 1), "again changes nothing");
        assert_eq!(homes.claim("acme", "build", "b", None).unwrap(), home("a", 1), "it is taken");
        assert_eq!(homes.claim("acme", "build", "b", Some(&home("a", 1))).unwrap(), home("b", 2));
        assert_eq!(homes.claim("acme", "build", "c", Some(&home("a", 1))).unwrap(), home("b", 2), "seen too early");
        assert_eq!(homes.of("other", "build").unwrap(), None);
        homes.forget("acme", "build").unwrap();
        homes.forget("acme", "build").unwrap();
        assert_eq!(homes.claim("acme", "build", "c", None).unwrap(), home("c", 1));
    }

    #[test]
    fn of_nodes_that_race_for_a_workspace_one_has_it() {
        let root = tempfile::tempdir().unwrap();
        let claims = std::thread::scope(|scope| {
            let race = |node: usize| {
                let homes = Homes::on(root.path());
                scope.spawn(move || homes.claim("acme", "build", &format!("n{node}"), None).unwrap())
            };
            let racing: Vec<_> = (0..8).map(race).collect();
            racing.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(claims.iter().all(|home| *home == claims[0]), "{claims:?}");
    }

    #[test]
    fn a_storage_is_shared_once_another_node_has_used_it() {
        let root = tempfile::tempdir().unwrap();
        let homes = Homes::on(root.path());
        homes.join("a").unwrap();
        assert!(!homes.shared_by_others("a"));
        homes.join("b").unwrap();
        assert!(homes.shared_by_others("a") && homes.shared_by_others("b"));
    }
}
