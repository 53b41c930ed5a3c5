//! Looking at runs and waiting for them. Waiting holds nothing: a lost event or a new owner costs a
//! repeat of the question, never the answer.

use std::time::Duration;

use hearth_bus::{Subject, Subscription};
use hearth_run_core::{Event, Frame, HeadBody, Run};
use hearth_types::{Envelope, ReplicaId, RunId, RunState, TurnId};
use tokio::sync::oneshot;

use crate::actor::Message;
use crate::commands::Place;
use crate::live::LiveItem;
use crate::log::read_run;
use crate::remote::{Failure, NoAnswer, Question, Said, What};
use crate::residents::{REPLACED, Residents};
use crate::slots::Handle;
use crate::{Error, history};

/// Without a word from the owner for this long, it is asked again.
const SILENCE: Duration = Duration::from_secs(1);
/// How long another replica's question waits for the end of a turn.
pub(crate) const SOON: Duration = Duration::from_millis(100);
/// How often who waits for an activation here makes sure that it is the newest. One that was
/// superseded may never hear of it, and could be waited for without end. It stays in memory for so long.
const RECHECK: Duration = Duration::from_secs(10);

impl Residents {
    /// The run's state and, where it is active here, the live text of its step. Activates nothing.
    pub async fn look(&self, run_id: &RunId) -> Result<(Box<Run>, String), Error> {
        if self.inner.trusts_itself()
            && let Some(handle) = self.inner.slots.get(run_id)
        {
            let (reply, answer) = oneshot::channel();
            if handle.actor.cast(Message::Look { reply }).is_ok()
                && let Ok(seen) = answer.await
            {
                return Ok(seen);
            }
        }
        let folded = read_run(&*self.inner.journal, run_id).await?.ok_or(Error::NotFound)?;
        Ok((Box::new(folded.run), String::new()))
    }

    /// The replica that has the run's activation: this one, or the one that `last` names if it is live.
    /// A hint for lists, as old as the row that it came with.
    pub fn owner(&self, run_id: &RunId, last: Option<&ReplicaId>) -> Option<ReplicaId> {
        if self.is_active(run_id) {
            return Some(self.replica().clone());
        }
        last.filter(|owner| *owner != self.replica() && self.inner.peers.is_live(owner)).cloned()
    }

    /// The replica that has the run's activation, as the registry knows.
    pub async fn locate(&self, run_id: &RunId) -> Option<ReplicaId> {
        if self.is_active(run_id) {
            return Some(self.replica().clone());
        }
        let location = self.inner.registry.locate(run_id).await.ok().flatten()?;
        let others = &location.replica != self.replica();
        (others && self.is_live_now(&location.replica).await).then_some(location.replica)
    }

    /// The envelope of a turn as it stands now, with the live text of its step wherever that runs.
    /// `NotFound`: the run knows no such turn.
    pub async fn turn(&self, run_id: &RunId, turn_id: &TurnId) -> Result<Envelope, Error> {
        if let Place::There { replica, place: false } = self.place(run_id).await {
            let question = Question { run_id: run_id.clone(), place: false, what: What::Turn(turn_id.clone()) };
            if let Ok(Said::Turn(Some(envelope))) = self.question(&replica, &question).await {
                return Ok(envelope);
            }
        }
        self.turn_here(run_id, turn_id).await
    }

    async fn turn_here(&self, run_id: &RunId, turn_id: &TurnId) -> Result<Envelope, Error> {
        match self.turn_in_memory(run_id, turn_id).await {
            Some(envelope) => Ok(envelope),
            None => self.turn_in_journal(run_id, turn_id).await,
        }
    }

    /// The turn as an activation here knows it: one that goes on, or one of the last that ended.
    pub(crate) async fn turn_in_memory(&self, run_id: &RunId, turn_id: &TurnId) -> Option<Envelope> {
        let handle = self.inner.slots.get(run_id).filter(|_| self.inner.trusts_itself())?;
        let ask = |reply| Message::Turn { turn_id: turn_id.clone(), reply };
        self.wait_here(run_id, &handle, ask).await.flatten()
    }

    /// The turn as the journal tells it. An activation here may have been superseded without knowing
    /// it, and then knows nothing of the turns since.
    pub async fn turn_in_journal(&self, run_id: &RunId, turn_id: &TurnId) -> Result<Envelope, Error> {
        let journal = &*self.inner.journal;
        let folded = read_run(journal, run_id).await?.ok_or(Error::NotFound)?;
        match folded.run.envelope(turn_id, "") {
            Some(envelope) => Ok(envelope),
            None => history::ended_turn(journal, &folded.run, turn_id).await?.ok_or(Error::NotFound),
        }
    }

    /// Waits until a turn has ended; it survives any number of take-overs.
    pub async fn await_turn(&self, run_id: &RunId, turn_id: &TurnId) -> Result<Envelope, Error> {
        let mut asked = false;
        loop {
            if self.inner.over.is_cancelled() {
                return Err(Error::Draining);
            }
            match self.place(run_id).await {
                Place::Here => {
                    if self.inner.slots.get(run_id).is_none() {
                        let envelope = self.turn_here(run_id, turn_id).await?;
                        if envelope.outcome.is_some() {
                            return Ok(envelope);
                        }
                    }
                    let Some(handle) = self.unless_lost(self.activation(run_id).await).await? else { continue };
                    let ask = |reply| Message::AwaitTurn { turn_id: turn_id.clone(), reply };
                    match self.wait_here(run_id, &handle, ask).await {
                        Some(Some(envelope)) => return Ok(envelope),
                        Some(None) => {
                            let envelope = self.turn_in_journal(run_id, turn_id).await?;
                            if envelope.outcome.is_some() {
                                return Ok(envelope);
                            }
                            // Only an activation that was superseded does not know a turn that goes on.
                            handle.actor.cast(Message::Superseded).ok();
                            tokio::time::sleep(REPLACED).await;
                        }
                        None => {}
                    }
                }
                Place::There { replica, place } => {
                    // Before the question, so that an end after its answer is heard: by then many more may have ended.
                    let mut events = self.watch(run_id).await;
                    let again = std::mem::replace(&mut asked, true);
                    let what = if again { What::Turn(turn_id.clone()) } else { What::TurnSoon(turn_id.clone()) };
                    let question = Question { run_id: run_id.clone(), place, what };
                    match self.question(&replica, &question).await {
                        Ok(Said::Turn(Some(envelope))) if envelope.outcome.is_some() => return Ok(envelope),
                        Ok(Said::Turn(Some(running))) => {
                            let ended = |frame| history::ended_by(frame, turn_id, &running);
                            if let Some(envelope) = heard(events.as_mut(), ended).await {
                                return Ok(envelope);
                            }
                        }
                        Ok(Said::Failed(Failure::NotHere)) => {
                            let envelope = self.turn_here(run_id, turn_id).await?;
                            if envelope.outcome.is_some() {
                                return Ok(envelope);
                            }
                            self.unless_lost(self.wake(run_id).await).await?;
                        }
                        // It does not know the turn any more, or what it has to say does not fit the bus: it is in
                        // the journal, or will be.
                        Ok(Said::Turn(None)) | Err(NoAnswer::TooLarge) => {
                            let envelope = self.turn_in_journal(run_id, turn_id).await?;
                            if envelope.outcome.is_some() {
                                return Ok(envelope);
                            }
                            self.pause().await;
                        }
                        _ => self.pause().await,
                    }
                }
            }
        }
    }

    /// Waits until a run is final and nothing lives below it: its state, and how many descendants its
    /// close has closed.
    pub async fn await_end(&self, run_id: &RunId) -> Result<(RunState, u64), Error> {
        loop {
            if self.inner.over.is_cancelled() {
                return Err(Error::Draining);
            }
            let mut events = match self.place(run_id).await {
                Place::Here => None,
                Place::There { .. } => self.watch(run_id).await,
            };
            let (run, _) = self.look(run_id).await?;
            if run.is_down() {
                return Ok((run.state, run.closed_descendants));
            }
            if events.is_some() {
                let ends = |event: &Event| {
                    matches!(event, Event::TurnEnded { state, .. } if state.is_final())
                        || matches!(event, Event::Closed | Event::ChildEnded { .. } | Event::ChildRefused { .. })
                };
                heard(events.as_mut(), |frame| frame.events.iter().any(ends).then_some(())).await;
                continue;
            }
            let Some(handle) = self.unless_lost(self.activation(run_id).await).await? else { continue };
            if let Some(end) = self.wait_here(run_id, &handle, |reply| Message::AwaitEnd { reply }).await {
                return Ok(end);
            }
        }
    }

    /// `None` for an activation that another replica was faster to begin: that one is asked next.
    async fn unless_lost<T>(&self, begun: Result<T, Error>) -> Result<Option<T>, Error> {
        match begun {
            Err(error) if error.moved() => {
                self.pause().await;
                Ok(None)
            }
            begun => begun.map(Some),
        }
    }

    /// The envelope of a turn that ends here within a moment, [`SOON`] at the most.
    pub(crate) async fn ends_soon(&self, run_id: &RunId, turn_id: &TurnId) -> Option<Envelope> {
        let handle = self.inner.slots.get(run_id).filter(|_| self.inner.trusts_itself())?;
        let ask = |reply| Message::AwaitTurn { turn_id: turn_id.clone(), reply };
        let waiting = self.wait_here(run_id, &handle, ask);
        tokio::time::timeout(SOON, waiting).await.ok().flatten().flatten()
    }

    /// Asks an activation here and waits for its answer; `None` when it ended first.
    async fn wait_here<T>(
        &self,
        run_id: &RunId,
        handle: &Handle,
        ask: impl FnOnce(oneshot::Sender<T>) -> Message,
    ) -> Option<T> {
        let (reply, mut answer) = oneshot::channel();
        if handle.actor.cast(ask(reply)).is_ok() {
            loop {
                match tokio::time::timeout(RECHECK, &mut answer).await {
                    Ok(Ok(answer)) => return Some(answer),
                    Ok(Err(_)) => break,
                    Err(_) => self.end_if_superseded(run_id, handle).await,
                }
            }
        }
        self.forget_if_stopped(handle);
        tokio::time::sleep(REPLACED).await;
        None
    }

    /// Ends an activation here of which the index shows a newer one.
    pub(crate) async fn end_if_superseded(&self, run_id: &RunId, handle: &Handle) {
        // What cannot be found out now is met at the fence.
        let Ok(Some(head)) = self.inner.journal.head(run_id).await else { return };
        let body: HeadBody = head.body.read().unwrap_or_else(|_| HeadBody::unowned());
        if body.epoch > handle.epoch {
            // One that has ended meanwhile needs no telling.
            handle.actor.cast(Message::Superseded).ok();
        }
    }

    async fn watch(&self, run_id: &RunId) -> Option<Subscription> {
        self.inner.bus.subscribe(&Subject::RunEvents(run_id.clone())).await.ok()
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.refresh_peers().await;
    }
}

/// What is wanted of a frame, once one that has it was heard; nothing after a silence, when the question is asked again.
async fn heard<T>(events: Option<&mut Subscription>, wanted: impl Fn(Frame) -> Option<T>) -> Option<T> {
    let Some(events) = events else {
        tokio::time::sleep(SILENCE).await;
        return None;
    };
    let listening = async {
        while let Some(bytes) = events.messages.recv().await {
            if let Some(LiveItem::Frame(frame)) = LiveItem::decode(&bytes)
                && let Some(found) = wanted(frame)
            {
                return Some(found);
            }
        }
        None
    };
    tokio::time::timeout(SILENCE, listening).await.ok().flatten()
}
