//! Deliberate breaks of the protocol, each of which the simulation must notice.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use hearth_journal::{Append, Error, HeadPage, HeadQuery, Journal, LogKey, Position, RunHead, StoredFrame};
use hearth_run_core::breaks::Break;
use hearth_run_core::{Event, Frame};
use hearth_types::{RunId, Timestamp};

use crate::gate::Gate;
use crate::stores::Booked;

#[derive(Debug, Clone, Copy)]
pub enum Broken {
    /// The state machine decides otherwise.
    Machine(Break),
    /// The store takes an append whatever it expects.
    NoFence,
    /// An append is acknowledged before it stands.
    AcknowledgeFirst,
    /// Who takes a run over does not see what waits behind its turn.
    ForgetQueue,
    /// Who takes a run over does not see which calls are done.
    ForgetResults,
    /// Who takes a run over does not see its children.
    ForgetChildren,
    /// The sandboxes of a tree that has ended stay open.
    LeaveSandboxes,
}

impl Broken {
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine(machine) => machine.name,
            Self::NoFence => "no fence",
            Self::AcknowledgeFirst => "acknowledge before the append",
            Self::ForgetQueue => "drop the queue at a take-over",
            Self::ForgetResults => "restart finished calls at a take-over",
            Self::ForgetChildren => "forget the children at a take-over",
            Self::LeaveSandboxes => "leave the sandboxes open",
        }
    }

    /// What a reader does not see: the event is replaced by one that says nothing.
    fn hides(self, event: &Event, frame: &[Event]) -> bool {
        match (self, event) {
            (Self::ForgetQueue, Event::TurnAccepted { turn_id, .. }) => {
                !frame.iter().any(|other| matches!(other, Event::TurnStarted { turn_id: id } if id == turn_id))
            }
            (Self::ForgetResults, Event::ToolFinished { .. }) => true,
            (Self::ForgetChildren, Event::ChildOpened { .. }) => true,
            _ => false,
        }
    }
}

/// The journal of one replica, as sound or as broken as the run asks for.
pub struct Breakable {
    pub journal: Booked,
    pub broken: Option<Broken>,
    pub gate: Arc<Gate>,
}

impl Breakable {
    fn seen(&self, mut stored: StoredFrame) -> StoredFrame {
        let Some(broken) = self.broken else { return stored };
        if let Ok(mut frame) = Frame::decode(&stored.frame) {
            let whole = frame.events.clone();
            for event in frame.events.iter_mut().filter(|event| broken.hides(event, &whole)) {
                *event = Event::Released;
            }
            if frame.events != whole {
                stored.frame = Bytes::from(frame.encode().unwrap());
            }
        }
        stored
    }
}

#[async_trait]
impl Journal for Breakable {
    async fn append(&self, mut append: Append) -> Result<Position, Error> {
        match self.broken {
            Some(Broken::NoFence) => {
                append.expected = self.journal.last(&append.key).await?;
                self.journal.append(append).await
            }
            Some(Broken::AcknowledgeFirst) => {
                let (journal, gate, position) = (self.journal.clone(), self.gate.clone(), append.expected.0 + 1);
                hearth_telemetry::task::spawn("late append", async move {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                    gate.pass().await;
                    journal.append(append).await.ok();
                });
                Ok(Position(position))
            }
            _ => self.journal.append(append).await,
        }
    }

    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        let frames = self.journal.read(key, after, limit).await?;
        Ok(frames.into_iter().map(|stored| self.seen(stored)).collect())
    }

    async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error> {
        self.journal.trim(key, limit).await
    }

    async fn last(&self, key: &LogKey) -> Result<Position, Error> {
        self.journal.last(key).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.journal.head(run).await
    }

    async fn heads(&self, query: &HeadQuery) -> Result<HeadPage, Error> {
        self.journal.heads(query).await
    }

    async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
        self.journal.waking(after, limit).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
        self.journal.due(now, limit).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.journal.ready().await
    }
}
