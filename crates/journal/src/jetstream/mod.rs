//! A journal in the streams of NATS JetStream, shared by the replicas of a cluster.
//!
//! A log is a subject; its partition's stream refuses a message that does not name the subject's last
//! sequence, which is the fence. The position of a frame is its sequence in the stream.
//!
//! A frame and its head are one message, so they become visible together. What is too large for a
//! message is stored before it, in chunks, and named by it. Lists are answered from an index that each
//! replica builds from the streams; see [`follow`].

mod claims;
mod connect;
mod follow;
mod layout;
mod publish;
mod read;
mod record;
mod repartition;
mod standing;
#[cfg(test)]
mod tests;
mod users;

use std::num::{NonZeroU8, NonZeroU16, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::Stream;
use async_nats::{Client, HeaderMap};
use async_trait::async_trait;
use bytes::Bytes;
use futures::future::try_join_all;
use hearth_types::{RunId, Timestamp, check_id};
use tokio::time::Instant;

use crate::admission::Admission;
use crate::metrics;
use crate::sqlite::HeadFile;
use crate::{Append, Error, HeadPage, HeadQuery, Journal, LogKey, Position, RunHead, StoredFrame};
use follow::Follower;
use layout::Layout;
use publish::Refusal;
pub use repartition::{Progress, Relocate, Repartitioned, cancel_repartition, repartition};
use users::User;

/// Where the servers are, how the journal lies on them, and what bounds it.
#[derive(Debug, Clone)]
pub struct JetStreamOptions {
    /// `nats://host:port`; more of the same cluster after commas.
    pub urls: String,
    pub credentials_file: Option<PathBuf>,
    /// Name and password, where the servers ask for them.
    pub user: Option<(String, String)>,
    /// A certificate authority that the servers' certificates may be of, besides the system's; PEM.
    pub ca_file: Option<PathBuf>,
    /// The first tokens of the subjects on which answers come.
    pub inbox: String,
    /// What the servers show of this connection.
    pub name: String,
    /// The first token of every subject and stream, of the form of an id, so that several clusters can
    /// share servers.
    pub prefix: String,
    /// Streams that share the logs. Chosen when the journal is made, and changed by [`repartition`] only: another
    /// number is refused.
    pub partitions: NonZeroU16,
    /// Copies of each stream. More than one needs servers of version 2.11 or newer.
    pub replicas: NonZeroU8,
    /// For the index of heads; this process alone uses it, and makes it anew at every start.
    pub cache_folder: PathBuf,
    /// A larger frame is refused.
    pub max_frame_bytes: usize,
    /// Appends under way at the most, by size.
    pub queue_bytes: NonZeroUsize,
    /// How long an append waits for its place before it is refused.
    pub admission: Duration,
    /// How long the servers may take for an answer; an append without one is [`Error::Unknown`].
    pub answer_within: Duration,
    /// How long servers that have just started may take before they make streams.
    pub start_within: Duration,
}

impl JetStreamOptions {
    pub fn at(urls: impl Into<String>, cache_folder: impl Into<PathBuf>) -> Self {
        const MIB: usize = 1024 * 1024;
        Self {
            urls: urls.into(),
            credentials_file: None,
            user: None,
            ca_file: None,
            inbox: "_INBOX".into(),
            name: "hearth".into(),
            prefix: "hearth".into(),
            partitions: NonZeroU16::new(8).unwrap_or(NonZeroU16::MIN),
            replicas: NonZeroU8::MIN,
            cache_folder: cache_folder.into(),
            max_frame_bytes: 64 * MIB,
            queue_bytes: NonZeroUsize::new(128 * MIB).unwrap_or(NonZeroUsize::MIN),
            admission: Duration::from_secs(10),
            answer_within: Duration::from_secs(5),
            start_within: Duration::from_secs(20),
        }
    }
}

/// The handle; clones share the connection and the index.
#[derive(Clone)]
pub struct JetStreamJournal {
    shared: Arc<Shared>,
}

struct Shared {
    servers: Arc<Servers>,
    index: Arc<HeadFile>,
    /// In the order of the partitions.
    followers: Vec<Follower>,
    admission: Admission,
    options: JetStreamOptions,
    /// Answers who asks for those that use the journal, as long as this lives.
    #[cfg_attr(not(test), allow(dead_code, reason = "held, not used"))]
    user: User,
}

/// The streams and the connection to them.
struct Servers {
    client: Client,
    layout: Layout,
    /// In the order of the partitions.
    streams: Vec<Stream<()>>,
    claims: Stream<()>,
    answer_within: Duration,
}

impl Servers {
    async fn find(client: &Client, context: &Context, layout: Layout, answer_within: Duration) -> Result<Self, Error> {
        let handle = async |name: String| {
            let found = context.get_stream_no_info(&name).await;
            found.map_err(|error| connect::unavailable(format!("stream {name}: {error}")))
        };
        let streams = try_join_all((0..layout.partitions).map(|partition| handle(layout.stream(partition)))).await?;
        let claims = handle(layout.claims_stream()).await?;
        Ok(Self { client: client.clone(), layout, streams, claims, answer_within })
    }

    fn stream(&self, key: &LogKey) -> &Stream<()> {
        &self.streams[usize::from(self.layout.partition(key))]
    }

    /// Stores a message that the next one replaces, and asks every stream for its leader.
    async fn probe(&self) -> Result<(), Error> {
        self.check_connected()?;
        let stored = self.publish(self.layout.probe_subject(), HeaderMap::new(), Bytes::new()).await;
        match stored {
            Ok(_) => {}
            Err(Refusal::Fenced | Refusal::InProcess) => {
                return Err(Error::Unavailable { reason: "the probe was refused".into() });
            }
            Err(Refusal::Other(Error::Unknown { reason })) => return Err(Error::Unavailable { reason }),
            Err(Refusal::Other(error)) => return Err(error),
        }
        let each = self.streams.iter().map(async |stream| {
            let info = stream.get_info().await.map_err(|error| Error::Unavailable { reason: error.to_string() })?;
            match info.cluster {
                Some(cluster) if cluster.leader.as_ref().is_none_or(String::is_empty) => {
                    Err(Error::Unavailable { reason: format!("stream {} has no leader", info.config.name) })
                }
                _ => Ok(()),
            }
        });
        try_join_all(each).await.map(|_| ())
    }
}

impl JetStreamJournal {
    /// Connects, makes the streams that are not there, and starts to build the index; lists wait for
    /// it. Fails with [`Error::Unavailable`] while the servers are out of reach, and when they or the
    /// streams are not what a correct journal needs; the message says why.
    pub async fn connect(options: JetStreamOptions) -> Result<Self, Error> {
        check_id(&options.prefix).map_err(|error| Error::Unavailable { reason: format!("the prefix: {error}") })?;
        let (client, connections) = connect::connect(&options).await?;
        connect::admit_servers(&client, usize::from(options.replicas.get())).await?;
        let context = connect::context(&client, options.answer_within);
        // Before the look at what stands, so that who changes it meets an answer from here, or this a change.
        let user = User::announce(&client, &options).await?;
        let (standing, _) = standing::settle(&context, &options).await?;
        standing.admit(options.partitions.get())?;
        let layout = standing.layout(&options.prefix);
        connect::lay_out(&context, &options, &layout).await?;
        if standing::read(&context, &options.prefix).await?.0.as_ref() != Some(&standing) {
            return Err(connect::unavailable("the journal's layout was changed during the start: start again"));
        }
        let servers = Arc::new(Servers::find(&client, &context, layout, options.answer_within).await?);
        let folder = options.cache_folder.clone();
        let index = tokio::task::spawn_blocking(move || HeadFile::create(&folder)).await;
        let index = Arc::new(index.map_err(|error| Error::Unavailable { reason: error.to_string() })??);
        let follow = |partition| Follower::start(servers.clone(), index.clone(), partition, connections.clone());
        let followers = (0..options.partitions.get()).map(follow).collect();
        let admission = Admission::new(options.queue_bytes, options.admission);
        Ok(Self { shared: Arc::new(Shared { servers, index, followers, admission, options, user }) })
    }

    async fn catch_up(&self) -> Result<(), Error> {
        self.shared.servers.catch_up(&self.shared.followers).await
    }

    async fn try_append(&self, append: Append) -> Result<Position, Error> {
        append.check(self.shared.options.max_frame_bytes)?;
        let _room = self.shared.admission.enter(append.frame.len()).await?;
        self.shared.servers.append(append).await
    }
}

#[async_trait]
impl Journal for JetStreamJournal {
    async fn append(&self, append: Append) -> Result<Position, Error> {
        let began = Instant::now();
        let result = self.try_append(append).await;
        metrics::appended(began.elapsed());
        result.inspect_err(metrics::failed)
    }

    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        self.shared.servers.read(key, after, limit).await.inspect_err(metrics::failed)
    }

    async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error> {
        let trimmed = self.shared.servers.trim(key, limit).await;
        trimmed.inspect(|frames| metrics::trimmed(*frames)).inspect_err(metrics::failed)
    }

    async fn last(&self, key: &LogKey) -> Result<Position, Error> {
        let newest = self.shared.servers.newest(key).await.inspect_err(metrics::failed)?;
        Ok(newest.map_or(Position(0), |newest| newest.position))
    }

    /// By way of the log itself, not of the index.
    async fn head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        let key = LogKey::Run(run.clone());
        let newest = self.shared.servers.newest(&key).await.inspect_err(metrics::failed)?;
        let Some(newest) = newest else { return Ok(None) };
        let Some(part) = newest.head.clone() else { return Ok(None) };
        self.shared.servers.head(&newest.place(&key), part).await.map(Some).inspect_err(metrics::failed)
    }

    async fn heads(&self, query: &HeadQuery) -> Result<HeadPage, Error> {
        self.catch_up().await.inspect_err(metrics::failed)?;
        self.shared.index.page(query).await
    }

    async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
        self.catch_up().await.inspect_err(metrics::failed)?;
        self.shared.index.waking(after, limit).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
        self.catch_up().await.inspect_err(metrics::failed)?;
        self.shared.index.due(now, limit).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.shared.servers.probe().await.inspect_err(metrics::failed)
    }
}
