//! A bus that misbehaves as told: lost, late and repeated messages.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hearth_types::SeededRandom;

use crate::{Bus, Error, Requests, Subject, Subscription};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Publish,
    Request,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// It never arrives; a requester waits for its deadline.
    Lose,
    /// A request arrives, its answer does not; the requester waits for its deadline.
    LoseAnswer,
    /// A request arrives twice, as when a caller repeats it; the second answer counts.
    Repeat,
    /// It arrives after a while. Publications of one publisher stay in order: the publisher waits.
    Delay(Duration),
}

/// Passes messages on to another bus, or fails them as `decide` says.
pub struct FaultyBus<B> {
    inner: B,
    decide: Box<dyn Fn(Operation) -> Fate + Send + Sync>,
}

impl<B: Bus> FaultyBus<B> {
    pub fn new(inner: B, decide: impl Fn(Operation) -> Fate + Send + Sync + 'static) -> Self {
        Self { inner, decide: Box::new(decide) }
    }

    /// Fates drawn from a seed: the same seed and the same messages give the same fates.
    pub fn seeded(inner: B, seed: u64, odds: Odds) -> Self {
        let random = SeededRandom::new(seed);
        Self::new(inner, move |_| odds.draw(&random))
    }
}

/// How often, in thousandths of all messages, each misfortune happens. What only a request can suffer
/// passes a publication.
#[derive(Debug, Clone, Copy, Default)]
pub struct Odds {
    pub lose: u16,
    pub lose_answer: u16,
    pub repeat: u16,
    pub delay: u16,
    /// The longest delay; each is drawn below it.
    pub max_delay: Duration,
}

impl Odds {
    fn draw(&self, random: &SeededRandom) -> Fate {
        let mut rest = random.below(1_000);
        let delay = Duration::from_micros(random.below(u64::try_from(self.max_delay.as_micros()).unwrap_or(u64::MAX)));
        for (odds, fate) in [
            (self.lose, Fate::Lose),
            (self.lose_answer, Fate::LoseAnswer),
            (self.repeat, Fate::Repeat),
            (self.delay, Fate::Delay(delay)),
        ] {
            if rest < u64::from(odds) {
                return fate;
            }
            rest -= u64::from(odds);
        }
        Fate::Pass
    }
}

#[async_trait]
impl<B: Bus> Bus for FaultyBus<B> {
    async fn publish(&self, subject: &Subject, payload: Bytes) -> Result<(), Error> {
        match (self.decide)(Operation::Publish) {
            Fate::Lose => Ok(()),
            Fate::Delay(span) => {
                tokio::time::sleep(span).await;
                self.inner.publish(subject, payload).await
            }
            Fate::Pass | Fate::LoseAnswer | Fate::Repeat => self.inner.publish(subject, payload).await,
        }
    }

    async fn subscribe(&self, subject: &Subject) -> Result<Subscription, Error> {
        self.inner.subscribe(subject).await
    }

    async fn request(&self, subject: &Subject, payload: Bytes, deadline: Duration) -> Result<Bytes, Error> {
        let began = tokio::time::Instant::now();
        let timed_out = || Error::Timeout { subject: subject.to_string() };
        match (self.decide)(Operation::Request) {
            Fate::Pass => self.inner.request(subject, payload, deadline).await,
            Fate::Lose => {
                tokio::time::sleep(deadline).await;
                Err(timed_out())
            }
            Fate::LoseAnswer => {
                self.inner.request(subject, payload, deadline).await?;
                tokio::time::sleep_until(began + deadline).await;
                Err(timed_out())
            }
            Fate::Repeat => {
                self.inner.request(subject, payload.clone(), deadline).await?;
                self.inner.request(subject, payload, deadline.saturating_sub(began.elapsed())).await
            }
            Fate::Delay(span) => {
                tokio::time::sleep(span.min(deadline)).await;
                let left = deadline.saturating_sub(began.elapsed());
                if left.is_zero() { Err(timed_out()) } else { self.inner.request(subject, payload, left).await }
            }
        }
    }

    async fn serve(&self, subject: &Subject) -> Result<Requests, Error> {
        self.inner.serve(subject).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use hearth_types::ReplicaId;

    use super::*;
    use crate::LocalBus;

    #[tokio::test(start_paused = true)]
    async fn each_request_ends_within_its_deadline_and_lost_ones_may_have_had_an_effect() {
        let odds =
            Odds { lose: 150, lose_answer: 150, repeat: 150, delay: 300, max_delay: Duration::from_millis(1_500) };
        let local = LocalBus::default();
        let subject = Subject::Commands(ReplicaId::parse("r").unwrap());
        let mut requests = local.serve(&subject).await.unwrap();
        let effects = Arc::new(AtomicU64::new(0));
        let counted = effects.clone();
        let mut server = tokio::task::JoinSet::new();
        server.spawn(async move {
            while let Some(request) = requests.incoming.recv().await {
                counted.fetch_add(1, Ordering::Relaxed);
                request.answer.send(request.payload).ok();
            }
        });
        let bus = FaultyBus::seeded(local, 7, odds);
        let (mut answers, mut timeouts, mut silent_effects) = (0, 0, 0);
        for _ in 0..400 {
            let before = effects.load(Ordering::Relaxed);
            let began = tokio::time::Instant::now();
            let deadline = Duration::from_secs(1);
            match bus.request(&subject, Bytes::from_static(b"x"), deadline).await {
                Ok(answer) => {
                    assert_eq!(answer, "x");
                    answers += 1;
                }
                Err(Error::Timeout { .. }) => {
                    timeouts += 1;
                    silent_effects += effects.load(Ordering::Relaxed) - before;
                }
                Err(error) => panic!("{error}"),
            }
            assert!(began.elapsed() <= deadline + Duration::from_millis(5));
        }
        assert!(answers > 100 && timeouts > 50 && silent_effects > 20, "{answers} {timeouts} {silent_effects}");
    }
}
