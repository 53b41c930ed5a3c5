//! A bus within one process.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::{Bus, Error, Incoming, Requests, Subject, Subscription, metrics};

/// What bounds the bus.
#[derive(Debug, Clone, Copy)]
pub struct LocalOptions {
    /// Messages that wait for one subscriber; what comes past them is dropped and counted.
    pub subscriber_buffer: NonZeroUsize,
    /// Requests that wait for one server; what comes past them waits for its deadline.
    pub server_buffer: NonZeroUsize,
    pub max_message_bytes: usize,
}

impl Default for LocalOptions {
    fn default() -> Self {
        let count = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self { subscriber_buffer: count(1_024), server_buffer: count(1_024), max_message_bytes: 32 * 1024 * 1024 }
    }
}

/// Clones share one bus, as the replicas of a cluster do.
#[derive(Debug, Clone, Default)]
pub struct LocalBus {
    options: LocalOptions,
    topics: Arc<Mutex<Topics>>,
}

#[derive(Debug, Default)]
struct Topics {
    by_subject: HashMap<Subject, Topic>,
    /// Subjects at which the next sweep is due.
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Topic {
    subscribers: Vec<Subscriber>,
    server: Option<mpsc::Sender<Incoming>>,
}

#[derive(Debug)]
struct Subscriber {
    messages: mpsc::Sender<Bytes>,
    dropped: Arc<AtomicU64>,
}

impl Topic {
    fn drop_the_gone(&mut self) {
        self.subscribers.retain(|subscriber| !subscriber.messages.is_closed());
        if self.server.as_ref().is_some_and(mpsc::Sender::is_closed) {
            self.server = None;
        }
    }

    fn is_unused(&self) -> bool {
        self.subscribers.is_empty() && self.server.is_none()
    }
}

impl Topics {
    /// The subject's topic. A subscriber goes by dropping its end, which tells nobody here; so the
    /// unused are swept out whenever their number may have doubled, at a constant cost per call.
    fn at(&mut self, subject: &Subject) -> &mut Topic {
        const FIRST_SWEEP: usize = 64;
        if self.by_subject.len() >= self.sweep_at.max(FIRST_SWEEP) {
            self.by_subject.retain(|_, topic| {
                topic.drop_the_gone();
                !topic.is_unused()
            });
            self.sweep_at = self.by_subject.len() * 2;
        }
        let topic = self.by_subject.entry(subject.clone()).or_default();
        topic.drop_the_gone();
        topic
    }
}

impl LocalBus {
    pub fn new(options: LocalOptions) -> Self {
        Self { options, topics: Arc::default() }
    }

    fn topics(&self) -> MutexGuard<'_, Topics> {
        // Nothing panics while it holds the lock, so poisoned topics are still whole.
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_size(&self, payload: &Bytes) -> Result<(), Error> {
        let (bytes, limit) = (payload.len(), self.options.max_message_bytes);
        if bytes > limit { Err(Error::TooLarge { bytes, limit }) } else { Ok(()) }
    }

    #[cfg(test)]
    fn subjects(&self) -> usize {
        self.topics().by_subject.len()
    }
}

#[async_trait]
impl Bus for LocalBus {
    async fn publish(&self, subject: &Subject, payload: Bytes) -> Result<(), Error> {
        self.check_size(&payload)?;
        let topics = self.topics();
        let Some(topic) = topics.by_subject.get(subject) else { return Ok(()) };
        for subscriber in &topic.subscribers {
            if let Err(TrySendError::Full(_)) = subscriber.messages.try_send(payload.clone()) {
                subscriber.dropped.fetch_add(1, Ordering::Relaxed);
                metrics::dropped(subject.kind(), 1);
            }
        }
        Ok(())
    }

    fn may_be_heard(&self, subject: &Subject) -> bool {
        self.topics().by_subject.contains_key(subject)
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, Error> {
        let (sender, messages) = mpsc::channel(self.options.subscriber_buffer.get());
        let dropped = Arc::new(AtomicU64::new(0));
        let subscriber = Subscriber { messages: sender, dropped: dropped.clone() };
        self.topics().at(subject).subscribers.push(subscriber);
        Ok(Subscription { messages, dropped })
    }

    async fn request(&self, subject: &Subject, payload: Bytes, deadline: Duration) -> Result<Bytes, Error> {
        self.check_size(&payload)?;
        let nobody = || Error::NoResponders { subject: subject.to_string() };
        let server = self.topics().by_subject.get(subject).and_then(|topic| topic.server.clone()).ok_or_else(nobody)?;
        let (answer, answered) = oneshot::channel();
        let exchange = async {
            server.send(Incoming { payload, answer }).await.map_err(|_| nobody())?;
            // Else the request itself would keep a server that has been replaced waiting for more.
            drop(server);
            answered.await.map_err(|_| nobody())
        };
        let answer = timeout(deadline, exchange).await;
        let payload = answer.map_err(|_| Error::Timeout { subject: subject.to_string() })??;
        self.check_size(&payload)?;
        Ok(payload)
    }

    /// A second server of a subject takes over from the first, whose requests end.
    async fn serve(&self, subject: &Subject) -> Result<Requests, Error> {
        let (sender, incoming) = mpsc::channel(self.options.server_buffer.get());
        self.topics().at(subject).server = Some(sender);
        Ok(Requests { incoming })
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::RunId;

    use super::*;
    use crate::conformance::{self, Setting};

    const SMALL: usize = 8;

    fn small() -> LocalBus {
        let count = NonZeroUsize::new(SMALL).unwrap();
        LocalBus::new(LocalOptions { subscriber_buffer: count, server_buffer: count, max_message_bytes: 1 << 20 })
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_local_bus_keeps_the_contract() {
        conformance::run_all(async || {
            let bus = small();
            let handles: Vec<crate::SharedBus> = vec![Arc::new(bus.clone()), Arc::new(bus)];
            Setting::new(handles, 1 << 20, ())
        })
        .await;
    }

    #[tokio::test]
    async fn subscriptions_that_are_gone_leave_nothing_behind() {
        let bus = LocalBus::default();
        let kept = bus.subscribe(&Subject::RunEvents(RunId::parse("kept").unwrap())).await.unwrap();
        for n in 0..10_000 {
            let subject = Subject::RunEvents(RunId::parse(&format!("run_{n}")).unwrap());
            drop(bus.subscribe(&subject).await.unwrap());
            drop(bus.serve(&subject).await.unwrap());
        }
        assert!(bus.subjects() <= 128, "{} subjects are kept", bus.subjects());
        bus.publish(&Subject::RunEvents(RunId::parse("kept").unwrap()), Bytes::from_static(b"x")).await.unwrap();
        assert_eq!(kept.messages.len(), 1);
    }

    #[tokio::test]
    async fn a_new_server_takes_over_from_an_old_one() {
        let bus = LocalBus::default();
        let subject = Subject::RunEvents(RunId::parse("run_a").unwrap());
        let mut old = bus.serve(&subject).await.unwrap();
        let mut new = bus.serve(&subject).await.unwrap();
        assert!(old.incoming.recv().await.is_none(), "the old server's requests end");
        let answering = async {
            let request = new.incoming.recv().await.unwrap();
            request.answer.send(request.payload).unwrap();
        };
        let (answer, ()) =
            tokio::join!(bus.request(&subject, Bytes::from_static(b"hi"), Duration::from_secs(5)), answering);
        assert_eq!(answer.unwrap(), "hi");
    }
}
