//! The actor of one activation: it decides, appends, then acts and answers, one command at a time.
//! It never waits for a turn, a child or a sandbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hearth_bus::Subject;
use hearth_engine::{LiveOutput, Stopped, ToolAck};
use hearth_journal::Position;
use hearth_run_core::{Command, Decision, Event, Reply, Run, StepReport, ToolReport, pending_effects};
use hearth_types::{Envelope, RunState, TurnId};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::live::LiveItem;
use crate::log::{Log, head};
use crate::missed::Missed;
use crate::residents::{Inner, Residents};
use crate::{Error, effects, folding, metrics};

/// Callers that wait for a turn of one run at the most.
const MAX_WAITERS: usize = 4_096;

pub(crate) enum Message {
    /// A command from outside or from an effect. The permit bounds how many wait.
    Command {
        command: Box<Command>,
        reply: oneshot::Sender<Result<Reply, Error>>,
        permit: Option<OwnedSemaphorePermit>,
        /// Told when the turn has ended that the command was accepted for, as by [`Message::AwaitTurn`].
        ended: Option<oneshot::Sender<Option<Envelope>>>,
        /// When, for how long it took until it was accepted.
        asked: Instant,
    },
    /// Answered when the child's journal has begun, or cannot begin.
    OpenChild {
        open: Box<hearth_run_core::OpenChild>,
        reply: oneshot::Sender<Result<Reply, Error>>,
        permit: Option<OwnedSemaphorePermit>,
    },
    Step {
        report: Box<StepReport>,
        reply: oneshot::Sender<Result<bool, Stopped>>,
    },
    Tool {
        report: Box<ToolReport>,
        reply: oneshot::Sender<Result<ToolAck, Stopped>>,
    },
    /// A copy of the state, and the live text.
    Look {
        reply: oneshot::Sender<(Box<Run>, String)>,
    },
    /// The turn's envelope as it stands; `None` when the state does not hold it.
    Turn {
        turn_id: TurnId,
        reply: oneshot::Sender<Option<Envelope>>,
    },
    /// Answered when the turn has ended; at once with `None` when the state does not hold it.
    AwaitTurn {
        turn_id: TurnId,
        reply: oneshot::Sender<Option<Envelope>>,
    },
    /// Answered when the run is final and nothing lives below it.
    AwaitEnd {
        reply: oneshot::Sender<(RunState, u64)>,
    },
    /// The run's history holds what the frames before this snapshot said.
    Folded {
        floor: Position,
    },
    /// Ends the activation: the journal shows a newer one.
    Superseded,
    /// Ends the activation if the run is parked and nobody waits.
    Passivate,
    /// Hands the run over at the next boundary; at once when forced.
    Drain {
        force: bool,
    },
}

pub(crate) struct Start {
    pub inner: Arc<Inner>,
    pub run: Run,
    pub log: Log,
    pub parked: Arc<AtomicI64>,
}

/// The task that drives the running turn.
pub(crate) type Driver = JoinHandle<Option<Result<(), Stopped>>>;

pub(crate) struct State {
    pub inner: Arc<Inner>,
    pub run: Run,
    log: Log,
    pub live: LiveOutput,
    pub driver: Option<(TurnId, Driver)>,
    turn_waiters: Vec<(TurnId, oneshot::Sender<Option<Envelope>>)>,
    missed: Missed,
    end_waiters: Vec<oneshot::Sender<(RunState, u64)>>,
    parked: Arc<AtomicI64>,
    draining: bool,
    /// The next frame raises the journal's floor, and then frames can be removed.
    trims: bool,
    /// The activation is over: what it holds may not be what the journal holds.
    over: bool,
}

pub(crate) struct ResidentActor;

#[ractor::async_trait]
impl Actor for ResidentActor {
    type Msg = Message;
    type State = State;
    type Arguments = Box<Start>;

    async fn pre_start(&self, myself: ActorRef<Message>, start: Box<Start>) -> Result<State, ActorProcessingErr> {
        let mut state = State {
            inner: start.inner,
            run: start.run,
            log: start.log,
            live: LiveOutput::default(),
            driver: None,
            turn_waiters: Vec::new(),
            missed: Missed::default(),
            end_waiters: Vec::new(),
            parked: start.parked,
            draining: false,
            trims: false,
            over: false,
        };
        let under_way = pending_effects(&state.run);
        effects::perform(&mut state, &myself, under_way);
        state.note_parked();
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Command { command, reply, permit, ended, asked } => {
                let result = state.carry_out(&myself, *command).await;
                drop(permit);
                if let Ok(Reply::Accepted { turn_id, .. }) = &result {
                    metrics::ACCEPT_SECONDS.observe(asked.elapsed().as_secs_f64());
                    if let Some(ended) = ended {
                        state.await_turn(turn_id.clone(), ended);
                    }
                }
                // Whoever asked may be gone; what was decided stands.
                reply.send(result).ok();
            }
            Message::OpenChild { open, reply, permit } => {
                let child = open.spec.run_id.clone();
                let result = state.carry_out(&myself, Command::OpenChild(open)).await;
                drop(permit);
                effects::answer_open(state, &myself, &child, result, reply);
            }
            Message::Step { report, reply } => {
                let turn_id = report.turn_id.clone();
                let result = state.carry_out(&myself, Command::StepFinished(*report)).await;
                let goes_on = state.run.current_turn(&turn_id).is_some() && state.run.closing.is_none();
                reply.send(result.map(|_| goes_on).map_err(|_| Stopped)).ok();
                state.hand_over_if_draining(&myself, true).await;
            }
            Message::Tool { report, reply } => {
                let (turn_id, call_id) = (report.turn_id.clone(), report.call_id.clone());
                let result = state.carry_out(&myself, Command::ToolFinished(*report)).await;
                let ack = result.map(|_| state.tool_ack(&turn_id, &call_id)).map_err(|_| Stopped);
                reply.send(ack).ok();
                state.hand_over_if_draining(&myself, true).await;
            }
            Message::Look { reply } => {
                reply.send((Box::new(state.run.clone()), state.live.text())).ok();
            }
            Message::Turn { turn_id, reply } => {
                reply.send(state.envelope(&turn_id, &state.live.text())).ok();
            }
            Message::AwaitTurn { turn_id, reply } => state.await_turn(turn_id, reply),
            Message::AwaitEnd { reply } => {
                if state.run.is_down() {
                    reply.send((state.run.state, state.run.closed_descendants)).ok();
                } else if state.end_waiters.len() < MAX_WAITERS {
                    state.end_waiters.push(reply);
                }
            }
            Message::Folded { floor } => {
                state.log.raise_floor(floor);
                state.trims = true;
            }
            Message::Superseded => state.end(&myself, "superseded"),
            Message::Passivate => {
                state.forget_gone_waiters();
                if state.idle() {
                    state.release(&myself).await;
                }
            }
            Message::Drain { force } => {
                state.draining = true;
                if force {
                    state.release(&myself).await;
                } else {
                    state.hand_over_if_draining(&myself, false).await;
                }
            }
        }
        Ok(())
    }

    async fn post_stop(&self, _myself: ActorRef<Message>, state: &mut State) -> Result<(), ActorProcessingErr> {
        state.stop_driver();
        Ok(())
    }
}

impl State {
    /// Decides, appends, acts. After an append that failed the activation is over: what it holds may
    /// not be what the journal holds.
    async fn carry_out(&mut self, myself: &ActorRef<Message>, mut command: Command) -> Result<Reply, Error> {
        if self.over {
            return Err(Error::Gone);
        }
        match &mut command {
            Command::Cancel(cancel) => cancel.partial = self.live.text(),
            Command::Close(close) => close.partial = self.live.text(),
            Command::Tick { partial } => *partial = self.live.text(),
            _ => {}
        }
        let Decision { events, effects, reply } = hearth_run_core::decide(&self.run, &command, self.inner.clock.now())?;
        if !events.is_empty()
            && let Err(error) = self.commit(events).await
        {
            self.step_down(myself, &error);
            return Err(error);
        }
        effects::perform(self, myself, effects);
        self.note_parked();
        if self.run.wants_snapshot() {
            self.snapshot(myself).await;
        }
        Ok(reply)
    }

    /// A snapshot is a frame like any other, by the same fence.
    async fn snapshot(&mut self, myself: &ActorRef<Message>) {
        match self.commit(vec![self.log.snapshot_of(&self.run)]).await {
            Ok(()) => {
                metrics::SNAPSHOTS.inc();
                if let Some(mark) = self.log.foldable(self.run.seq, self.inner.options.keep_events) {
                    folding::extend_history(&self.inner, self.run.spec.run_id.clone(), mark, myself.clone());
                }
            }
            Err(error) => self.step_down(myself, &error),
        }
    }

    async fn commit(&mut self, events: Vec<Event>) -> Result<(), Error> {
        let frame = self.log.frame(self.run.seq.next(), events);
        let turn_ends = frame.events.iter().any(|event| matches!(event, Event::TurnEnded { .. }));
        let started_at = self.run.current.as_ref().map(|turn| turn.started_at);
        // Folded before it is appended, as the index row shows the state after it. Where the append
        // fails the activation ends, and this state with it.
        self.run.advance(&frame);
        let encoded = self.log.append(&frame, head(&self.run)).await?;
        if std::mem::take(&mut self.trims) {
            folding::trim(&self.inner, self.run.spec.run_id.clone());
        }
        if turn_ends && let (Some(started_at), Some(turn)) = (started_at, self.run.last_ended()) {
            metrics::TURN_SECONDS.observe(turn.ended_at.since(started_at).as_secs_f64());
            metrics::TURNS_ENDED.with_label_values(&[turn.outcome.as_str()]).inc();
        }
        if turn_ends {
            self.live = LiveOutput::default();
        }
        if self.run.state.is_final() {
            let spec = &self.run.spec;
            Residents::from_inner(self.inner.clone()).leave_seat(&spec.tenant, &spec.run_id);
        }
        self.publish(&encoded).await;
        self.answer_waiters();
        Ok(())
    }

    async fn publish(&self, frame: &[u8]) {
        let subject = Subject::RunEvents(self.run.spec.run_id.clone());
        if self.inner.bus.may_be_heard(&subject)
            && let Err(error) = self.inner.bus.publish(&subject, LiveItem::encode_frame(frame)).await
        {
            // Watchers meet the gap in the numbers and read the journal.
            tracing::debug!(%error, "an event was not published");
        }
    }

    fn step_down(&mut self, myself: &ActorRef<Message>, error: &Error) {
        let reason = match error {
            Error::Journal(hearth_journal::Error::Fenced { .. }) => "fenced",
            Error::Journal(_) => "journal",
            _ => "other",
        };
        tracing::warn!(run_id = %self.run.spec.run_id, epoch = %self.run.epoch, %error, "an activation steps down");
        self.end(myself, reason);
    }

    fn end(&mut self, myself: &ActorRef<Message>, reason: &str) {
        metrics::STEPPED_DOWN.with_label_values(&[reason]).inc();
        self.over = true;
        self.stop_driver();
        myself.stop(Some(reason.to_owned()));
    }

    fn tool_ack(&self, turn_id: &TurnId, call_id: &hearth_types::CallId) -> ToolAck {
        let step = self.run.current_turn(turn_id).and_then(|turn| turn.steps.last());
        let Some(step) = step else { return ToolAck::default() };
        let at = step.calls.iter().find(|record| &record.call.id == call_id).and_then(|record| record.result.as_ref());
        let done = step.calls.iter().all(|record| record.result.is_some());
        ToolAck {
            at: at.map(|(_, at)| *at).unwrap_or_default(),
            steered: if done { step.steered.clone() } else { Vec::new() },
        }
    }

    fn await_turn(&mut self, turn_id: TurnId, reply: oneshot::Sender<Option<Envelope>>) {
        match self.envelope(&turn_id, "") {
            Some(envelope) if envelope.outcome.is_none() => {
                self.forget_gone_waiters();
                // Past the bound the caller asks again, as after a take-over.
                if self.turn_waiters.len() < MAX_WAITERS {
                    self.turn_waiters.push((turn_id, reply));
                }
            }
            known => {
                reply.send(known).ok();
            }
        }
    }

    /// A turn that goes on, one of the last that ended, or one that somebody missed.
    fn envelope(&self, turn_id: &TurnId, live: &str) -> Option<Envelope> {
        self.run.envelope(turn_id, live).or_else(|| self.missed.find(turn_id, &self.run))
    }

    fn forget_gone_waiters(&mut self) {
        for (turn_id, _) in self.turn_waiters.extract_if(.., |(_, reply)| reply.is_closed()) {
            self.missed.left(turn_id);
        }
        self.end_waiters.retain(|reply| !reply.is_closed());
    }

    fn answer_waiters(&mut self) {
        let run = &self.run;
        let over = |turn_id: &TurnId| run.envelope(turn_id, "").is_none_or(|envelope| envelope.outcome.is_some());
        for (turn_id, reply) in self.turn_waiters.extract_if(.., |(turn_id, _)| over(turn_id)) {
            if reply.send(run.envelope(&turn_id, "")).is_err() {
                self.missed.left(turn_id);
            }
        }
        self.missed.keep(run);
        if run.is_down() {
            for reply in self.end_waiters.drain(..) {
                reply.send((run.state, run.closed_descendants)).ok();
            }
        }
    }

    fn idle(&self) -> bool {
        self.run.current.is_none()
            && self.run.closing.is_none()
            && !self.run.wakes()
            && self.turn_waiters.is_empty()
            && self.end_waiters.is_empty()
    }

    fn note_parked(&self) {
        let parked =
            if self.run.current.is_some() || self.run.wakes() { -1 } else { self.inner.clock.now().as_millis() };
        self.parked.store(parked, Ordering::Relaxed);
    }

    pub fn stop_driver(&mut self) {
        if let Some((_, driver)) = self.driver.take() {
            driver.abort();
            metrics::TURNS_RUNNING.dec();
        }
    }

    /// A turn that waits for a child or a sandbox can go on elsewhere at once; a model step is
    /// waited for, up to the drain's deadline. `at_boundary`: what was waited for has just come, and whatever follows it
    /// may as well begin elsewhere.
    async fn hand_over_if_draining(&mut self, myself: &ActorRef<Message>, at_boundary: bool) {
        let in_a_model_step = self.run.current.as_ref().is_some_and(|turn| turn.open_calls().next().is_none());
        if self.draining && !self.over && (at_boundary || !in_a_model_step) {
            self.release(myself).await;
        }
    }

    async fn release(&mut self, myself: &ActorRef<Message>) {
        self.stop_driver();
        if let Err(error) = self.carry_out(myself, Command::Release).await {
            tracing::warn!(%error, "a hand-over was not recorded; the run is taken over all the same");
        }
        myself.stop(Some("released".to_owned()));
    }
}
