//! Files inside the workspace, and nowhere else.
//!
//! Code in the session may turn any folder into a link at any moment, so a path is never checked and
//! then used: the kernel resolves it below the root in one step (`openat2`, `RESOLVE_BENEATH`), and
//! everything after that works on the descriptor. Where the kernel has no such step, a path is walked
//! folder by folder and links are not followed at all.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    FallocateFlags, Mode, OFlags, ResolveFlags, fallocate, fchmod, mkdirat, open, openat, openat2, readlinkat,
};
use rustix::io::Errno;

use crate::wire::{MAX_BODY, Refusal, RefusalKind, Stamp};

/// A path that the kernel saw changing under it is tried again, this often at most.
const RACE_TRIES: usize = 64;
/// What the kernel calls a file system in memory.
const TMPFS: i64 = 0x0102_1994;

/// Links on the way of one path, as the kernel counts them too.
const MAX_LINKS: usize = 40;

/// The workspace, held open.
#[derive(Debug)]
pub struct Fence {
    root: OwnedFd,
    /// What an absolute path may begin with.
    names: Vec<PathBuf>,
    /// Whether the kernel resolves below a folder.
    beneath: bool,
}

/// A part of a file.
#[derive(Debug)]
pub struct Slice {
    pub content: Vec<u8>,
    pub truncated: bool,
    pub stamp: Stamp,
}

impl Fence {
    pub fn new(root: &Path, alias: Option<&Path>) -> io::Result<Self> {
        let names = std::iter::once(root).chain(alias).map(Path::to_owned).collect();
        let root = open(root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let beneath = resolve_beneath(root.as_fd(), Path::new("."), OFlags::PATH, Mode::empty()).is_ok();
        Ok(Self { root, names, beneath })
    }

    /// What the workspace holds, where it is a file system of its own: one in memory.
    pub fn held_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::fstatfs(&self.root).ok()?;
        let block = u64::try_from(stat.f_bsize).ok()?;
        (stat.f_type == TMPFS).then(|| stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(block))
    }

    /// The folder that a command starts in. Commands go where they like; only the alias is special.
    pub fn folder(&self, path: Option<&[u8]>) -> Result<OwnedFd, Refusal> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = Path::new(std::ffi::OsStr::from_bytes(path.unwrap_or(b".")));
        let path = self.names.iter().find_map(|name| path.strip_prefix(name).ok()).unwrap_or(path);
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        openat(&self.root, path, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => Refusal::new(RefusalKind::Invalid, "`cwd` is no folder in the session"),
            other => refusal(other),
        })
    }

    pub fn read(&self, path: &[u8], offset: u64, max_bytes: u64) -> Result<Slice, Refusal> {
        let path = self.relative(path)?;
        // Not blocking: a FIFO would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(self.open(&path, flags, Mode::empty()).map_err(refusal)?);
        let stamp = regular(&file)?;
        let most = usize::try_from(max_bytes).unwrap_or(usize::MAX).min(MAX_BODY);
        let left = stamp.size.saturating_sub(offset);
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(most);
        let mut content = vec![0; want];
        let mut filled = 0;
        while filled < want {
            let at = offset.saturating_add(filled as u64);
            match file.read_at(&mut content[filled..], at) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("cannot be read", &error)),
            }
        }
        content.truncate(filled);
        Ok(Slice { content, truncated: left > filled as u64, stamp })
    }

    /// Replaces the content, in place, so that the file keeps its mode and its other names. Room is
    /// reserved first: a full workspace leaves the old content as it was.
    pub fn write(&self, path: &[u8], content: &[u8], mode: Option<u32>) -> Result<Stamp, Refusal> {
        let path = self.relative(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fresh = Mode::from_raw_mode(0o644);
        let fd = match self.open(&path, flags, fresh) {
            Err(Errno::NOENT) => {
                self.make_parents(&path)?;
                self.open(&path, flags, fresh).map_err(refusal)?
            }
            other => other.map_err(refusal)?,
        };
        let file = File::from(fd);
        let before = regular(&file)?.size;
        let len = content.len() as u64;
        if len > before {
            match fallocate(&file, FallocateFlags::empty(), 0, len) {
                // Filesystems that cannot reserve find out while writing.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(error) => {
                    file.set_len(before).ok();
                    return Err(refusal(error));
                }
            }
        }
        file.write_all_at(content, 0).map_err(|error| failed("cannot be written", &error))?;
        file.set_len(len).map_err(|error| failed("cannot be written", &error))?;
        if let Some(mode) = mode {
            fchmod(&file, Mode::from_raw_mode(mode & 0o777)).map_err(refusal)?;
        }
        regular(&file)
    }

    /// The part of the path below the root. Other absolute paths lead out.
    fn relative(&self, path: &[u8]) -> Result<PathBuf, Refusal> {
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        let inside = if path.is_absolute() {
            self.names.iter().find_map(|name| path.strip_prefix(name).ok()).ok_or_else(outside)?
        } else {
            path
        };
        if climbs(inside) {
            return Err(outside());
        }
        if inside.file_name().is_none() {
            return Err(Refusal::new(RefusalKind::Invalid, "the path names a folder"));
        }
        Ok(inside.to_owned())
    }

    /// The kernel takes every absolute link for one that leads out. One that leads back in is replaced by
    /// what it names, and that is resolved below the root like any other path.
    fn open(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        if !self.beneath {
            return walk(self.root.as_fd(), path, flags, mode);
        }
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            match resolve_beneath(self.root.as_fd(), &path, flags, mode) {
                Err(Errno::XDEV) => path = self.past_first_link(&path).ok_or(Errno::XDEV)?,
                other => return other,
            }
        }
        Err(Errno::LOOP)
    }

    /// The path with its first link replaced by what that names; `None` where it has none, or leads out.
    fn past_first_link(&self, path: &Path) -> Option<PathBuf> {
        let mut before = PathBuf::new();
        let mut parts = path.components();
        while let Some(part) = parts.next() {
            let here = before.join(part);
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let found = resolve_beneath(self.root.as_fd(), &here, flags, Mode::empty()).ok()?;
            if let Ok(target) = readlinkat(&found, "", Vec::new()) {
                let target = Path::new(std::ffi::OsStr::from_bytes(target.as_bytes()));
                let target = match target.is_absolute() {
                    true => self.names.iter().find_map(|name| target.strip_prefix(name).ok())?.to_owned(),
                    false => before.join(target),
                };
                // A slash at the end would ask for a folder.
                let rest = parts.as_path();
                let next = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
                return (!climbs(&next)).then_some(next);
            }
            before = here;
        }
        None
    }

    /// Makes the folders on the way that are missing. Each is made in a folder that was resolved below
    /// the root, and then resolved itself, so that one swapped for a link meanwhile is noticed.
    fn make_parents(&self, path: &Path) -> Result<(), Refusal> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut parent: Option<OwnedFd> = None;
        let mut done = PathBuf::new();
        for part in path.parent().unwrap_or(Path::new("")).components() {
            done.push(part);
            let next = match self.open(&done, flags, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let folder = parent.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
                    match mkdirat(folder, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => self.open(&done, flags, Mode::empty()),
                        Err(error) => Err(error),
                    }
                }
                other => other,
            };
            parent = Some(next.map_err(refusal)?);
        }
        Ok(())
    }
}

/// Whether a path leads out by its letters alone. Resolving would notice too, but only after it had
/// found the folders before missing, or made them.
fn climbs(path: &Path) -> bool {
    let mut depth = 0_usize;
    for part in path.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}

fn resolve_beneath(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..RACE_TRIES {
        match openat2(root, path, flags, mode, resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// Every step from a descriptor of the folder before, so nothing can be swapped in between.
fn walk(root: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut folder: Option<OwnedFd> = None;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let name = match part {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        };
        let from = folder.as_ref().map_or(root, AsFd::as_fd);
        if parts.peek().is_none() {
            return openat(from, name, flags | OFlags::NOFOLLOW, mode);
        }
        // Without following, a link is not a folder; it is told apart from a file by asking again.
        let on_the_way = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        folder = Some(openat(from, name, on_the_way, Mode::empty()).map_err(|error| match error {
            Errno::NOTDIR if rustix::fs::readlinkat(from, name, Vec::new()).is_ok() => Errno::LOOP,
            other => other,
        })?);
    }
    Err(Errno::ISDIR)
}

fn regular(file: &File) -> Result<Stamp, Refusal> {
    let meta = file.metadata().map_err(|error| failed("cannot be looked at", &error))?;
    if meta.is_dir() {
        return Err(Refusal::new(RefusalKind::Invalid, "the path names a folder"));
    }
    if !meta.is_file() {
        return Err(Refusal::new(RefusalKind::Invalid, "the path names no regular file"));
    }
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    Ok(Stamp {
        mtime_ns: nanos(meta.mtime(), meta.mtime_nsec()),
        ctime_ns: nanos(meta.ctime(), meta.ctime_nsec()),
        size: meta.size(),
        inode: meta.ino(),
    })
}

fn outside() -> Refusal {
    Refusal::new(RefusalKind::Outside, "the path leads out of the workspace; name a file inside it")
}

fn failed(what: &str, error: &io::Error) -> Refusal {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno) => refusal(errno),
        None => Refusal::new(RefusalKind::Failed, format!("the file {what}")),
    }
}

fn refusal(error: Errno) -> Refusal {
    let (kind, message) = match error {
        Errno::XDEV => return outside(),
        Errno::LOOP => (
            RefusalKind::Outside,
            "the path goes through links that are not followed here, or in a circle; name the file itself",
        ),
        Errno::NOENT => (RefusalKind::NotFound, "there is no such file"),
        Errno::NOTDIR => (RefusalKind::Invalid, "a part of the path is a file"),
        Errno::ISDIR => (RefusalKind::Invalid, "the path names a folder"),
        Errno::NAMETOOLONG => (RefusalKind::Invalid, "the path, or a part of it, is too long"),
        Errno::NXIO | Errno::NODEV => (RefusalKind::Invalid, "the path names no regular file"),
        Errno::ACCESS | Errno::PERM => (RefusalKind::Denied, "the session's user may not do that with this file"),
        Errno::ROFS => (RefusalKind::Denied, "the workspace is read-only"),
        Errno::TXTBSY => (RefusalKind::Denied, "the file is a program that is running"),
        Errno::NOSPC | Errno::DQUOT => (RefusalKind::NoSpace, "no space left in the workspace; remove something"),
        Errno::FBIG => (RefusalKind::NoSpace, "the file would be larger than the session's limit"),
        Errno::AGAIN => (RefusalKind::Busy, "the path changes too fast to be resolved"),
        Errno::NFILE | Errno::MFILE | Errno::NOMEM => (RefusalKind::Busy, "the session is out of resources"),
        _ => return Refusal::new(RefusalKind::Failed, format!("the file cannot be used: {error}")),
    };
    Refusal::new(kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A fence as it is on a kernel that cannot resolve below a folder, and as it is here.
    fn fences() -> (tempfile::TempDir, [Fence; 2]) {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("work");
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::write(base.path().join("secret"), "s3cret").unwrap();
        std::fs::write(root.join("in/f"), "inside").unwrap();
        symlink(base.path(), root.join("out")).unwrap();
        symlink("../secret", root.join("link")).unwrap();
        let fence = || Fence::new(&root, Some(Path::new("/work"))).unwrap();
        let fences = [fence(), Fence { beneath: false, ..fence() }];
        (base, fences)
    }

    #[test]
    fn both_ways_to_resolve_stay_inside() {
        let (base, fences) = fences();
        for (index, fence) in fences.iter().enumerate() {
            assert_eq!(fence.read(b"in/f", 0, 99).unwrap().content, b"inside");
            assert_eq!(fence.read(b"/work//in/./f", 2, 3).unwrap().content, b"sid");
            for path in [&b"out/secret"[..], b"link", b"../secret", b"in/../../secret", b"/etc/passwd", b"/"] {
                assert_eq!(fence.read(path, 0, 9).unwrap_err().kind, RefusalKind::Outside, "{index} {path:?}");
                assert_eq!(fence.write(path, b"x", None).unwrap_err().kind, RefusalKind::Outside, "{index} {path:?}");
            }
            assert_eq!(fence.write(b"out/new/f", b"x", None).unwrap_err().kind, RefusalKind::Outside);
            let name = format!("new{index}/deep/f");
            fence.write(name.as_bytes(), b"made", Some(0o4777)).unwrap();
            let made = base.path().join("work").join(name).metadata().unwrap();
            assert_eq!(
                (made.len(), made.mode() & 0o7777),
                (4, 0o777),
                "no bits that change whose rights a program has"
            );
            assert_eq!(fence.read(b"in/f/g", 0, 9).unwrap_err().kind, RefusalKind::Invalid);
        }
        assert_eq!(std::fs::read(base.path().join("secret")).unwrap(), b"s3cret");
        assert!(!base.path().join("new").exists());
    }

    #[test]
    fn an_absolute_link_that_stays_inside_is_followed_and_no_other() {
        let (base, [fence, _]) = fences();
        if !fence.beneath {
            return println!("skipped: this kernel cannot resolve below a folder");
        }
        let root = base.path().join("work");
        for (target, name) in [
            ("/work/in/f", "file"),
            ("/work/in", "folder"),
            ("file", "twice"),
            ("/work/round", "round"),
            ("/work/../secret", "climbs"),
            ("/work/out/secret", "through"),
            ("/etc/passwd", "away"),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        symlink(root.join("in/f"), root.join("by-its-other-name")).unwrap();
        for path in [&b"file"[..], b"folder/f", b"twice", b"/work/folder/../in/f", b"by-its-other-name"] {
            assert_eq!(fence.read(path, 0, 99).unwrap().content, b"inside", "{path:?}");
        }
        fence.write(b"folder/new", b"made", None).unwrap();
        assert_eq!(std::fs::read(root.join("in/new")).unwrap(), b"made");
        for path in [&b"round"[..], b"climbs", b"through", b"away", b"out/secret"] {
            assert_eq!(fence.read(path, 0, 9).unwrap_err().kind, RefusalKind::Outside, "{path:?}");
            assert_eq!(fence.write(path, b"x", None).unwrap_err().kind, RefusalKind::Outside, "{path:?}");
        }
        assert_eq!(std::fs::read(base.path().join("secret")).unwrap(), b"s3cret");
    }
}
