//! A workspace as a tar archive. Nothing here follows a symbolic link: folders are opened one below the other
//! by their handles, and what an archive names is resolved the same way. Blocks on the disk.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid};
use rustix::io::Errno;
use tar::{Archive, Builder, Entry, EntryType, Header};

use crate::node::workspace::{MARK_PREFIX, open_folder};
use crate::{Error, ErrorKind, SESSION_GID, SESSION_UID};

const MAX_ENTRIES: u64 = 2_000_000;
const MAX_DEPTH: usize = 128;
const MAX_PATH: usize = 4_095;
/// What may follow the end of an archive.
const MAX_TRAILER: u64 = 1024 * 1024;

/// What a folder holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub bytes: u64,
    pub files: u64,
}

fn too_deep() -> io::Error {
    io::Error::other("the folders nest too deep")
}

/// The names in a folder, without `.` and `..`.
fn names(folder: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Whether something is simply not there any more: commands may run while this looks.
fn vanished(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::LOOP | Errno::NOTDIR)
}

/// What is on the disk below the folder. Past the bound on entries the rest is not counted.
pub(crate) fn measure(folder: &OwnedFd) -> io::Result<Size> {
    let mut size = Size::default();
    let mut linked = std::collections::HashSet::new();
    measure_below(folder, 0, &mut size, &mut linked)?;
    Ok(size)
}

fn measure_below(
    folder: &OwnedFd,
    depth: usize,
    size: &mut Size,
    linked: &mut std::collections::HashSet<u64>,
) -> io::Result<()> {
    for name in names(folder)? {
        if size.files >= MAX_ENTRIES {
            return Ok(());
        }
        let stat = match rustix::fs::statat(folder, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(error) if vanished(error) => continue,
            Err(error) => return Err(error.into()),
        };
        size.files += 1;
        if stat.st_nlink < 2
            || FileType::from_raw_mode(stat.st_mode) == FileType::Directory
            || linked.insert(stat.st_ino)
        {
            size.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory && depth < MAX_DEPTH {
            match open_folder(folder, OsStr::from_bytes(&name)) {
                Ok(below) => measure_below(&below, depth + 1, size, linked)?,
                Err(error) if vanished(error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Writes the folder's content. Sockets, pipes and devices are left out: they mean nothing elsewhere.
pub(crate) fn pack(folder: &OwnedFd, out: impl Write) -> io::Result<()> {
    let mut builder = Builder::new(out);
    pack_below(folder, Path::new(""), 0, &mut builder)?;
    builder.into_inner()?.flush()
}

fn pack_below<W: Write>(folder: &OwnedFd, at: &Path, depth: usize, out: &mut Builder<W>) -> io::Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    let mut names = names(folder)?;
    names.sort();
    for name in names {
        if at.as_os_str().is_empty() && name.starts_with(MARK_PREFIX.as_bytes()) {
            continue;
        }
        match pack_one(folder, &name, at, depth, out) {
            Err(error) if error.raw_os_error().is_some_and(|raw| vanished(Errno::from_raw_os_error(raw))) => {}
            other => other?,
        }
    }
    Ok(())
}

fn pack_one<W: Write>(folder: &OwnedFd, name: &[u8], at: &Path, depth: usize, out: &mut Builder<W>) -> io::Result<()> {
    let stat = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let path = at.join(OsStr::from_bytes(name));
    let mut header = Header::new_gnu();
    header.set_mode(stat.st_mode & 0o777);
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_uid(u64::from(SESSION_UID));
    header.set_gid(u64::from(SESSION_GID));
    header.set_size(0);
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            let below = open_folder(folder, OsStr::from_bytes(name))?;
            header.set_entry_type(EntryType::Directory);
            out.append_data(&mut header, &path, io::empty())?;
            pack_below(&below, &path, depth + 1, out)
        }
        FileType::RegularFile => {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = rustix::fs::openat(folder, name, flags, Mode::empty())?;
            let opened = rustix::fs::fstat(&file)?;
            if FileType::from_raw_mode(opened.st_mode) != FileType::RegularFile {
                return Ok(());
            }
            let size = u64::try_from(opened.st_size).unwrap_or(0);
            header.set_entry_type(EntryType::Regular);
            header.set_size(size);
            out.append_data(&mut header, &path, Exactly { file: File::from(file), left: size })
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
            header.set_entry_type(EntryType::Symlink);
            out.append_link(&mut header, &path, OsStr::from_bytes(target.as_bytes()))
        }
        _ => Ok(()),
    }
}

/// As many bytes as the header has promised, whatever happens to the file meanwhile.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let buffer = &mut buffer[..most];
        let count = match self.file.read(buffer)? {
            0 => {
                buffer.fill(0);
                most
            }
            count => count,
        };
        self.left -= count as u64;
        Ok(count)
    }
}

/// Where an archive is unpacked, and what is left of the bounds.
struct Ground<'a> {
    root: &'a OwnedFd,
    /// The folder of the entry before.
    last: Option<(PathBuf, OwnedFd)>,
    size: Size,
    max_bytes: u64,
    /// Set at the end, as they might forbid what is still to come.
    folders: Vec<(PathBuf, u32, u64)>,
}

/// Unpacks an archive into an empty folder that nobody else knows of.
pub(crate) fn unpack(tar: impl Read, root: &OwnedFd, max_bytes: u64) -> Result<Size, Error> {
    let mut archive = Archive::new(tar);
    let mut ground = Ground { root, last: None, size: Size::default(), max_bytes, folders: Vec::new() };
    let mut seen = 0_u64;
    for entry in archive.entries().map_err(broken)? {
        seen += 1;
        if seen > MAX_ENTRIES {
            return Err(Error::new(ErrorKind::TooLarge, format!("an archive has at most {MAX_ENTRIES} entries")));
        }
        ground.entry(entry.map_err(broken)?)?;
    }
    let mut tar = archive.into_inner();
    let rest = io::copy(&mut tar.by_ref().take(MAX_TRAILER), &mut io::sink()).map_err(broken)?;
    if seen == 0 && rest == 0 {
        return Err(Error::new(ErrorKind::Invalid, "the body is empty; send an uncompressed tar archive"));
    }
    ground.finish()?;
    Ok(ground.size)
}

/// A stream that failed keeps its own reason; anything else is an archive that is none.
fn broken(error: io::Error) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => {
            Error::new(ErrorKind::Invalid, format!("this is no uncompressed tar archive, or it is cut short: {error}"))
        }
    }
}

fn refuse(path: &Path, reason: &str) -> Error {
    let shown: String = path.display().to_string().chars().take(200).collect();
    Error::new(ErrorKind::Invalid, format!("the archive's entry {shown:?} {reason}"))
}

fn failed(path: &Path, error: Errno) -> Error {
    match error {
        Errno::NOSPC | Errno::DQUOT => Error::caused(ErrorKind::NoSpace, "no room is left for the workspace", error),
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR | Errno::EXIST | Errno::ISDIR | Errno::NAMETOOLONG => {
            refuse(path, "leads through something that is no folder, or lies where something else does")
        }
        other => Error::caused(ErrorKind::Unavailable, "the workspace cannot be written", other),
    }
}

impl Ground<'_> {
    fn entry<R: Read>(&mut self, mut entry: Entry<'_, R>) -> Result<(), Error> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let Some(path) = checked(&entry.path_bytes())? else { return Ok(()) };
        let Some(name) = path.file_name().map(OsStr::to_owned) else { return Ok(()) };
        let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
        let mtime = entry.header().mtime().unwrap_or(0);
        self.size.files += 1;
        if kind == EntryType::Directory {
            drop(self.folder(&path)?);
            self.folders.push((path, mode | 0o700, mtime));
            return Ok(());
        }
        let parent = self.folder(path.parent().unwrap_or(Path::new("")))?;
        match rustix::fs::unlinkat(&parent, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(&path, error)),
        }
        let done = match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(&mut entry, &parent, &name, &path, mode, mtime)?;
                Ok(())
            }
            EntryType::Symlink => {
                let target = link_target(&entry, &path)?;
                rustix::fs::symlinkat(target.as_slice(), &parent, &name).and_then(|()| own(&parent, &name))
            }
            EntryType::Link => {
                let target = checked(&link_target(&entry, &path)?)?.ok_or_else(|| refuse(&path, "links to nothing"))?;
                let from = self.folder(target.parent().unwrap_or(Path::new("")))?;
                let linked = target.file_name().unwrap_or_default();
                rustix::fs::linkat(&from, linked, &parent, &name, AtFlags::empty())
            }
            _ => return Err(refuse(&path, "is a device, a pipe or of a kind that is not known; leave it out")),
        };
        done.map_err(|error| failed(&path, error))
    }

    fn file<R: Read>(
        &mut self,
        entry: &mut Entry<'_, R>,
        parent: &OwnedFd,
        name: &OsStr,
        path: &Path,
        mode: u32,
        mtime: u64,
    ) -> Result<(), Error> {
        let size = entry.size();
        self.size.bytes = self.size.bytes.saturating_add(size);
        if self.size.bytes > self.max_bytes {
            let message = format!("the archive holds more than {} bytes, which a workspace may not", self.max_bytes);
            return Err(Error::new(ErrorKind::TooLarge, message));
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o600));
        let mut file = File::from(made.map_err(|error| failed(path, error))?);
        let copied = io::copy(entry, &mut file).map_err(|error| match error.raw_os_error() {
            Some(raw) => failed(path, Errno::from_raw_os_error(raw)),
            None => broken(error),
        })?;
        if copied != size {
            return Err(refuse(path, "is cut short"));
        }
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))
            .and_then(|()| own_fd(&file))
            .and_then(|()| rustix::fs::futimens(&file, &times(mtime)))
            .map_err(|error| failed(path, error))
    }

    /// The folder of this path, made if it is not there.
    fn folder(&mut self, path: &Path) -> Result<OwnedFd, Error> {
        if let Some((last, folder)) = &self.last
            && last == path
        {
            return folder.try_clone().map_err(|error| broken_disk(&error));
        }
        let mut folder = self.root.try_clone().map_err(|error| broken_disk(&error))?;
        for part in path.components() {
            let name = part.as_os_str();
            folder = match open_folder(&folder, name) {
                Err(Errno::NOENT) => {
                    let made = rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755));
                    made.map_err(|error| failed(path, error))?;
                    let below = open_folder(&folder, name).map_err(|error| failed(path, error))?;
                    own_fd(&below).map_err(|error| failed(path, error))?;
                    below
                }
                other => other.map_err(|error| failed(path, error))?,
            };
        }
        let kept = folder.try_clone().map_err(|error| broken_disk(&error))?;
        self.last = Some((path.to_owned(), kept));
        Ok(folder)
    }

    /// The deepest first: to set a folder's time is the last thing done in it.
    fn finish(&mut self) -> Result<(), Error> {
        for (path, mode, mtime) in std::mem::take(&mut self.folders).into_iter().rev() {
            let folder = self.folder(&path)?;
            rustix::fs::fchmod(&folder, Mode::from_raw_mode(mode))
                .and_then(|()| rustix::fs::futimens(&folder, &times(mtime)))
                .map_err(|error| failed(&path, error))?;
        }
        rustix::fs::syncfs(self.root).map_err(|error| failed(Path::new(""), error))
    }
}

fn broken_disk(error: &io::Error) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the workspace cannot be written: {error}"))
}

fn link_target<R: Read>(entry: &Entry<'_, R>, path: &Path) -> Result<Vec<u8>, Error> {
    let target = entry.link_name_bytes().map(|target| target.into_owned()).unwrap_or_default();
    if target.is_empty() || target.len() > MAX_PATH || target.contains(&0) {
        return Err(refuse(path, "is a link without a target"));
    }
    Ok(target)
}

/// The path below the workspace; nothing for the workspace itself.
fn checked(raw: &[u8]) -> Result<Option<PathBuf>, Error> {
    let shown = Path::new(OsStr::from_bytes(raw));
    if raw.len() > MAX_PATH || raw.contains(&0) {
        return Err(refuse(shown, "has a path that is too long, or holds NUL"));
    }
    if raw.first() == Some(&b'/') {
        return Err(refuse(shown, "has an absolute path; pack the folder from inside"));
    }
    let parts: Vec<&[u8]> = raw.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&&b".."[..]) {
        return Err(refuse(shown, "leads out of the workspace"));
    }
    if parts.len() > MAX_DEPTH {
        return Err(refuse(shown, "lies too deep"));
    }
    let path: PathBuf = parts.iter().map(|part| OsStr::from_bytes(part)).collect();
    Ok((!parts.is_empty()).then_some(path))
}

fn times(mtime: u64) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: i64::try_from(mtime).unwrap_or(0), tv_nsec: 0 },
    }
}

fn session_owner() -> Option<(Uid, Gid)> {
    rustix::process::geteuid().is_root().then(|| (Uid::from_raw(SESSION_UID), Gid::from_raw(SESSION_GID)))
}

fn own_fd(file: &impl AsFd) -> rustix::io::Result<()> {
    session_owner().map_or(Ok(()), |(uid, gid)| rustix::fs::fchown(file, Some(uid), Some(gid)))
}

fn own(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    session_owner()
        .map_or(Ok(()), |(uid, gid)| rustix::fs::chownat(folder, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    fn open(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    fn packed(path: &Path) -> Vec<u8> {
        let mut bytes = Vec::new();
        pack(&open(path), &mut bytes).unwrap();
        bytes
    }

    fn kind(error: &Error) -> ErrorKind {
        error.kind()
    }

    /// An archive of one entry whose path and target are written as they are.
    fn one(path: &[u8], entry: EntryType, target: &[u8], content: &[u8]) -> Vec<u8> {
        let mut header = Header::new_gnu();
        let raw = header.as_old_mut();
        raw.name[..path.len()].copy_from_slice(path);
        raw.linkname[..target.len()].copy_from_slice(target);
        header.set_entry_type(entry);
        header.set_mode(0o4755);
        header.set_size(content.len() as u64);
        header.set_cksum();
        let mut builder = Builder::new(Vec::new());
        builder.append(&header, content).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn what_is_packed_is_unpacked_the_same() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deep = from.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("run.sh"), "echo hi\n").unwrap();
        std::fs::set_permissions(deep.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(from.path().join("x".repeat(200)), "long").unwrap();
        symlink("a/b/run.sh", from.path().join("link")).unwrap();
        symlink("/etc/passwd", from.path().join("out")).unwrap();
        std::fs::write(from.path().join(".hearth-mark-sbx_1"), "").unwrap();
        let bytes = packed(from.path());
        let size = unpack(bytes.as_slice(), &open(to.path()), 1 << 20).unwrap();
        assert_eq!(size.files, 6);
        let script = to.path().join("a/b/run.sh");
        assert_eq!(std::fs::read_to_string(&script).unwrap(), "echo hi\n");
        let (new, old) = (std::fs::metadata(&script).unwrap(), std::fs::metadata(deep.join("run.sh")).unwrap());
        assert_eq!((new.mode() & 0o7777, new.mtime()), (0o755, old.mtime()), "a build cache lives by its times");
        assert_eq!(std::fs::read_link(to.path().join("out")).unwrap(), Path::new("/etc/passwd"));
        assert_eq!(packed(to.path()), bytes);
        assert!(measure(&open(to.path())).unwrap().bytes >= 4_096);
    }

    #[test]
    fn t9_an_archive_cannot_reach_out_of_the_workspace() {
        let outside = tempfile::tempdir().unwrap();
        let out = outside.path().display().to_string();
        for path in ["../x", "a/../../x", "/tmp/x"] {
            let root = tempfile::tempdir().unwrap();
            let refused =
                unpack(one(path.as_bytes(), EntryType::Regular, b"", b"x").as_slice(), &open(root.path()), 99);
            assert_eq!(kind(&refused.unwrap_err()), ErrorKind::Invalid, "{path}");
        }
        // Through a link that the archive brings along.
        let root = tempfile::tempdir().unwrap();
        let mut both = one(b"up", EntryType::Symlink, out.as_bytes(), b"");
        both.truncate(512);
        both.extend(one(b"up/x", EntryType::Regular, b"", b"x"));
        let refused = unpack(both.as_slice(), &open(root.path()), 99).unwrap_err();
        assert_eq!(kind(&refused), ErrorKind::Invalid, "{refused}");
        let mut both = one(b"up", EntryType::Symlink, out.as_bytes(), b"");
        both.truncate(512);
        both.extend(one(b"mine", EntryType::Link, b"up/secret", b""));
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        assert_eq!(kind(&unpack(both.as_slice(), &open(root.path()), 99).unwrap_err()), ErrorKind::Invalid);
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn devices_and_privileges_are_not_brought_in() {
        let root = tempfile::tempdir().unwrap();
        for entry in [EntryType::Char, EntryType::Block, EntryType::Fifo] {
            let refused = unpack(one(b"dev", entry, b"", b"").as_slice(), &open(root.path()), 99);
            assert_eq!(kind(&refused.unwrap_err()), ErrorKind::Invalid);
        }
        unpack(one(b"su", EntryType::Regular, b"", b"x").as_slice(), &open(root.path()), 99).unwrap();
        assert_eq!(std::fs::metadata(root.path().join("su")).unwrap().mode() & 0o7777, 0o755);
    }

    #[test]
    fn what_is_too_large_cut_short_or_no_archive_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let fd = open(root.path());
        let whole = one(b"f", EntryType::Regular, b"", &[7; 4_096]);
        assert_eq!(kind(&unpack(whole.as_slice(), &fd, 4_095).unwrap_err()), ErrorKind::TooLarge);
        assert_eq!(kind(&unpack(&whole[..2_000], &fd, 1 << 20).unwrap_err()), ErrorKind::Invalid);
        assert_eq!(kind(&unpack(&[0x1f, 0x8b, 8, 0].repeat(200)[..], &fd, 1 << 20).unwrap_err()), ErrorKind::Invalid);
        assert_eq!(kind(&unpack(&b""[..], &fd, 1 << 20).unwrap_err()), ErrorKind::Invalid);
        // A header that promises more than any disk has.
        let mut header = Header::new_gnu();
        header.set_path("bomb").unwrap();
        header.set_size(1 << 60);
        header.set_cksum();
        assert_eq!(kind(&unpack(header.as_bytes().as_slice(), &fd, 1 << 20).unwrap_err()), ErrorKind::TooLarge);
    }
}
