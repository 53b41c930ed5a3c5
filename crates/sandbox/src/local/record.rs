//! What the state folder holds of a session, written before anything of it exists.

use std::io;
use std::path::{Path, PathBuf};

use hearth_types::SandboxId;
use serde::{Deserialize, Serialize};
use tokio::fs;

const RECORD: &str = "session.json";

/// The folder of one session, below the driver's.
#[derive(Debug, Clone)]
pub struct Folder(PathBuf);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// How it is confined: `bwrap` or `process`.
    pub runtime: String,
    pub workspace_path: String,
}

impl Folder {
    /// An id is a file name by its form.
    pub fn of(sessions: &Path, session: &SandboxId) -> Self {
        Self(sessions.join(session.as_str()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What the session's init shares with this host: its socket.
    pub fn shared(&self) -> PathBuf {
        self.0.join("run")
    }

    pub fn socket(&self) -> PathBuf {
        self.shared().join("s")
    }

    /// A workspace of the session's own, where no tmpfs can be mounted for it.
    pub fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    pub fn tmp(&self) -> PathBuf {
        self.0.join("tmp")
    }

    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    pub async fn read(&self) -> io::Result<Option<Record>> {
        match fs::read(self.0.join(RECORD)).await {
            // A record that was cut off by a crash is one of a session that had not begun.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn write(&self, record: &Record) -> io::Result<()> {
        let fresh = self.0.join("session.new");
        fs::write(&fresh, serde_json::to_vec(record)?).await?;
        fs::rename(&fresh, self.0.join(RECORD)).await
    }
}
