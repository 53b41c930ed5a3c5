//! A bus over NATS, for the processes of a cluster.

mod parts;
mod pump;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::connection::State;
use async_nats::{Client, ConnectOptions, Event, HeaderMap, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::{Bus, Error, Requests, Subject, Subscription, metrics};

/// Where the servers are and what bounds the bus.
#[derive(Debug, Clone)]
pub struct NatsOptions {
    /// `nats://host:port`; more of the same cluster after commas.
    pub urls: String,
    pub credentials_file: Option<PathBuf>,
    /// Name and password, where the servers ask for them.
    pub user: Option<(String, String)>,
    /// A certificate authority that the servers' certificates may be of, besides the system's; PEM.
    pub ca_file: Option<PathBuf>,
    /// The first tokens of the subjects on which answers come, so that the servers can keep those of one role from another.
    pub inbox: String,
    /// What the servers show of this connection.
    pub name: String,
    /// The first token of every subject, so that several clusters can share servers.
    pub prefix: String,
    /// Messages that wait for one subscriber; what comes past them is dropped and counted.
    pub subscriber_buffer: NonZeroUsize,
    /// Requests that wait for one server, besides 1,024 in the connection; what comes past them gets no
    /// answer.
    pub server_buffer: NonZeroUsize,
    /// A larger request is refused. One that is larger than the servers' messages travels in parts.
    pub max_request_bytes: usize,
    /// How long the servers may take for what is no request.
    pub answer_within: Duration,
}

impl NatsOptions {
    pub fn at(urls: impl Into<String>) -> Self {
        let count = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self {
            urls: urls.into(),
            credentials_file: None,
            user: None,
            ca_file: None,
            inbox: "_INBOX".into(),
            name: "hearth".into(),
            prefix: "hearth".into(),
            subscriber_buffer: count(1_024),
            server_buffer: count(1_024),
            max_request_bytes: 64 * 1024 * 1024,
            answer_within: Duration::from_secs(2),
        }
    }
}

/// The handle; clones share the connection.
///
/// The largest message, and the largest answer, is what the servers allow (`max_payload`). A subscription is known to the
/// server of this connection when [`Bus::subscribe`] returns; the other servers of a cluster hear of it
/// on the same way as of whatever is sent afterwards, so a process that is asked something after that
/// publishes to a subscriber its server knows. Subscriptions live again after a reconnect; what was
/// published in between is gone. A subject has one server at a time: a second one does not displace
/// the first, and the requester gets the earlier answer.
#[derive(Clone)]
pub struct NatsBus {
    client: Client,
    options: Arc<NatsOptions>,
}

/// Messages of one subscription that the connection holds.
const CONNECTION_BUFFER: usize = 1_024;

/// Set on a reply that is none: why there is no answer.
const REFUSAL: &str = "Hearth-Refusal";
const NOBODY: &str = "nobody";

impl NatsBus {
    /// Starts to connect, and goes on trying for ever; until it succeeds every call is
    /// [`Error::Unavailable`]. Fails when an URL or the credentials cannot be read.
    pub async fn connect(options: NatsOptions) -> Result<Self, Error> {
        let failed = |reason: String| Error::Unavailable { reason };
        let mut connect = ConnectOptions::new();
        if let Some(file) = &options.credentials_file {
            connect = connect
                .credentials_file(file)
                .await
                .map_err(|error| failed(format!("cannot read {}: {error}", file.display())))?;
        }
        if let Some((user, password)) = options.user.clone() {
            connect = connect.user_and_password(user, password);
        }
        if let Some(file) = &options.ca_file {
            connect = connect.add_root_certificates(file.clone());
        }
        let urls: Vec<&str> = options.urls.split(',').map(str::trim).collect();
        let client = connect
            .custom_inbox_prefix(&options.inbox)
            .name(&options.name)
            .retry_on_initial_connect()
            .ping_interval(Duration::from_secs(2))
            .connection_timeout(options.answer_within)
            .subscription_capacity(CONNECTION_BUFFER)
            .reconnect_delay_callback(|attempts| {
                Duration::from_millis(u64::try_from(attempts).unwrap_or(u64::MAX).saturating_mul(50).min(1_000))
            })
            .event_callback(|event| async move { note(&event) })
            .connect(urls)
            .await
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self { client, options: Arc::new(options) })
    }

    /// Answers once the servers answer.
    pub async fn ready(&self) -> Result<(), Error> {
        self.round_trip().await
    }

    fn path(&self, subject: &Subject) -> String {
        format!("{}.{}", self.options.prefix, subject.path())
    }

    fn check_connected(&self) -> Result<(), Error> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            State::Pending | State::Disconnected => Err(Error::Unavailable { reason: "not connected to NATS".into() }),
        }
    }

    async fn bounded<T, E: std::fmt::Display>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, Error> {
        match timeout(self.options.answer_within, call).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(Error::Unavailable { reason: error.to_string() }),
            Err(_) => Err(Error::Unavailable { reason: "NATS does not take messages".into() }),
        }
    }

    /// Returns when the server has done all that was sent before: it handles a connection's messages
    /// in order, and says at once that nobody answers on this subject.
    async fn round_trip(&self) -> Result<(), Error> {
        self.check_connected()?;
        let request = async_nats::Request::new().timeout(None);
        let asked = self.client.send_request(format!("{}.nobody", self.options.prefix), request);
        match timeout(self.options.answer_within, asked).await {
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => Ok(()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Error::Unavailable { reason: error.to_string() }),
            Err(_) => Err(Error::Unavailable { reason: "NATS does not answer in time".into() }),
        }
    }

    async fn listen(&self, subject: &Subject) -> Result<Subscriber, Error> {
        self.check_connected()?;
        let subscriber = self.bounded(self.client.subscribe(self.path(subject))).await?;
        self.round_trip().await?;
        Ok(subscriber)
    }
}

fn check_size(payload: &Bytes, limit: usize) -> Result<(), Error> {
    let bytes = payload.len();
    if bytes > limit { Err(Error::TooLarge { bytes, limit }) } else { Ok(()) }
}

fn note(event: &Event) {
    match event {
        Event::SlowConsumer(_) => metrics::dropped("connection", 1),
        Event::Connected => tracing::info!("connected to NATS"),
        Event::Disconnected => tracing::warn!("the connection to NATS is lost"),
        other => tracing::warn!(event = %other, "NATS"),
    }
}

#[async_trait]
impl Bus for NatsBus {
    async fn publish(&self, subject: &Subject, payload: Bytes) -> Result<(), Error> {
        check_size(&payload, self.client.max_payload())?;
        self.check_connected()?;
        self.bounded(self.client.publish(self.path(subject), payload)).await
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, Error> {
        let subscriber = self.listen(subject).await?;
        let (sender, messages) = mpsc::channel(self.options.subscriber_buffer.get());
        let dropped = Arc::new(AtomicU64::new(0));
        // It ends with the subscription.
        drop(hearth_telemetry::task::spawn(
            "bus.subscription",
            pump::deliver(subscriber, sender, dropped.clone(), subject.kind()),
        ));
        Ok(Subscription { messages, dropped })
    }

    async fn request(&self, subject: &Subject, payload: Bytes, deadline: Duration) -> Result<Bytes, Error> {
        check_size(&payload, self.options.max_request_bytes)?;
        self.check_connected()?;
        let nobody = || Error::NoResponders { subject: subject.to_string() };
        let timed_out = || Error::Timeout { subject: subject.to_string() };
        let path = self.path(subject);
        let asked = async {
            let mut parts = parts::split(payload, &self.client.new_inbox(), self.client.max_payload());
            let last = parts.pop();
            for (headers, part) in parts {
                let sent = self.client.publish_with_headers(path.clone(), headers.unwrap_or_default(), part).await;
                sent.map_err(|_| async_nats::RequestError::new(RequestErrorKind::Other))?;
            }
            let (headers, part) = last.unwrap_or_default();
            let mut request = async_nats::Request::new().payload(part).timeout(None);
            if let Some(headers) = headers {
                request = request.headers(headers);
            }
            self.client.send_request(path, request).await
        };
        let answer = timeout(deadline, asked).await.map_err(|_| timed_out())?;
        let answer = answer.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => nobody(),
            RequestErrorKind::TimedOut => timed_out(),
            _ => Error::Unavailable { reason: error.to_string() },
        })?;
        match answer.headers.as_ref().and_then(|headers| headers.get(REFUSAL)) {
            None => Ok(answer.payload),
            Some(refusal) => Err(parse_refusal(refusal.as_str()).unwrap_or_else(nobody)),
        }
    }

    async fn serve(&self, subject: &Subject) -> Result<Requests, Error> {
        let subscriber = self.listen(subject).await?;
        let (sender, incoming) = mpsc::channel(self.options.server_buffer.get());
        drop(hearth_telemetry::task::spawn(
            "bus.server",
            pump::serve(subscriber, sender, self.client.clone(), subject.kind()),
        ));
        Ok(Requests { incoming })
    }
}

/// The headers of a reply that carries no answer: the server dropped the request, or its answer of
/// `too_large` bytes does not fit.
fn refusal(too_large: Option<(usize, usize)>) -> HeaderMap {
    let text = too_large.map_or_else(|| NOBODY.to_owned(), |(bytes, limit)| format!("{bytes} {limit}"));
    let mut headers = HeaderMap::new();
    headers.insert(REFUSAL, text.as_str());
    headers
}

fn parse_refusal(text: &str) -> Option<Error> {
    let (bytes, limit) = text.split_once(' ')?;
    Some(Error::TooLarge { bytes: bytes.parse().ok()?, limit: limit.parse().ok()? })
}

/// How long a task waits for room in the connection before it gives a reply up; the requester has its
/// deadline.
const REPLY_WITHIN: Duration = Duration::from_secs(5);

async fn reply(client: &Client, inbox: async_nats::Subject, answer: Option<Bytes>) {
    let began = Instant::now();
    let limit = client.max_payload();
    let sent = match answer {
        Some(answer) if answer.len() <= limit => timeout(REPLY_WITHIN, client.publish(inbox, answer)).await,
        other => {
            let headers = refusal(other.map(|answer| (answer.len(), limit)));
            timeout(REPLY_WITHIN, client.publish_with_headers(inbox, headers, Bytes::new())).await
        }
    };
    if !matches!(sent, Ok(Ok(()))) {
        tracing::debug!(waited = ?began.elapsed(), "a reply could not be sent");
    }
}
