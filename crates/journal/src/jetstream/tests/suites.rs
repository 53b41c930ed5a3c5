//! The port's promises, on one server and on three.

use std::num::{NonZeroU8, NonZeroU16};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::server::Server;
use super::{JetStreamJournal, JetStreamOptions, eventually, options};
use crate::SharedJournal;
use crate::conformance::{Store, run_all};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_jetstream_journal_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let stores = AtomicUsize::new(0);
    run_all(async || {
        let prefix = format!("s{}", stores.fetch_add(1, Ordering::Relaxed));
        let mut handles: Vec<SharedJournal> = Vec::new();
        for _ in 0..2 {
            let options = options(server.url(), folder.path(), &prefix);
            handles.push(Arc::new(JetStreamJournal::connect(options).await.unwrap()));
        }
        Store::new(handles, ())
    })
    .await;
}

/// Each handle is connected to another server, so that the races cross servers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_replicated_journal_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let Some(servers) = Server::start_three(folder.path()).await else { return };
    let stores = AtomicUsize::new(0);
    run_all(async || {
        let prefix = format!("s{}", stores.fetch_add(1, Ordering::Relaxed));
        let mut handles: Vec<SharedJournal> = Vec::new();
        for server in &servers {
            let connect = async || {
                let options = JetStreamOptions {
                    partitions: NonZeroU16::MIN,
                    replicas: NonZeroU8::new(3).unwrap(),
                    ..options(server.url(), folder.path(), &prefix)
                };
                JetStreamJournal::connect(options).await
            };
            handles.push(Arc::new(eventually(connect).await));
        }
        Store::new(handles, ())
    })
    .await;
}
