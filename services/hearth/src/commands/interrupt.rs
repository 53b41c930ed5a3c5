//! Ctrl-C while a call blocks: the turn goes on, and the person is told how to find it again.

use std::future::Future;

use hearth_client::Error;

use crate::failure::Failure;

/// The call's result, unless Ctrl-C comes first.
pub async fn or_interrupted<T>(
    call: impl Future<Output = Result<T, Error>>,
    hints: impl FnOnce() -> Vec<String>,
) -> Result<T, Failure> {
    tokio::select! {
        result = call => result.map_err(Failure::from),
        signal = tokio::signal::ctrl_c() => match signal {
            Ok(()) => Err(Failure::Interrupted(hints())),
            Err(error) => Err(Failure::failed(format!("signals cannot be received: {error}"))),
        },
    }
}

/// For a call that accepts something under a key and whose id is not known yet.
pub fn by_key(key: &str) -> Vec<String> {
    vec![
        "what was accepted goes on without you".to_owned(),
        format!("the same command with --key {key} waits for it again, and starts nothing twice"),
        "`hearth ls` shows its run".to_owned(),
    ]
}

/// For a call to a run that is known.
pub fn by_run(run: &str, key: &str) -> Vec<String> {
    vec![
        "the turn goes on without you".to_owned(),
        format!("hearth poll {run} --timeout 10m     waits for the newest turn"),
        format!("the same command with --key {key} waits for this one, and starts nothing twice"),
        format!("hearth cancel {run}                 ends it"),
    ]
}
