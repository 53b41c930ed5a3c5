//! The index of heads on this replica: a cache that follows the streams.
//!
//! The last message of a run carries its head. A follower of each partition asks for the last message
//! of every subject, headers only, and then for every new one; so the index is rebuilt by a start, and
//! needs no store of its own that could be lost or disagree. A list first asks each stream for its last
//! sequence and waits until the follower is there: so it shows everything that was acknowledged before.
//!
//! News is fetched when somebody waits for it, else now and then: many messages at once cost the servers and
//! this replica far less than each by itself, and of a run that is busy only the last head is decoded.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy};
use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use futures::StreamExt;
use futures::future::try_join_all;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Servers;
use super::record::{Part, Record, decode_head};
use crate::sqlite::HeadFile;
use crate::{Error, Position, RunHead};

/// Messages that are fetched and taken over at once.
const BATCH: usize = 512;
/// How often news is fetched while nobody asks for it; the sweeps do, twice a second.
const EVERY: Duration = Duration::from_secs(2);
/// Pause before news is fetched again that is known to be there.
const SOON: Duration = Duration::from_millis(5);
/// After this time without a fetch the servers forget the follower.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// How long a follower may stand still while its stream is ahead before it starts anew.
const STALL: Duration = Duration::from_secs(1);

/// The follower of one partition; it ends with the value.
pub(super) struct Follower {
    applied: watch::Receiver<u64>,
    /// The newest sequence that somebody waits for.
    wanted: watch::Sender<u64>,
    anew: watch::Sender<()>,
    task: JoinHandle<Option<()>>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Follower {
    pub(super) fn start(
        servers: Arc<Servers>,
        index: Arc<HeadFile>,
        partition: u16,
        connections: watch::Receiver<u64>,
    ) -> Self {
        let (progress, applied) = watch::channel(0);
        let (wanted, wishes) = watch::channel(0);
        let (anew, restarts) = watch::channel(());
        let following = Following { servers, index, partition, progress, wishes, connections, restarts };
        Self { applied, wanted, anew, task: hearth_telemetry::task::spawn("journal.follower", following.run()) }
    }

    /// Returns once everything up to `sequence` is in the index.
    pub(super) async fn reach(&self, sequence: u64, within: Duration) -> Result<(), Error> {
        let mut applied = self.applied.clone();
        self.wanted.send_if_modified(|wanted| sequence > std::mem::replace(wanted, sequence.max(*wanted)));
        let reach = async {
            while timeout(STALL, applied.wait_for(|at| *at >= sequence)).await.is_err() {
                // The servers' end of it may be gone without a word.
                self.anew.send_replace(());
            }
        };
        let reached = timeout(within, reach).await;
        reached.map_err(|_| Error::Unavailable { reason: "the index of runs lags behind the journal".into() })
    }
}

struct Following {
    servers: Arc<Servers>,
    index: Arc<HeadFile>,
    partition: u16,
    progress: watch::Sender<u64>,
    wishes: watch::Receiver<u64>,
    connections: watch::Receiver<u64>,
    restarts: watch::Receiver<()>,
}

impl Following {
    async fn run(mut self) {
        loop {
            self.connections.mark_unchanged();
            self.restarts.mark_unchanged();
            let mut connections = self.connections.clone();
            let mut restarts = self.restarts.clone();
            let ended = tokio::select! {
                ended = self.follow() => ended,
                Ok(()) = connections.changed() => continue,
                Ok(()) = restarts.changed() => continue,
            };
            if let Err(error) = ended {
                tracing::warn!(%error, partition = self.partition, "the index of runs follows the journal anew");
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn follow(&self) -> Result<(), Error> {
        let applied = *self.progress.borrow();
        let deliver_policy = match applied {
            0 => DeliverPolicy::LastPerSubject,
            applied => DeliverPolicy::ByStartSequence { start_sequence: applied + 1 },
        };
        let config = Config {
            filter_subject: self.servers.layout.subjects(self.partition),
            deliver_policy,
            ack_policy: AckPolicy::None,
            headers_only: true,
            inactive_threshold: FORGOTTEN_AFTER,
            memory_storage: true,
            num_replicas: 1,
            ..Config::default()
        };
        let stream = &self.servers.streams[usize::from(self.partition)];
        let consumer = stream.create_consumer(config).await.map_err(|error| unavailable(&error))?;
        let mut wishes = self.wishes.clone();
        let mut received = 0;
        loop {
            while self.take_over(&consumer, &mut received).await? {}
            let behind = *wishes.borrow_and_update() > *self.progress.borrow();
            let pause = if behind { SOON } else { EVERY };
            // Its sender lives as long as this.
            timeout(pause, wishes.changed()).await.ok();
        }
    }

    /// Takes over what the stream has beyond `received` messages: whether there may be more.
    async fn take_over(&self, consumer: &Consumer<Config>, received: &mut u64) -> Result<bool, Error> {
        let fetched = consumer.fetch().max_messages(BATCH).messages().await;
        let mut messages = fetched.map_err(|error| unavailable(&error))?;
        let mut newest: HashMap<Box<str>, (u64, HeaderMap)> = HashMap::new();
        let (mut last, mut count) = (0, 0);
        while let Some(message) = messages.next().await {
            let message = message.map_err(|error| unavailable(&error))?;
            let info = message.info().map_err(|error| unavailable(&error))?;
            let expected = *received + 1;
            if info.consumer_sequence != expected {
                let reason = format!("message {} came where message {expected} was due", info.consumer_sequence);
                return Err(Error::Unavailable { reason });
            }
            (*received, last, count) = (expected, info.stream_sequence, count + 1);
            let message = message.message;
            if let Some(headers) = message.headers {
                newest.insert(message.subject.as_str().into(), (last, headers));
            }
        }
        if count == 0 {
            return Ok(false);
        }
        let mut news = Vec::with_capacity(newest.len());
        for (sequence, headers) in newest.into_values() {
            if let Some(head) = self.head_in(sequence, &headers).await? {
                news.push((Position(sequence), head));
            }
        }
        self.index.apply(news).await?;
        self.progress.send_modify(|applied| *applied = last.max(*applied));
        Ok(count == BATCH)
    }

    /// A message that cannot be read is reported and passed over: its run is missing in lists, and
    /// whoever reads its log is told what is damaged.
    async fn head_in(&self, sequence: u64, headers: &HeaderMap) -> Result<Option<RunHead>, Error> {
        let head = match Record::parse(sequence, headers, Bytes::new()) {
            Ok(record) => record.head,
            Err(error) => {
                tracing::error!(%error, "a message of the journal is not in the index");
                None
            }
        };
        let Some(part) = head else { return Ok(None) };
        self.servers.head(&format!("message {sequence}"), part).await.map(Some)
    }
}

fn unavailable(error: &dyn std::fmt::Display) -> Error {
    Error::Unavailable { reason: error.to_string() }
}

impl Servers {
    pub(super) async fn head(&self, place: &str, part: Part) -> Result<RunHead, Error> {
        let text = self.bytes(place, part).await?;
        decode_head(place, &text)
    }

    /// Waits until the index has everything that is in the streams now.
    pub(super) async fn catch_up(&self, followers: &[Follower]) -> Result<(), Error> {
        self.check_connected()?;
        let within = self.answer_within;
        let each = self.streams.iter().zip(followers).map(async |(stream, follower)| {
            let applied = *follower.applied.borrow();
            let last = self.last_sequence(stream, applied).await?;
            follower.reach(last, within).await
        });
        try_join_all(each).await.map(|_| ())
    }

    /// A leader that was just chosen may still be behind what another copy showed; one that stays behind
    /// has lost what was acknowledged, and that is an alarm.
    async fn last_sequence(&self, stream: &Stream<()>, applied: u64) -> Result<u64, Error> {
        let began = Instant::now();
        loop {
            let info = stream.get_info().await.map_err(|error| Error::Unavailable { reason: error.to_string() })?;
            let last = info.state.last_sequence;
            if last >= applied {
                return Ok(last);
            }
            if began.elapsed() >= self.answer_within {
                let place = format!("stream {}", info.config.name);
                let reason = format!("it ends at {last}, and {applied} was read from it: acknowledged frames are lost");
                tracing::error!(place, reason, "the journal is shorter than it was");
                return Err(Error::Corrupt { place, reason });
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}
