//! One process per journal file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::Error;

/// Holds a `.lock` file beside the journal. The kernel releases it with the process, however that
/// ends, so that no stale lock ever keeps a journal shut; the pid in it only serves the message.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: File,
}

impl FileLock {
    pub(super) fn take(journal: &Path) -> Result<Self, Error> {
        let mut path = journal.as_os_str().to_owned();
        path.push(".lock");
        let shown = Path::new(&path).display().to_string();
        let failed = |error: std::io::Error| Error::Unavailable { reason: format!("cannot lock {shown}: {error}") };
        // Not truncated: the holder's pid is in it until the lock is ours.
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        if let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed(error.into()));
            }
            return Err(Error::Unavailable { reason: format!("{} is in use{}", journal.display(), holder(&mut file)) });
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        // On a full disk the pid cannot be written, and the lock holds all the same.
        if let Err(error) = write!(file, "{}", std::process::id()) {
            tracing::warn!(%error, lock = shown, "could not note the process id in the lock file");
        }
        Ok(Self { _file: file })
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(20).read_to_string(&mut text) {
        Ok(_) if text.parse::<u32>().is_ok() => format!(" by process {text}"),
        _ => " by another process".into(),
    }
}
