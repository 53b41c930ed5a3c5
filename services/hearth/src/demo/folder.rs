//! Where the demo's data lies. The durable workspace stays from one demo to the next; everything else
//! goes at the end.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

const WORKSPACES: &str = "workspaces";
const LOCK: &str = "lock";
const LOG: &str = "replica.log";

/// The folder is this process's alone while it holds the lock; the replica inherits the lock, so that
/// one that is kept keeps the folder too.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    lock: File,
    /// Another demo has the lasting folder: this one is thrown away as a whole.
    fleeting: Option<tempfile::TempDir>,
}

impl Folder {
    /// The lasting folder of this user, or one for this demo alone when another demo has it.
    pub fn take(root: &Path) -> io::Result<Self> {
        private_folder(root)?;
        let lasting = root.join("demo");
        private_folder(&lasting)?;
        if let Some(lock) = locked(&lasting)? {
            return Ok(Self { path: lasting, lock, fleeting: None });
        }
        let fleeting = tempfile::Builder::new().prefix("demo-").tempdir_in(root)?;
        let path = fleeting.path().to_owned();
        let lock = locked(&path)?.ok_or_else(|| io::Error::other("a folder made just now is locked"))?;
        Ok(Self { path, lock, fleeting: Some(fleeting) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// The last line of the replica's log.
    pub fn last_words(&self) -> String {
        let log = std::fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing").to_owned()
    }

    pub fn is_fleeting(&self) -> bool {
        self.fleeting.is_some()
    }

    /// An empty file that carries the lock to whoever inherits it.
    pub fn lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    /// Whether a demo before this one was killed before it could tidy up.
    pub fn has_remains(&self) -> io::Result<bool> {
        Ok(!self.passing()?.is_empty())
    }

    /// The folder of a durable workspace, whoever it belongs to.
    pub fn workspace(&self, name: &str) -> Option<PathBuf> {
        let principals = std::fs::read_dir(self.path.join(WORKSPACES)).ok()?;
        principals.flatten().map(|principal| principal.path().join(name)).find(|path| path.is_dir())
    }

    /// Removes everything but the workspaces, and the log unless it is still wanted.
    pub fn tidy(&self, keep_log: bool) -> io::Result<()> {
        for path in self.passing()? {
            if path.is_dir() {
                std::fs::remove_dir_all(&path)?;
            } else {
                std::fs::remove_file(&path)?;
            }
        }
        if !keep_log && self.log().exists() {
            std::fs::remove_file(self.log())?;
        }
        Ok(())
    }

    /// Leaves a folder that would be thrown away to a replica that is kept.
    pub fn keep(self) {
        if let Some(fleeting) = self.fleeting {
            let _kept: PathBuf = fleeting.keep();
        }
    }

    fn passing(&self) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            if ![WORKSPACES, LOCK, LOG].iter().any(|kept| entry.file_name() == *kept) {
                found.push(entry.path());
            }
        }
        Ok(found)
    }
}

/// `XDG_CACHE_HOME/hearth`, else `~/.cache/hearth`, else a folder for this user among the temporary ones.
pub fn cache_root() -> PathBuf {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    match (absolute("XDG_CACHE_HOME"), absolute("HOME")) {
        (Some(cache), _) => cache.join("hearth"),
        (None, Some(home)) => home.join(".cache/hearth"),
        (None, None) => std::env::temp_dir().join(format!("hearth-{}", rustix::process::getuid().as_raw())),
    }
}

/// Makes the folder unless it is there; one that is somebody else's is refused, for among the temporary
/// files anybody could have made it.
fn private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let found = std::fs::symlink_metadata(path)?;
    if found.is_dir() && found.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!("{} belongs to somebody else", path.display())))
}

fn locked(folder: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().read(true).append(true).create(true).open(folder.join(LOCK))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_workspaces_outlast_the_demo() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::take(root.path()).unwrap();
        assert!(!folder.has_remains().unwrap());
        let workspace = folder.path().join("workspaces/default/demo");
        std::fs::create_dir_all(&workspace).unwrap();
        std::fs::create_dir(folder.path().join("sandboxes")).unwrap();
        for file in ["journal.db", "replica.log", "workspaces/default/demo/kept"] {
            std::fs::write(folder.path().join(file), "x").unwrap();
        }
        assert!(folder.has_remains().unwrap());
        assert_eq!(folder.workspace("demo"), Some(workspace.clone()));
        folder.tidy(true).unwrap();
        assert!(folder.log().exists());
        folder.tidy(false).unwrap();
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(workspace.join("kept").exists());
    }

    #[test]
    fn a_second_demo_at_the_same_time_has_a_folder_of_its_own_that_goes_with_it() {
        let root = tempfile::tempdir().unwrap();
        let first = Folder::take(root.path()).unwrap();
        let second = Folder::take(root.path()).unwrap();
        assert!(!first.is_fleeting() && second.is_fleeting());
        let path = second.path().to_owned();
        drop(second);
        assert!(!path.exists());
        drop(first);
        assert!(!Folder::take(root.path()).unwrap().is_fleeting());
    }

    #[test]
    fn whoever_inherits_the_lock_keeps_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let first = Folder::take(root.path()).unwrap();
        let inherited = first.lock().unwrap();
        drop(first);
        assert!(Folder::take(root.path()).unwrap().is_fleeting());
        drop(inherited);
        assert!(!Folder::take(root.path()).unwrap().is_fleeting());
    }
}
