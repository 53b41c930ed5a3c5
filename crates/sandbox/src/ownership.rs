//! Whose a workspace is. One that another driver, or another kind of session, has used belongs to the
//! user of that; it is handed over as a whole when the first session of the new kind starts.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid, chownat, open, openat};
use rustix::io::Errno;

use crate::{Error, ErrorKind};

/// Deeper folders are left as they are; their makers went out of their way.
const MAX_DEPTH: usize = 128;

/// [`hand_over`] of each, for a session that is about to start.
pub async fn hand_all_over(folders: Vec<PathBuf>, uid: u32, gid: u32) -> Result<(), Error> {
    let handing = move || folders.iter().try_for_each(|folder| hand_over(folder, uid, gid));
    let handed = tokio::task::spawn_blocking(handing).await.map_err(io::Error::other).flatten();
    handed.map_err(|error| {
        Error::caused(ErrorKind::Unavailable, "the workspace cannot be given to the session's user", error)
    })
}

/// Gives `folder` and all in it to a user, unless it and what is directly in it are that user's already: a session's
/// code cannot make files of others. Symbolic links are given, never followed: every step is from a descriptor of the
/// folder before. A file with a name outside of the folder stays whose it is: a kernel that lets anybody link to any
/// file would make this a way to own them. Does nothing where this process may not give files away.
fn hand_over(folder: &Path, uid: u32, gid: u32) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let root = open(folder, folder_flags(), Mode::empty())?;
    if rustix::fs::fstat(&root)?.st_uid == uid && all_of(root.as_fd(), uid)? {
        return Ok(());
    }
    let owner = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    let mut names: HashMap<(u64, u64), u64> = HashMap::new();
    below(root.as_fd(), 0, &mut |_, found| {
        if has_more_names(found) {
            *names.entry((found.st_dev, found.st_ino)).or_default() += 1;
        }
        Ok(())
    })?;
    below(root.as_fd(), 0, &mut |file, found| {
        let inside = names.get(&(found.st_dev, found.st_ino)).copied().unwrap_or(0);
        if !has_more_names(found) || found.st_nlink <= inside {
            chownat(file, c"", owner.0, owner.1, AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    })?;
    // Last, so that one that broke off half-way is taken up again.
    rustix::fs::fchown(&root, owner.0, owner.1)?;
    Ok(())
}

fn has_more_names(found: &Stat) -> bool {
    !is_folder(found) && found.st_nlink > 1
}

fn is_folder(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode).is_dir()
}

fn all_of(folder: BorrowedFd<'_>, uid: u32) -> io::Result<bool> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if found.st_uid != uid => return Ok(false),
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Visits all below the folder by a descriptor of each, what is in a folder before the folder.
fn below(
    folder: BorrowedFd<'_>,
    depth: usize,
    visit: &mut impl FnMut(BorrowedFd<'_>, &Stat) -> io::Result<()>,
) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Ok(());
    }
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let file = match openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        let found = rustix::fs::fstat(&file)?;
        if is_folder(&found) {
            let inner = openat(&file, c".", folder_flags(), Mode::empty())?;
            below(inner.as_fd(), depth + 1, visit)?;
        }
        visit(file.as_fd(), &found)?;
    }
    Ok(())
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
        // Two names inside, as compilers make them; and one of a file that has another name outside.
        fs::hard_link(work.join("a/b/f"), work.join("twice")).unwrap();
        fs::write(base.path().join("shadow"), "x").unwrap();
        fs::hard_link(base.path().join("shadow"), work.join("a/stolen")).unwrap();
        hand_over(&work, 1000, 1000).unwrap();
        for path in ["", "a", "a/b", "a/b/f", "a/link", "twice"] {
            assert_eq!(fs::symlink_metadata(work.join(path)).unwrap().uid(), 1000, "{path}");
        }
        for path in ["outside/f", "shadow"] {
            assert_eq!(fs::metadata(base.path().join(path)).unwrap().uid(), 0, "{path}");
        }
        hand_over(&work, 0, 0).unwrap();
        assert_eq!(fs::metadata(work.join("a/b/f")).unwrap().uid(), 0);
        // One of which only the folder itself changed hands.
        std::os::unix::fs::chown(&work, Some(1000), Some(1000)).unwrap();
        hand_over(&work, 1000, 1000).unwrap();
        assert_eq!(fs::metadata(work.join("a/b/f")).unwrap().uid(), 1000);
    }
}
