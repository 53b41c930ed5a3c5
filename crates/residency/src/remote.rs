//! Commands to an activation on another replica: what goes over the bus, and who answers it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hearth_bus::{Bus, Incoming, Subject};
use hearth_registry::ReplicaRow;
use hearth_run_core::{Command, Refusal, Reply, RunSpec};
use hearth_types::{Envelope, ReplicaId, RunId, RunState, TurnId};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use crate::reading::SOON;
use crate::residents::{Created, Residents};
use crate::{Error, metrics};

/// The longest that another replica's answer is waited for. Every question is answered without
/// waiting for a turn.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Questions of other replicas that are worked on at once.
const AT_ONCE: usize = 4_096;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Question {
    pub run_id: RunId,
    /// Whether the asked one is to activate the run if nobody has it.
    pub place: bool,
    pub what: What,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum What {
    Command(Box<Command>),
    /// The same, with the end of the turn that it is accepted for, if that comes this soon.
    CommandAndTurn {
        command: Box<Command>,
        soon_ms: u64,
    },
    Create {
        spec: Box<RunSpec>,
        turn_id: TurnId,
        prompt: String,
    },
    Turn(TurnId),
    /// The same, a moment later if the turn ends within it: most do, and one answer is then enough.
    TurnSoon(TurnId),
    /// Whether the asked one has the run's activation.
    Owned,
    /// The run's state, as its index row says.
    State,
    /// Give everything up and end. It is about no run.
    Drain,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Said {
    Reply(Reply),
    ReplyAndTurn(Reply, Envelope),
    Created { new: bool },
    Turn(Option<Envelope>),
    Owned(bool),
    State(Option<RunState>),
    Draining(Box<ReplicaRow>),
    Failed(Failure),
}

/// The kinds of errors that mean the same on the asking side.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// The asked replica has no activation of the run.
    NotHere,
    /// It had one, and has lost it to another replica.
    Moved,
    NotFound,
    Refused(Refusal),
    Taken,
    Busy {
        limit: usize,
    },
    Draining,
    TooLarge {
        bytes: usize,
        limit: usize,
    },
    Unavailable {
        reason: String,
    },
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::NotFound => Self::NotFound,
            Error::Refused(refusal) => Self::Refused(refusal),
            Error::Taken => Self::Taken,
            Error::Busy { limit } => Self::Busy { limit },
            Error::Draining => Self::Draining,
            error if error.moved() => Self::Moved,
            Error::Journal(hearth_journal::Error::TooLarge { bytes, limit }) => Self::TooLarge { bytes, limit },
            other => Self::Unavailable { reason: other.to_string() },
        }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotHere | Failure::Moved => Self::Gone,
            Failure::NotFound => Self::NotFound,
            Failure::Refused(refusal) => Self::Refused(refusal),
            Failure::Taken => Self::Taken,
            Failure::Busy { limit } => Self::Busy { limit },
            Failure::Draining => Self::Draining,
            Failure::TooLarge { bytes, limit } => hearth_journal::Error::TooLarge { bytes, limit }.into(),
            Failure::Unavailable { reason } => hearth_journal::Error::Unavailable { reason }.into(),
        }
    }
}

/// Why a question got no answer.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The message is larger than the bus takes; nobody has seen it.
    TooLarge,
    /// Nobody is there, or what became of the question is unknown.
    Silent,
}

/// Asks a replica for a run's state, for members that have no journal. `None`: it could not be found out;
/// `Some(None)`: there is no such run.
pub async fn ask_state(bus: &dyn Bus, replica: &ReplicaId, run_id: &RunId) -> Option<Option<RunState>> {
    let question = Question { run_id: run_id.clone(), place: false, what: What::State };
    let payload = serde_json::to_vec(&question).ok()?;
    let answer = bus.request(&Subject::Liveness(replica.clone()), Bytes::from(payload), ANSWER_WITHIN).await.ok()?;
    match hearth_types::from_own_json(&answer) {
        Ok(Said::State(state)) => Some(state),
        _ => None,
    }
}

impl Residents {
    pub(crate) async fn question(&self, replica: &ReplicaId, question: &Question) -> Result<Said, NoAnswer> {
        let payload = serde_json::to_vec(question).map_err(|_| NoAnswer::Silent)?;
        let subject = Subject::Commands(replica.clone());
        match self.inner.bus.request(&subject, Bytes::from(payload), ANSWER_WITHIN).await {
            Ok(answer) => hearth_types::from_own_json(&answer).map_err(|error| {
                tracing::warn!(%error, %replica, "another replica's answer is not understood");
                NoAnswer::Silent
            }),
            Err(hearth_bus::Error::TooLarge { .. }) => Err(NoAnswer::TooLarge),
            Err(error) => {
                tracing::debug!(%error, %replica, "another replica did not answer");
                Err(NoAnswer::Silent)
            }
        }
    }

    /// Answers the other members' questions until this replica stops.
    pub(crate) async fn serve(&self) -> Result<(), Error> {
        self.serve_on(Subject::Commands(self.replica().clone()), |_| true).await?;
        self.serve_on(Subject::Liveness(self.replica().clone()), |what| matches!(what, What::State)).await
    }

    async fn serve_on(&self, subject: Subject, answers: fn(&What) -> bool) -> Result<(), Error> {
        let mut requests = self
            .inner
            .bus
            .serve(&subject)
            .await
            .map_err(|error| hearth_journal::Error::Unavailable { reason: format!("the bus: {error}") })?;
        let residents = self.clone();
        let room = Arc::new(Semaphore::new(AT_ONCE));
        self.inner.tasks.spawn(async move {
            let over = residents.inner.over.clone();
            while let Some(Some(incoming)) = over.run_until_cancelled(requests.incoming.recv()).await {
                let Ok(permit) = room.clone().try_acquire_owned() else {
                    metrics::SHED.inc();
                    continue;
                };
                let answering = residents.clone();
                residents.inner.tasks.spawn(async move {
                    answering.answer(incoming, answers).await;
                    drop(permit);
                });
            }
        });
        Ok(())
    }

    async fn answer(&self, incoming: Incoming, answers: fn(&What) -> bool) {
        let said = match hearth_types::from_own_json::<Question>(&incoming.payload) {
            Ok(question) if !answers(&question.what) => Said::Failed(Failure::NotFound),
            Ok(question) => self.said(question).await.unwrap_or_else(|error| Said::Failed(error.into())),
            Err(error) => Said::Failed(Failure::Unavailable { reason: format!("not understood: {error}") }),
        };
        if let Ok(bytes) = serde_json::to_vec(&said) {
            // The asking side may have given up; it asks again.
            incoming.answer.send(Bytes::from(bytes)).ok();
        }
    }

    async fn said(&self, question: Question) -> Result<Said, Error> {
        let Question { run_id, place, what } = question;
        if let What::Drain = what {
            return Ok(Said::Draining(Box::new(self.begin_drain().await)));
        }
        if let What::Create { spec, turn_id, prompt } = what {
            return Ok(match self.create_here(*spec, turn_id, prompt).await? {
                Created::New => Said::Created { new: true },
                Created::Existing(_) => Said::Created { new: false },
            });
        }
        let here = self.is_active(&run_id);
        match what {
            What::Owned => Ok(Said::Owned(here)),
            What::State => Ok(Said::State(self.inner.journal.head(&run_id).await?.map(|head| head.state))),
            What::Turn(_) | What::TurnSoon(_) if !here && !place => Ok(Said::Failed(Failure::NotHere)),
            What::Turn(ref turn_id) | What::TurnSoon(ref turn_id) => {
                if !here {
                    self.wake(&run_id).await?;
                }
                if matches!(what, What::TurnSoon(_))
                    && let Some(envelope) = self.ends_soon(&run_id, turn_id).await
                {
                    return Ok(Said::Turn(Some(envelope)));
                }
                // What is to be looked up in the journal the asking side does, however long that takes.
                Ok(Said::Turn(self.turn_in_memory(&run_id, turn_id).await))
            }
            What::Command(_) | What::CommandAndTurn { .. } if !here && !place => Ok(Said::Failed(Failure::NotHere)),
            What::Command(command) => {
                Ok(Said::Reply(self.command_to(&run_id, &command, place, Duration::ZERO).await?.0))
            }
            What::CommandAndTurn { command, soon_ms } => {
                let soon = Duration::from_millis(soon_ms).min(SOON);
                Ok(match self.command_to(&run_id, &command, place, soon).await? {
                    (reply, Some(ended)) => Said::ReplyAndTurn(reply, ended),
                    (reply, None) => Said::Reply(reply),
                })
            }
            What::Create { .. } | What::Drain => Err(Error::Gone),
        }
    }
}
