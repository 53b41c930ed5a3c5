//! How the journal lies on the servers never changes by mistake.

use std::num::{NonZeroU8, NonZeroU16};

use super::server::Server;
use super::{JetStreamJournal, JetStreamOptions, append, options};
use crate::{Journal, Position};

#[tokio::test]
async fn another_number_of_partitions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let with = |partitions| JetStreamOptions {
        partitions: NonZeroU16::new(partitions).unwrap(),
        start_within: std::time::Duration::ZERO,
        ..options(server.url(), folder.path(), "n")
    };
    JetStreamJournal::connect(with(3)).await.unwrap();
    for other in [1, 2, 4, 8] {
        let error = JetStreamJournal::connect(with(other)).await.err().expect("refused").to_string();
        assert!(error.contains("partition"), "{other}: {error}");
    }
    JetStreamJournal::connect(with(3)).await.unwrap();
}

#[tokio::test]
async fn fewer_replicas_than_configured_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    JetStreamJournal::connect(options(server.url(), folder.path(), "r")).await.unwrap();
    let more = JetStreamOptions { replicas: NonZeroU8::new(3).unwrap(), ..options(server.url(), folder.path(), "r") };
    let error = JetStreamJournal::connect(more).await.err().expect("refused").to_string();
    assert!(error.contains("1 replicas, not the configured 3"), "{error}");
}

#[tokio::test]
async fn a_cache_folder_has_one_user() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let options = options(server.url(), folder.path(), "c");
    let journal = JetStreamJournal::connect(options.clone()).await.unwrap();
    let error = JetStreamJournal::connect(options.clone()).await.err().expect("refused").to_string();
    assert!(error.contains("in use by process"), "{error}");
    journal.append(append("run_a", Position(0), "x")).await.unwrap();
    drop(journal);
    let again = super::eventually(async || JetStreamJournal::connect(options.clone()).await).await;
    assert_eq!(again.waking(None, 9).await.unwrap().len(), 1, "the index is made anew");
}
