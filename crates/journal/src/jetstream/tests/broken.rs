//! Servers that die, stand still, and lose what they should keep.

use std::num::{NonZeroU8, NonZeroU16};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::server::Server;
use super::{JetStreamJournal, JetStreamOptions, append, eventually, frames, key, options};
use crate::{Error, HeadQuery, Journal, Position};

/// An append, repeated while its outcome is unknown or the servers are out of reach.
async fn append_for_sure(journal: &JetStreamJournal, name: &str, expected: Position, frame: &str) -> Position {
    let began = Instant::now();
    loop {
        match journal.append(append(name, expected, frame.to_owned())).await {
            Err(Error::Unknown { .. } | Error::Unavailable { .. }) => {}
            other => return other.unwrap(),
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{name} after {expected}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_frames_survive_the_kill_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = Server::start(folder.path(), "").await else { return };
    let options =
        JetStreamOptions { answer_within: Duration::from_secs(2), ..options(server.url(), folder.path(), "k") };
    let journal = JetStreamJournal::connect(options).await.unwrap();
    for round in 0..3 {
        let writers = write(&journal, round);
        until_some_are_written(&journal, round).await;
        server.kill();
        server.start_again().await;
        assert_all_are_written(&journal, writers).await;
    }
    let all = HeadQuery { limit: 100, ..HeadQuery::default() };
    let page = eventually(async || journal.heads(&all).await).await;
    assert_eq!(page.heads.len(), 12, "the index follows again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicated_frames_are_written_and_read_while_one_server_after_the_other_is_down() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut servers) = Server::start_three(folder.path()).await else { return };
    let connect = async || {
        let options = JetStreamOptions {
            replicas: NonZeroU8::new(3).unwrap(),
            answer_within: Duration::from_secs(2),
            ..options(servers[0].url(), folder.path(), "three")
        };
        JetStreamJournal::connect(options).await
    };
    let journal = eventually(connect).await;
    for (round, server) in servers.iter_mut().enumerate() {
        let writers = write(&journal, round);
        until_some_are_written(&journal, round).await;
        server.kill();
        assert_all_are_written(&journal, writers).await;
        server.start_again().await;
        // Two are a majority only once the third has caught up.
        eventually(async || journal.ready().await).await;
    }
    let all = HeadQuery { limit: 100, ..HeadQuery::default() };
    let page = eventually(async || journal.heads(&all).await).await;
    assert_eq!(page.heads.len(), 12);
}

/// Four writers, each with a log of its own.
fn write(journal: &JetStreamJournal, round: usize) -> JoinSet<String> {
    let mut writers = JoinSet::new();
    for writer in 0..4 {
        let journal = journal.clone();
        writers.spawn(async move {
            let name = format!("run_{round}_{writer}");
            let mut last = Position(0);
            for n in 0..40 {
                last = append_for_sure(&journal, &name, last, &n.to_string()).await;
            }
            name
        });
    }
    writers
}

async fn until_some_are_written(journal: &JetStreamJournal, round: usize) {
    while frames(journal, &format!("run_{round}_0")).await.map_or(0, |frames| frames.len()) < 10 {
        tokio::task::yield_now().await;
    }
}

async fn assert_all_are_written(journal: &JetStreamJournal, mut writers: JoinSet<String>) {
    let expected: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    while let Some(writer) = writers.join_next().await {
        let name = writer.unwrap();
        assert_eq!(eventually(async || frames(journal, &name).await).await, expected, "{name}");
    }
}

#[tokio::test]
async fn an_append_without_an_answer_is_unknown_and_its_repeat_stores_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let options =
        JetStreamOptions { answer_within: Duration::from_millis(400), ..options(server.url(), folder.path(), "u") };
    let journal = JetStreamJournal::connect(options).await.unwrap();
    let mut last = journal.append(append("run_a", Position(0), "0")).await.unwrap();
    for n in 1..4 {
        let next = append("run_a", last, n.to_string());
        server.stop().await;
        let began = Instant::now();
        let error = journal.append(next.clone()).await.unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }), "{error}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        assert!(journal.ready().await.is_err(), "a server that stands still takes nothing");
        server.go_on();
        last = append_for_sure(&journal, "run_a", last, &n.to_string()).await;
        assert_eq!(journal.append(next).await.unwrap(), last, "once more is the same");
    }
    assert_eq!(frames(&journal, "run_a").await.unwrap(), ["0", "1", "2", "3"]);
}

#[tokio::test]
async fn without_a_server_calls_fail_soon_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut server) = Server::start(folder.path(), "").await else { return };
    let mut options = options(server.url(), folder.path(), "gone");
    options.answer_within = Duration::from_millis(500);
    let journal = JetStreamJournal::connect(options.clone()).await.unwrap();
    let last = journal.append(append("run_a", Position(0), "0")).await.unwrap();
    server.kill();
    let began = Instant::now();
    while !matches!(journal.append(append("run_b", Position(0), "0")).await, Err(Error::Unavailable { .. })) {
        assert!(began.elapsed() < Duration::from_secs(20), "it does not notice");
    }
    assert!(journal.ready().await.is_err());
    assert!(journal.waking(None, 1).await.is_err());
    options.cache_folder = folder.path().join("other");
    assert!(matches!(JetStreamJournal::connect(options).await, Err(Error::Unavailable { .. })));
    server.start_again().await;
    eventually(async || journal.ready().await).await;
    let last = append_for_sure(&journal, "run_a", last, "1").await;
    assert_eq!(journal.last(&key("run_a")).await.unwrap(), last);
    assert_eq!(eventually(async || journal.waking(None, 9).await).await.len(), 1 + unknown_of(&journal).await);
}

/// The append to `run_b` may have reached the server before it died.
async fn unknown_of(journal: &JetStreamJournal) -> usize {
    usize::from(journal.last(&key("run_b")).await.unwrap() > Position(0))
}

#[tokio::test]
async fn frames_that_are_gone_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let journal = JetStreamJournal::connect(options(server.url(), folder.path(), "p")).await.unwrap();
    let mut positions = vec![Position(0)];
    for n in 0..6 {
        positions.push(journal.append(append("run_a", positions[n], n.to_string())).await.unwrap());
    }
    let servers = &journal.shared.servers;
    let stream = servers.stream(&key("run_a"));
    stream.purge().filter(servers.layout.subject(&key("run_a"))).sequence(positions[4].0).await.unwrap();
    let error = journal.read(&key("run_a"), Position(0), 100).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { place, .. } if place == "run/run_a@0"), "{error}");
    assert_eq!(journal.read(&key("run_a"), positions[3], 100).await.unwrap().len(), 3, "the rest is read");
}

#[tokio::test]
async fn a_stream_that_lost_its_end_is_an_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let one = JetStreamOptions { partitions: NonZeroU16::MIN, ..options(server.url(), folder.path(), "short") };
    let journal = JetStreamJournal::connect(one).await.unwrap();
    for n in 0..3 {
        journal.append(append(&format!("run_{n}"), Position(0), "x")).await.unwrap();
    }
    assert_eq!(journal.waking(None, 9).await.unwrap().len(), 3);
    let context = super::super::connect::context(&journal.shared.servers.client, Duration::from_secs(5));
    let config = context.get_stream("short-journal-0").await.unwrap().cached_info().config.clone();
    context.delete_stream("short-journal-0").await.unwrap();
    context.create_stream(config).await.unwrap();
    let error = journal.waking(None, 9).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { reason, .. } if reason.contains("lost")), "{error}");
}

#[tokio::test]
async fn an_index_whose_consumer_is_gone_follows_anew() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = Server::start(folder.path(), "").await else { return };
    let journal = JetStreamJournal::connect(options(server.url(), folder.path(), "c")).await.unwrap();
    journal.append(append("run_0", Position(0), "x")).await.unwrap();
    assert_eq!(journal.waking(None, 9).await.unwrap().len(), 1);
    use futures::TryStreamExt;
    for stream in &journal.shared.servers.streams {
        let names: Vec<String> = stream.consumer_names().try_collect().await.unwrap();
        assert!(!names.is_empty());
        for name in names {
            stream.delete_consumer(&name).await.unwrap();
        }
    }
    for n in 1..4 {
        journal.append(append(&format!("run_{n}"), Position(0), "x")).await.unwrap();
    }
    let began = Instant::now();
    assert_eq!(eventually(async || journal.waking(None, 9).await).await.len(), 4);
    assert!(began.elapsed() < Duration::from_secs(8), "it took {:?}", began.elapsed());
}
