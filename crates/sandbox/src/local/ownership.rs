//! Whose a workspace is. One that another driver, or another kind of session, has used belongs to the
//! user of that; it is handed over as a whole when the first session of the new kind starts.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid, chownat, open, openat};
use rustix::io::Errno;

/// Deeper folders are left as they are; their makers went out of their way.
const MAX_DEPTH: usize = 128;

/// Gives `folder` and all in it to a user, unless the folder is that user's already. Links are given,
/// never followed: every step is from a descriptor of the folder before.
pub fn hand_over(folder: &Path, uid: u32, gid: u32) -> io::Result<()> {
    if fs::symlink_metadata(folder)?.uid() == uid {
        return Ok(());
    }
    let root = open(folder, folder_flags(), Mode::empty())?;
    let owner = (Uid::from_raw(uid), Gid::from_raw(gid));
    below(root.as_fd(), owner, 0)?;
    // Last, so that one that broke off half-way is taken up again.
    rustix::fs::fchown(&root, Some(owner.0), Some(owner.1))?;
    Ok(())
}

fn below(folder: BorrowedFd<'_>, owner: (Uid, Gid), depth: usize) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match open_folder(folder, name) {
            Ok(inner) => below(inner.as_fd(), owner, depth + 1)?,
            Err(Errno::NOTDIR | Errno::LOOP | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        match chownat(folder, name, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn open_folder(folder: BorrowedFd<'_>, name: &std::ffi::CStr) -> Result<OwnedFd, Errno> {
    openat(folder, std::ffi::OsStr::from_bytes(name.to_bytes()), folder_flags(), Mode::empty())
}

fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// Whether a user who is neither root nor in any group may get to a folder.
pub fn reachable_by_others(folder: &Path) -> bool {
    folder.ancestors().all(|folder| fs::metadata(folder).is_ok_and(|meta| meta.mode() & 0o001 != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_workspace_changes_hands_whole_and_links_are_not_followed() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        let (work, outside) = (base.path().join("work"), base.path().join("outside"));
        fs::create_dir_all(work.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(work.join("a/b/f"), "x").unwrap();
        fs::write(outside.join("f"), "x").unwrap();
        symlink(&outside, work.join("a/link")).unwrap();
        hand_over(&work, 1000, 1000).unwrap();
        for path in ["", "a", "a/b", "a/b/f", "a/link"] {
            assert_eq!(fs::symlink_metadata(work.join(path)).unwrap().uid(), 1000, "{path}");
        }
        assert_eq!(fs::metadata(outside.join("f")).unwrap().uid(), 0);
        hand_over(&work, 0, 0).unwrap();
        assert_eq!(fs::metadata(work.join("a/b/f")).unwrap().uid(), 0);
    }
}
