//! On real servers, which the tests start and stop.

mod broken;
mod large;
mod layout;
mod repartition;
mod server;
mod suites;

use std::num::{NonZeroU8, NonZeroU16};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hearth_types::{RunId, RunState, SessionId, Timestamp};
use tokio::time::{Instant, sleep};

use super::{JetStreamJournal, JetStreamOptions};
use crate::{Append, Error, Journal, LogKey, Position, RunHead};

/// A cache folder below `base` that no other journal has.
fn options(urls: String, base: &Path, prefix: &str) -> JetStreamOptions {
    static CACHES: AtomicUsize = AtomicUsize::new(0);
    let cache = base.join(format!("cache{}", CACHES.fetch_add(1, Ordering::Relaxed)));
    JetStreamOptions {
        prefix: prefix.into(),
        partitions: NonZeroU16::new(2).unwrap(),
        replicas: NonZeroU8::MIN,
        ..JetStreamOptions::at(urls, cache)
    }
}

fn key(name: &str) -> LogKey {
    LogKey::Run(RunId::parse(name).unwrap())
}

fn append(name: &str, expected: Position, frame: impl Into<Bytes>) -> Append {
    Append {
        key: key(name),
        expected,
        append_id: format!("{name}-{expected}"),
        frame: frame.into(),
        head: Some(head(name, expected.0)),
        floor: Position(0),
    }
}

fn head(name: &str, n: u64) -> RunHead {
    let run = RunId::parse(name).unwrap();
    RunHead {
        tenant: "t".into(),
        subject: "s".into(),
        agent: "mock".into(),
        state: RunState::Running,
        root_run_id: run.clone(),
        parent_run_id: None,
        session_id: SessionId::of_run(&run),
        resident: true,
        created_at: Timestamp::from_millis(1),
        wake: true,
        due_at: None,
        body: serde_json::json!(n).into(),
        run_id: run,
    }
}

async fn frames(journal: &JetStreamJournal, name: &str) -> Result<Vec<Bytes>, Error> {
    let frames = journal.read(&key(name), Position(0), usize::MAX).await?;
    Ok(frames.into_iter().map(|stored| stored.frame).collect())
}

/// Repeats a call that may find the servers on their way up.
async fn eventually<T>(mut call: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let began = Instant::now();
    loop {
        match call().await {
            Ok(value) => return value,
            Err(error) => assert!(began.elapsed() < Duration::from_secs(60), "{error}"),
        }
        sleep(Duration::from_millis(50)).await;
    }
}
