//! Parts that do not fit a message, and streams that are full.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::server::Server;
use super::{JetStreamJournal, JetStreamOptions, append, eventually, frames, head, key, options};
use crate::{Append, Error, HeadQuery, Journal, Position, RunHead};

#[tokio::test]
async fn frames_and_heads_over_the_size_of_a_message_come_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "max_payload: 262144").await else { return };
    let journal = JetStreamJournal::connect(options(server.url(), folder.path(), "l")).await;
    let error = journal.err().expect("a server that takes less than a chunk is refused").to_string();
    assert!(error.contains("max_payload"), "{error}");
    drop(server);

    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let journal = JetStreamJournal::connect(options(server.url(), folder.path(), "l")).await.unwrap();
    let frame: Bytes = (0..3_000_000u32).map(|n| (n % 241) as u8).collect();
    let large = RunHead { body: serde_json::json!("ü".repeat(100_000)).into(), ..head("run_a", 0) };
    let first = Append { head: Some(large.clone()), ..append("run_a", Position(0), frame.clone()) };
    let one = journal.append(first.clone()).await.unwrap();
    assert_eq!(journal.append(first).await.unwrap(), one, "a repeat stores nothing");
    // Without a head, the large one stays.
    let second = Append { head: None, ..append("run_a", one, "small") };
    journal.append(second).await.unwrap();
    assert_eq!(frames(&journal, "run_a").await.unwrap(), [frame, Bytes::from("small")]);
    assert_eq!(journal.head(&large.run_id).await.unwrap(), Some(large.clone()));
    let fresh = JetStreamJournal::connect(options(server.url(), folder.path(), "l")).await.unwrap();
    let all = HeadQuery { limit: 9, ..HeadQuery::default() };
    assert_eq!(fresh.heads(&all).await.unwrap().heads, [large], "an index made later has it too");
}

#[tokio::test]
async fn the_same_bytes_in_two_logs_are_two_parts() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let journal = JetStreamJournal::connect(options(server.url(), folder.path(), "t")).await.unwrap();
    let frame = Bytes::from(vec![7; 2_000_000]);
    for name in ["run_a", "run_b"] {
        journal.append(append(name, Position(0), frame.clone())).await.unwrap();
    }
    for name in ["run_a", "run_b"] {
        assert!(frames(&journal, name).await.unwrap() == [frame.clone()], "{name}");
    }
}

#[tokio::test]
async fn a_frame_over_the_limit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let options = JetStreamOptions { max_frame_bytes: 100, ..options(server.url(), folder.path(), "m") };
    let journal = JetStreamJournal::connect(options).await.unwrap();
    let error = journal.append(append("run_a", Position(0), vec![0; 101])).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { bytes: 101, limit: 100 }), "{error}");
}

#[tokio::test]
async fn a_full_stream_is_full_until_there_is_room_again() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let journal = JetStreamJournal::connect(options(server.url(), folder.path(), "f")).await.unwrap();
    let context = super::super::connect::context(&journal.shared.servers.client, Duration::from_secs(5));
    let name = journal.shared.servers.layout.stream(journal.shared.servers.layout.partition(&key("run_a")));
    let bound = async |max_bytes: i64| {
        let mut config = context.get_stream(&name).await.unwrap().cached_info().config.clone();
        config.max_bytes = max_bytes;
        context.update_stream(&config).await.unwrap();
    };
    bound(200_000).await;
    let mut last = Position(0);
    let began = Instant::now();
    let error = loop {
        assert!(began.elapsed() < Duration::from_secs(20), "the stream never ran full");
        match journal.append(append("run_a", last, vec![b'x'; 20_000])).await {
            Ok(position) => last = position,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert_eq!(journal.last(&key("run_a")).await.unwrap(), last, "what was refused is not there");
    let count = frames(&journal, "run_a").await.unwrap().len();
    bound(-1).await;
    eventually(async || journal.append(append("run_a", last, vec![b'x'; 20_000])).await).await;
    assert_eq!(frames(&journal, "run_a").await.unwrap().len(), count + 1);
}
