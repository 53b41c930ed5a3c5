//! A command's output through a bare pipe, and a bare process.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::Instant;

use crate::Error;

/// Runs a line of shell and reads all that it writes: how long it took, and how many bytes came.
pub(crate) async fn drain(line: &str) -> Result<(Duration, u64), Error> {
    let failed = || Error::io("a bare process");
    let began = Instant::now();
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed())?;
    let mut bytes = 0;
    if let Some(mut output) = child.stdout.take() {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = output.read(&mut buffer).await.map_err(failed())?;
            if read == 0 {
                break;
            }
            bytes += read as u64;
        }
    }
    child.wait().await.map_err(failed())?;
    Ok((began.elapsed(), bytes))
}
