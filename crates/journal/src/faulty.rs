//! A journal that misbehaves as told: lost acknowledgements, lost appends, refusals, delays.

use std::time::Duration;

use async_trait::async_trait;
use hearth_types::{RunId, SeededRandom, Timestamp};

use crate::{Append, Error, HeadPage, HeadQuery, Journal, LogKey, Position, RunHead, StoredFrame};

/// What is asked of the journal.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    Append(&'a Append),
    Read,
    Trim,
}

/// What becomes of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// Done, but the caller hears [`Error::Unknown`].
    LoseAnswer,
    /// Not done, and the caller hears [`Error::Unknown`].
    LoseRequest,
    /// Not done, and the caller hears [`Error::Unavailable`]. A read can end in this way only.
    Refuse,
    /// Passes after a while.
    Delay(Duration),
}

/// Passes operations on to another journal, or fails them as `decide` says.
pub struct FaultyJournal<J> {
    inner: J,
    decide: Box<dyn Fn(Operation<'_>) -> Fate + Send + Sync>,
}

impl<J: Journal> FaultyJournal<J> {
    pub fn new(inner: J, decide: impl Fn(Operation<'_>) -> Fate + Send + Sync + 'static) -> Self {
        Self { inner, decide: Box::new(decide) }
    }

    /// Fates drawn from a seed: the same seed and the same operations give the same fates.
    pub fn seeded(inner: J, seed: u64, odds: Odds) -> Self {
        let random = SeededRandom::new(seed);
        Self::new(inner, move |operation| odds.draw(&random, operation))
    }

    async fn read_fate(&self) -> Result<(), Error> {
        match (self.decide)(Operation::Read) {
            Fate::Pass => Ok(()),
            Fate::Delay(span) => {
                tokio::time::sleep(span).await;
                Ok(())
            }
            Fate::LoseAnswer | Fate::LoseRequest | Fate::Refuse => Err(refused()),
        }
    }
}

/// How often, in thousandths of all operations, each misfortune happens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Odds {
    pub lose_answer: u16,
    pub lose_request: u16,
    pub refuse: u16,
    pub delay: u16,
    /// The longest delay; each is drawn below it.
    pub max_delay: Duration,
}

impl Odds {
    fn draw(&self, random: &SeededRandom, operation: Operation<'_>) -> Fate {
        let is_read = matches!(operation, Operation::Read);
        let mut rest = random.below(1_000);
        let delay = Duration::from_micros(random.below(u64::try_from(self.max_delay.as_micros()).unwrap_or(u64::MAX)));
        for (odds, fate) in [
            (self.lose_answer, Fate::LoseAnswer),
            (self.lose_request, Fate::LoseRequest),
            (self.refuse, Fate::Refuse),
            (self.delay, Fate::Delay(delay)),
        ] {
            if rest < u64::from(odds) {
                let lost = matches!(fate, Fate::LoseAnswer | Fate::LoseRequest);
                return if is_read && lost { Fate::Pass } else { fate };
            }
            rest -= u64::from(odds);
        }
        Fate::Pass
    }
}

fn refused() -> Error {
    Error::Unavailable { reason: "refused by the fault injection".into() }
}

fn lost() -> Error {
    Error::Unknown { reason: "lost by the fault injection".into() }
}

#[async_trait]
impl<J: Journal> Journal for FaultyJournal<J> {
    async fn append(&self, append: Append) -> Result<Position, Error> {
        match (self.decide)(Operation::Append(&append)) {
            Fate::Pass => self.inner.append(append).await,
            Fate::LoseAnswer => match self.inner.append(append).await {
                Ok(_) | Err(_) => Err(lost()),
            },
            Fate::LoseRequest => Err(lost()),
            Fate::Refuse => Err(refused()),
            Fate::Delay(span) => {
                tokio::time::sleep(span).await;
                self.inner.append(append).await
            }
        }
    }

    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        self.read_fate().await?;
        self.inner.read(key, after, limit).await
    }

    async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error> {
        match (self.decide)(Operation::Trim) {
            Fate::Pass => self.inner.trim(key, limit).await,
            Fate::LoseAnswer => match self.inner.trim(key, limit).await {
                Ok(_) | Err(_) => Err(lost()),
            },
            Fate::LoseRequest => Err(lost()),
            Fate::Refuse => Err(refused()),
            Fate::Delay(span) => {
                tokio::time::sleep(span).await;
                self.inner.trim(key, limit).await
            }
        }
    }

    async fn last(&self, key: &LogKey) -> Result<Position, Error> {
        self.read_fate().await?;
        self.inner.last(key).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.read_fate().await?;
        self.inner.head(run).await
    }

    async fn heads(&self, query: &HeadQuery) -> Result<HeadPage, Error> {
        self.read_fate().await?;
        self.inner.heads(query).await
    }

    async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
        self.read_fate().await?;
        self.inner.waking(after, limit).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
        self.read_fate().await?;
        self.inner.due(now, limit).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.read_fate().await?;
        self.inner.ready().await
    }
}
