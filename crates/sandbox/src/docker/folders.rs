//! The driver's part of the state folder: the init program, and one folder per session for the socket
//! of its init.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use hearth_types::SandboxId;

use crate::init::install;
use crate::node::node_identity;
use crate::{Error, ErrorKind, SESSION_GID, SESSION_UID};

#[derive(Debug)]
pub(crate) struct Folders {
    /// Holds one folder per session and nothing else.
    dir: PathBuf,
    init: PathBuf,
    identity: String,
}

impl Folders {
    pub(crate) async fn open(state_dir: &Path) -> Result<Self, Error> {
        let identity = node_identity(state_dir)?;
        let top = state_dir.join("docker");
        // Whoever reaches a socket commands its session. The engine is not held up by this, nor is a
        // container, which has its folder mounted.
        DirBuilder::new().recursive(true).mode(0o700).create(top.join("run")).map_err(failed)?;
        // The engine mounts by an absolute path.
        let top = top.canonicalize().map_err(failed)?;
        let init = install(&top).await.map_err(failed)?;
        Ok(Self { dir: top.join("run"), init, identity })
    }

    /// The static program that becomes process 1.
    pub(crate) fn init(&self) -> &Path {
        &self.init
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Who code runs as: a user of its own where this process may give files away, else its own user, so
    /// that both can use the workspace.
    pub(crate) fn user(&self) -> (u32, u32) {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        if uid.is_root() { (SESSION_UID, SESSION_GID) } else { (uid.as_raw(), gid.as_raw()) }
    }

    pub(crate) fn of(&self, session: &SandboxId) -> PathBuf {
        self.dir.join(session.as_str())
    }

    /// The folder in which the init will bind its socket.
    pub(crate) fn make(&self, session: &SandboxId) -> Result<PathBuf, Error> {
        let folder = self.of(session);
        match DirBuilder::new().mode(0o755).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        self.give(&folder, self.user(), 0o755)?;
        Ok(folder)
    }

    /// Takes the folder away from the session once its socket is there: what code in the container could
    /// write there would be disk space of the host without a bound.
    pub(crate) fn seal(&self, session: &SandboxId) -> Result<(), Error> {
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        self.give(&self.of(session), own, 0o555)
    }

    fn give(&self, folder: &Path, (uid, gid): (u32, u32), mode: u32) -> Result<(), Error> {
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(folder, Some(uid), Some(gid)).map_err(failed)?;
        }
        fs::set_permissions(folder, Permissions::from_mode(mode)).map_err(failed)
    }

    pub(crate) fn remove(&self, session: &SandboxId) -> Result<(), Error> {
        let folder = self.of(session);
        match fs::set_permissions(&folder, Permissions::from_mode(0o755)).and_then(|()| fs::remove_dir_all(&folder)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }

    /// The sessions that have a folder.
    pub(crate) fn sessions(&self) -> Result<Vec<SandboxId>, Error> {
        let mut sessions = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            sessions.extend(name.to_str().and_then(|name| SandboxId::parse(name).ok()));
        }
        Ok(sessions)
    }
}

fn failed(error: io::Error) -> Error {
    Error::caused(ErrorKind::Unavailable, "the Docker driver's part of the state folder cannot be used", error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[tokio::test]
    async fn a_sealed_folder_is_not_the_sessions_any_more_and_can_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::open(dir.path()).await.unwrap();
        let session = SandboxId::parse("sbx_1").unwrap();
        let folder = folders.make(&session).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().uid(), folders.user().0);
        fs::write(folder.join(crate::spec::SOCKET), "").unwrap();
        folders.seal(&session).unwrap();
        let sealed = fs::metadata(&folder).unwrap();
        assert_eq!(sealed.uid(), rustix::process::geteuid().as_raw());
        assert_eq!(sealed.mode() & 0o222, 0);
        assert_eq!(folders.sessions().unwrap(), vec![session.clone()]);
        folders.remove(&session).unwrap();
        folders.remove(&session).unwrap();
        assert!(!folder.exists());
    }
}
