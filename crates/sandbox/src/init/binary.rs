//! The init itself, carried inside this program.

use std::io;
use std::path::{Path, PathBuf};

use tokio::fs;

static PROGRAM: &[u8] = include_bytes!(env!("HEARTH_SANDBOX_INIT"));
const NAME: &str = concat!("init-", env!("HEARTH_SANDBOX_INIT_HASH"));

/// Puts the init into a folder and says where; what an earlier version left there goes. Sessions that
/// run from such a file keep it open.
pub async fn install(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join(NAME);
    let whole = fs::metadata(&path).await.is_ok_and(|meta| meta.len() == PROGRAM.len() as u64);
    if !whole {
        let fresh = folder.join(format!("{NAME}.{}.new", std::process::id()));
        fs::write(&fresh, PROGRAM).await?;
        fs::set_permissions(&fresh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).await?;
        // Never half there: a container that is being created may look at any moment.
        fs::rename(&fresh, &path).await?;
    }
    remove_others(folder).await?;
    Ok(path)
}

async fn remove_others(folder: &Path) -> io::Result<()> {
    let mut entries = fs::read_dir(folder).await?;
    while let Some(entry) = entries.next_entry().await? {
        let name = entry.file_name();
        let other = name.to_string_lossy();
        if other.starts_with("init-") && other != NAME {
            fs::remove_file(entry.path()).await.or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_init_is_installed_once_and_replaces_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("init-0000"), "old").unwrap();
        std::fs::write(folder.path().join("kept"), "other").unwrap();
        let path = install(folder.path()).await.unwrap();
        assert_eq!(install(folder.path()).await.unwrap(), path);
        let output = std::process::Command::new(&path).arg("nonsense").output().unwrap();
        assert_eq!(output.status.code(), Some(2), "it runs, and refuses");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
