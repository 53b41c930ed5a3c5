//! What is downloaded into a file.

use std::path::Path;

use tokio::io::AsyncWrite;

use crate::failure::Failure;

/// Where a download goes.
pub type Out = dyn AsyncWrite + Unpin;

/// Writes to the file, or to standard output for `-`. How many bytes are in the file, if it is one.
pub async fn to(
    file: &Path,
    download: impl AsyncFnOnce(&mut &mut Out) -> Result<u64, hearth_client::Error>,
) -> Result<Option<u64>, Failure> {
    if file == Path::new("-") {
        let out: &mut Out = &mut tokio::io::stdout();
        download(&mut &mut *out).await?;
        return Ok(None);
    }
    // Beside it first: a download that breaks off leaves nothing that looks whole.
    let beside = file.with_extension("part");
    let unwritable = |error: std::io::Error| Failure::Usage(format!("{}: {error}", file.display()));
    let mut out = tokio::fs::File::create(&beside).await.map_err(unwritable)?;
    let out: &mut Out = &mut out;
    let done = match download(&mut &mut *out).await {
        Ok(bytes) => tokio::fs::rename(&beside, file).await.map(|()| Some(bytes)).map_err(unwritable),
        Err(error) => Err(error.into()),
    };
    if done.is_err() {
        tokio::fs::remove_file(&beside).await.ok();
    }
    done
}
