//! Unix sockets at paths of any length. The kernel takes 107 bytes; a longer path is reached through
//! a descriptor of its folder, so that no link or folder elsewhere has to be made and cleared away.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

/// `sun_path` holds 108 bytes with the NUL.
const MAX_SUN_PATH: usize = 107;

/// A path that fits into a socket address, for as long as this lives.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    _folder: Option<OwnedFd>,
}

impl SocketPath {
    /// Where `socket` can be bound or connected to. Its folder exists; itself it need not.
    pub fn of(socket: &Path) -> io::Result<Self> {
        if socket.as_os_str().len() <= MAX_SUN_PATH {
            return Ok(Self { path: socket.to_owned(), _folder: None });
        }
        let (Some(folder), Some(name)) = (socket.parent(), socket.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        let folder = open(folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_socket_deep_in_long_folders_is_bound_and_reached() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("x".repeat(120)).join("y".repeat(120));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("s");
        let listener = UnixListener::bind(SocketPath::of(&socket).unwrap().path()).unwrap();
        assert!(socket.exists());
        UnixStream::connect(SocketPath::of(&socket).unwrap().path()).unwrap();
        drop(listener);
    }
}
