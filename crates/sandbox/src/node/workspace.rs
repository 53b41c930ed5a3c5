//! Durable workspaces: `ROOT/<principal>/<name>`, made and opened without following a symbolic link.
//!
//! A driver mounts by path, some time after the path was checked. So that a directory that is swapped
//! for a link in between is never handed out, [`Workspace::mark`] puts a file of a fresh name into the
//! directory that was opened; only a session that sees this file has that directory as its `/work`.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use hearth_types::{SandboxId, check_id};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid};

use crate::node::policy::is_workspace_name;
use crate::{Error, ErrorKind, SESSION_GID, SESSION_UID, session_home};

/// Of the folder of one principal: others may pass through it, by name, to what they can open anyway.
const PRINCIPAL_MODE: Mode = Mode::from_raw_mode(0o711);
const WORKSPACE_MODE: Mode = Mode::from_raw_mode(0o700);
pub(crate) const MARK_PREFIX: &str = ".hearth-mark-";

/// A workspace directory, held open.
#[derive(Debug)]
pub(crate) struct Workspace {
    folder: OwnedFd,
}

/// A file in the workspace that goes away with this.
#[derive(Debug)]
pub(crate) struct Mark {
    folder: OwnedFd,
    pub name: String,
}

impl Workspace {
    /// Opens the workspace, making it if it is not there. Whose it is then is the driver's affair, whose
    /// sessions run as some user. Blocks on the disk.
    pub(crate) fn ensure(root: &Path, principal: &str, name: &str) -> Result<Self, Error> {
        if check_id(principal).is_err() || !is_workspace_name(name) {
            return Err(Error::new(ErrorKind::Invalid, "a workspace is named [a-z0-9][a-z0-9_-]{0,63}"));
        }
        let owner = open_owner(root, principal, name)?;
        let folder = folder(&owner, name, WORKSPACE_MODE).map_err(|error| refuse(&error, name))?;
        Ok(Self { folder })
    }

    /// Makes a folder beside the workspaces, for one that is to become one of them.
    pub(crate) fn make(owner: &OwnedFd, name: &str) -> Result<OwnedFd, Error> {
        let folder = folder(owner, name, WORKSPACE_MODE).map_err(|error| refuse(&error, name))?;
        give_to_sessions(&folder).map_err(|error| refuse(&error, name))?;
        Ok(folder)
    }

    pub(crate) fn mark(&self, session: &SandboxId) -> Result<Mark, Error> {
        let name = format!("{MARK_PREFIX}{session}");
        let failed = |error: io::Error| Error::caused(ErrorKind::Unavailable, "the workspace cannot be written", error);
        remove(&self.folder, &name).map_err(failed)?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.folder, &name, flags, Mode::from_raw_mode(0o644))
            .map_err(|error| failed(error.into()))?;
        // The umask must not keep the session from reading it.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644)).map_err(|error| failed(error.into()))?;
        let folder = self.folder.try_clone().map_err(failed)?;
        Ok(Mark { folder, name })
    }

    /// Makes the home of its commands. What is there under that name already is left as it is.
    pub(crate) fn make_home(&self) -> Result<(), Error> {
        let failed = |error: rustix::io::Errno| {
            let error = io::Error::from(error);
            Error::caused(ErrorKind::Unavailable, "the workspace cannot be written", error)
        };
        let home = session_home("", false);
        let name = home.trim_start_matches('/');
        match rustix::fs::mkdirat(&self.folder, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => open_folder(&self.folder, name).and_then(|home| give_to_sessions(&home)).map_err(failed),
            Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Clears away what a process that died while it looked for its mark left behind.
    pub(crate) fn unmark(root: &Path, principal: &str, name: &str, session: &SandboxId) -> io::Result<()> {
        let opened = open_folder(&File::open(root)?.into(), principal).and_then(|owner| open_folder(&owner, name));
        match opened {
            Ok(folder) => remove(&folder, &format!("{MARK_PREFIX}{session}")),
            Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.folder, &self.name) {
            tracing::warn!(%error, file = self.name, "a mark could not be removed from a workspace");
        }
    }
}

fn remove(folder: &OwnedFd, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The root is the operator's and may be reached through links of the operator's.
pub(crate) fn open_root(root: &Path) -> Result<OwnedFd, Error> {
    let opened = std::fs::create_dir_all(root).and_then(|()| File::open(root));
    let root =
        opened.map_err(|error| Error::caused(ErrorKind::Unavailable, "the workspace root cannot be used", error))?;
    Ok(root.into())
}

/// The folder of a principal, made if it is not there.
pub(crate) fn open_owner(root: &Path, principal: &str, name: &str) -> Result<OwnedFd, Error> {
    folder(&open_root(root)?, principal, PRINCIPAL_MODE).map_err(|error| refuse(&error, name))
}

/// Opens `parent/name`, a single component, making it if it is not there.
fn folder(parent: &OwnedFd, name: &str, mode: Mode) -> rustix::io::Result<OwnedFd> {
    match rustix::fs::mkdirat(parent, name, mode) {
        Ok(()) => {
            let made = open_folder(parent, name)?;
            rustix::fs::fchmod(&made, mode)?;
            return Ok(made);
        }
        Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    open_folder(parent, name)
}

pub(crate) fn open_folder(parent: &OwnedFd, name: impl rustix::path::Arg + Copy) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(parent, name, flags, Mode::empty(), resolve) {
        // Kernels and seccomp filters without openat2: a single component without `..` and with
        // O_NOFOLLOW cannot leave its parent either.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            rustix::fs::openat(parent, name, flags, Mode::empty())
        }
        other => other,
    }
}

/// Sessions run as a user of their own where this process may say so, else as this process's user.
fn give_to_sessions(folder: &OwnedFd) -> rustix::io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = rustix::fs::fstat(folder.as_fd())?;
    if owner.st_uid != SESSION_UID || owner.st_gid != SESSION_GID {
        rustix::fs::fchown(folder, Some(Uid::from_raw(SESSION_UID)), Some(Gid::from_raw(SESSION_GID)))?;
    }
    Ok(())
}

fn refuse(error: &rustix::io::Errno, name: &str) -> Error {
    use rustix::io::Errno;
    match *error {
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV => Error::caused(
            ErrorKind::Refused,
            format!("the workspace {name} is a symbolic link or no folder; the operator has to look at it"),
            io::Error::from(*error),
        ),
        Errno::NOSPC | Errno::DQUOT => Error::caused(
            ErrorKind::NoSpace,
            format!("no room is left for the workspace {name}"),
            io::Error::from(*error),
        ),
        _ => Error::caused(
            ErrorKind::Unavailable,
            format!("the workspace {name} cannot be opened"),
            io::Error::from(*error),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn session() -> SandboxId {
        SandboxId::parse("sbx_1").unwrap()
    }

    #[test]
    fn a_workspace_is_made_once_and_is_private() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("acme/build");
        Workspace::ensure(root.path(), "acme", "build").unwrap();
        std::fs::write(path.join("kept"), "1").unwrap();
        Workspace::ensure(root.path(), "acme", "build").unwrap();
        assert!(path.join("kept").exists());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn t9_a_link_anywhere_on_the_way_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        Workspace::ensure(root.path(), "acme", "build").unwrap();

        let workspace = root.path().join("acme/build");
        std::fs::remove_dir(&workspace).unwrap();
        symlink(elsewhere.path(), &workspace).unwrap();
        let refused = Workspace::ensure(root.path(), "acme", "build").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused);

        symlink(elsewhere.path(), root.path().join("evil")).unwrap();
        let refused = Workspace::ensure(root.path(), "evil", "build").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused);
        assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0, "nothing was made behind the link");
    }

    #[test]
    fn a_mark_is_in_the_opened_folder_even_when_the_path_leads_elsewhere() {
        let root = tempfile::tempdir().unwrap();
        let opened = Workspace::ensure(root.path(), "acme", "build").unwrap();
        let (path, moved) = (root.path().join("acme/build"), root.path().join("moved"));
        std::fs::rename(&path, &moved).unwrap();
        std::fs::create_dir(&path).unwrap();
        let mark = opened.mark(&session()).unwrap();
        assert!(moved.join(&mark.name).exists());
        assert!(!path.join(&mark.name).exists());
        let name = mark.name.clone();
        drop(mark);
        assert!(!moved.join(name).exists());
    }

    #[test]
    fn names_that_could_leave_the_root_are_invalid() {
        let root = tempfile::tempdir().unwrap();
        for (principal, name) in [("..", "a"), ("", "a"), ("a", ".."), ("a", "x/y"), ("a", "")] {
            let refused = Workspace::ensure(root.path(), principal, name).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Invalid, "{principal} {name}");
        }
    }
}
