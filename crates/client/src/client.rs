//! The client: one connection pool, one token, and the loop that repeats calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::Url;
use tokio::time::Instant;

use crate::answer::Reply;
use crate::call::{Attempt, Call};
use crate::error::UnreachableError;
use crate::retry::{Failure, Patience};
use crate::{Error, Options, Repeat};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A blocked call carries no bytes for hours; keep-alive probes tell a peer that vanished without a
/// word from one that is at work.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    base: String,
    options: Options,
    /// Whether this server has answered anything yet.
    reached: AtomicBool,
}

impl Client {
    /// Fails when the URL cannot be used. Connects to nothing.
    pub fn new(options: Options) -> Result<Self, Error> {
        let unusable = |detail: String| Error::protocol(format!("the URL {:?}", options.url), detail);
        let url = Url::parse(&options.url).map_err(|error| unusable(error.to_string()))?;
        if url.scheme() != "http" {
            return Err(unusable("only http:// is spoken; let a proxy end TLS and give its http address".to_owned()));
        }
        let host = url.host_str().unwrap_or_default().to_owned();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE)
            .tcp_nodelay(true)
            // A redirect would turn a POST into a GET and take the token elsewhere.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&host) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| unusable(error.to_string()))?;
        let base = options.url.trim_end_matches('/').to_owned();
        Ok(Self { inner: Arc::new(Inner { http, base, options, reached: AtomicBool::new(false) }) })
    }

    pub fn url(&self) -> &str {
        &self.inner.base
    }

    /// Makes the call, and repeats it with the same key while the server is away, within the policy.
    pub(crate) async fn perform(&self, call: Call) -> Result<Reply, Error> {
        let mut repeats = self.repeats();
        loop {
            let error = match call.attempt(self).await {
                Ok(reply) => return Ok(reply),
                Err(attempt) => attempt,
            };
            repeats.wait_after(&call, error).await?;
        }
    }

    pub(crate) fn request(&self, call: &Call) -> reqwest::RequestBuilder {
        let url = format!("{}{}", self.inner.base, call.path);
        let request = self.inner.http.request(call.method.clone(), url);
        match &self.inner.options.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) fn mark_reached(&self) {
        self.inner.reached.store(true, Ordering::Relaxed);
    }

    pub(crate) fn repeats(&self) -> Repeats {
        let reached = self.inner.reached.load(Ordering::Relaxed);
        let patience = Patience::new(self.inner.options.retry, reached, seed());
        Repeats { client: self.clone(), patience, origin: Instant::now(), attempts: 0 }
    }
}

/// The repetition of one call: counts, waits, tells the observer, gives up.
pub(crate) struct Repeats {
    client: Client,
    patience: Patience,
    origin: Instant,
    attempts: u32,
}

impl Repeats {
    /// Returns when it is time for the next attempt; the error is the call's when there is none.
    pub(crate) async fn wait_after(&mut self, call: &Call, attempt: Attempt) -> Result<(), Error> {
        self.attempts = self.attempts.saturating_add(1);
        let (failure, cause) = match &attempt {
            Attempt::Final(_) => return Err(self.give_up(call, attempt)),
            Attempt::Outage { failure, cause } => (*failure, cause.clone()),
            Attempt::Asked(error) => (Failure::Asked { retry_after: error.retry_after }, error.to_string()),
        };
        let Some(delay) = self.patience.after(failure, self.origin.elapsed()) else {
            return Err(self.give_up(call, attempt));
        };
        if let Some(observer) = &self.client.inner.options.on_repeat {
            observer(&Repeat { call: call.name(), cause, attempts: self.attempts, delay });
        }
        tokio::time::sleep(delay).await;
        Ok(())
    }

    pub(crate) fn recovered(&mut self) {
        self.patience.recovered();
        self.attempts = 0;
    }

    fn give_up(&self, call: &Call, attempt: Attempt) -> Error {
        match attempt {
            Attempt::Final(error) => error,
            Attempt::Asked(error) => Error::Api(error),
            Attempt::Outage { cause, .. } => Error::Unreachable(Box::new(UnreachableError {
                url: self.client.inner.base.clone(),
                cause,
                attempts: self.attempts,
                key: call.key.clone(),
            })),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The random end of a fresh UUID.
fn seed() -> u64 {
    uuid::Uuid::now_v7().as_u64_pair().1
}
