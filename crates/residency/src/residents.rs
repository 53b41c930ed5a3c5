//! The residents of one replica: commands in, answers out, wherever the activation is.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hearth_bus::SharedBus;
use hearth_engine::Engine;
use hearth_journal::{Position, SharedJournal};
use hearth_registry::{Location, SharedRegistry};
use hearth_run_core::{Accept, Cancel, Close, Command, Event, OpenChild, Reply, Run, RunSpec, create, decide};
use hearth_sandbox::SharedSandboxes;
use hearth_types::{Envelope, Epoch, ReplicaId, RunId, RunState, Seq, SharedClock, Timestamp, TurnId};
use ractor::{Actor, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use crate::actor::{Message, ResidentActor, Start};
use crate::log::{Log, head, read_run};
use crate::slots::{ADMISSION, Handle, Slot, Slots};
use crate::supervisor::Supervisor;
use crate::{Error, history, metrics};

/// Lookups of an activation that keeps ending before it answers.
const LOOKUPS: usize = 5;

#[derive(Debug, Clone)]
pub struct Options {
    pub replica: ReplicaId,
    /// A parked activation leaves memory after this time.
    pub passivate_after: Duration,
    /// How often due times, sleepers and passivation are looked at.
    pub sweep_every: Duration,
    /// The replica's lease in the registry.
    pub lease: Duration,
    pub url: Option<String>,
}

/// What residency stands on.
pub struct Deps {
    pub journal: SharedJournal,
    pub registry: SharedRegistry,
    pub bus: SharedBus,
    pub sandboxes: SharedSandboxes,
    pub clock: SharedClock,
}

pub(crate) struct Inner {
    pub options: Options,
    pub journal: SharedJournal,
    pub registry: SharedRegistry,
    pub bus: SharedBus,
    pub sandboxes: SharedSandboxes,
    pub clock: SharedClock,
    pub slots: Slots,
    /// What effects have started; waited for at the end.
    pub tasks: TaskTracker,
    pub draining: AtomicBool,
    pub started_at: Timestamp,
    pub supervisor: OnceLock<ActorRef<()>>,
    engine: OnceLock<Engine>,
}

impl Inner {
    /// The engine. Its tools lead back here, so it is set once both stand.
    #[allow(clippy::expect_used, reason = "set by `Residents::start` before anything is activated")]
    pub fn engine(&self) -> &Engine {
        self.engine.get().expect("the engine is set at the start")
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Residents {
    pub(crate) inner: Arc<Inner>,
}

pub enum Created {
    New,
    /// The id is taken; the caller sees by whom.
    Existing(Box<Run>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub turn_id: TurnId,
    pub queued: bool,
    pub replayed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    pub turn_id: Option<TurnId>,
    pub stopped: bool,
    pub replayed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    pub turn_id: TurnId,
    /// The child was there already.
    pub existed: bool,
}

impl Residents {
    pub fn new(options: Options, deps: Deps) -> Self {
        let started_at = deps.clock.now();
        let inner = Inner {
            options,
            journal: deps.journal,
            registry: deps.registry,
            bus: deps.bus,
            sandboxes: deps.sandboxes,
            clock: deps.clock,
            slots: Slots::default(),
            tasks: TaskTracker::new(),
            draining: AtomicBool::new(false),
            started_at,
            supervisor: OnceLock::new(),
            engine: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// Begins to serve: takes up the runs that need an owner, and sweeps from then on.
    pub async fn start(&self, engine: Engine) -> Result<(), Error> {
        self.inner.engine.set(engine).ok();
        let weak = Arc::downgrade(&self.inner);
        let (supervisor, _) = Actor::spawn(None, Supervisor, weak).await.map_err(|_| Error::Gone)?;
        self.inner.supervisor.set(supervisor).ok();
        self.inner.journal.ready().await?;
        crate::sweep::start(self);
        Ok(())
    }

    pub fn replica(&self) -> &ReplicaId {
        &self.inner.options.replica
    }

    pub fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Relaxed)
    }

    pub fn is_active(&self, run_id: &RunId) -> bool {
        self.inner.slots.get(run_id).is_some()
    }

    // ---- commands -------------------------------------------------------------------------------

    /// Begins a run with its first turn.
    pub async fn create(&self, spec: RunSpec, turn_id: TurnId, prompt: String) -> Result<Created, Error> {
        let started = tokio::time::Instant::now();
        let events = create(spec.clone(), turn_id, prompt, self.replica().clone());
        let created = self.begin(&spec.run_id, events).await?;
        metrics::OPEN_SECONDS.observe(started.elapsed().as_secs_f64());
        Ok(created)
    }

    /// Begins a run that has ended already: its id can never be used.
    pub async fn create_closed(&self, spec: RunSpec) -> Result<Created, Error> {
        let run_id = spec.run_id.clone();
        self.begin(&run_id, vec![Event::Created { spec: Box::new(spec) }, Event::Closed]).await
    }

    async fn begin(&self, run_id: &RunId, events: Vec<Event>) -> Result<Created, Error> {
        if self.is_draining() {
            return Err(Error::Draining);
        }
        let slot = self.inner.slots.slot(run_id);
        let mut new = false;
        let filled = slot
            .0
            .get_or_try_init(|| async {
                let (run, log) = self.first_frame(run_id, events).await?;
                new = true;
                self.spawn(run, log).await
            })
            .await
            .map(|_| ());
        match filled {
            Ok(()) if new => Ok(Created::New),
            Ok(()) => Ok(Created::Existing(self.look(run_id).await?.0)),
            Err(Error::Journal(hearth_journal::Error::Fenced { .. })) => {
                self.inner.slots.remove(run_id, &slot);
                Ok(Created::Existing(self.look(run_id).await?.0))
            }
            Err(error) => {
                self.inner.slots.remove(run_id, &slot);
                Err(error)
            }
        }
    }

    async fn first_frame(&self, run_id: &RunId, events: Vec<Event>) -> Result<(Run, Log), Error> {
        let inner = &self.inner;
        let mut log = Log::new(inner.journal.clone(), inner.clock.clone(), run_id.clone(), Epoch(1), Position(0));
        let frame = log.frame(Seq(1), events);
        let mut run = None;
        Run::fold(&mut run, frame.clone()).map_err(|source| Error::Fold { run: run_id.to_string(), source })?;
        let Some(run) = run else { return Err(Error::NotFound) };
        log.append(&frame, head(&run)).await?;
        Ok((run, log))
    }

    /// Accepts an input.
    pub async fn accept(&self, run_id: &RunId, accept: Accept) -> Result<Accepted, Error> {
        let started = tokio::time::Instant::now();
        match self.command(run_id, Command::Accept(accept)).await? {
            Reply::Accepted { turn_id, queued, replayed } => {
                metrics::ACCEPT_SECONDS.observe(started.elapsed().as_secs_f64());
                Ok(Accepted { turn_id, queued, replayed })
            }
            _ => Err(Error::Gone),
        }
    }

    pub async fn cancel(&self, run_id: &RunId, cancel: Cancel) -> Result<Cancelled, Error> {
        match self.command(run_id, Command::Cancel(cancel)).await? {
            Reply::Cancelled { turn_id, stopped, replayed } => Ok(Cancelled { turn_id, stopped, replayed }),
            _ => Err(Error::Gone),
        }
    }

    /// Closes a run with its subtree: whether this call began it, and whether it is a replay.
    pub async fn close(&self, run_id: &RunId, close: Close) -> Result<(bool, bool), Error> {
        match self.command(run_id, Command::Close(close)).await? {
            Reply::Closing { initiated, replayed } => Ok((initiated, replayed)),
            _ => Err(Error::Gone),
        }
    }

    pub(crate) async fn close_and_wait(&self, run_id: &RunId, close: Close) -> Result<(RunState, u64), Error> {
        self.close(run_id, close).await?;
        self.await_end(run_id).await
    }

    /// Opens a child: the parent decides, then the child is created, then this answers.
    pub async fn open_child(&self, parent: &RunId, open: OpenChild) -> Result<Opened, Error> {
        let ask = |handle: &Handle, permit, reply| {
            let message = Message::OpenChild { open: Box::new(open.clone()), reply, permit: Some(permit) };
            handle.actor.cast(message).is_ok()
        };
        match self.ask(parent, ask).await? {
            Reply::ChildOpened { turn_id, existed } => Ok(Opened { turn_id, existed }),
            _ => Err(Error::Gone),
        }
    }

    /// Looks at the children that count as live and tells the parent of those that have ended: how
    /// many. An end is announced by the child's own activation; one that died first left it unsaid.
    pub async fn refresh_children(&self, parent: &RunId) -> Result<usize, Error> {
        let (run, _) = self.look(parent).await?;
        let mut ended = 0;
        for (child_run_id, _) in run.live_children() {
            let Ok((child, _)) = self.look(child_run_id).await else { continue };
            if child.state.is_final() {
                let end = hearth_run_core::ChildEnd {
                    child_run_id: child_run_id.clone(),
                    state: child.state,
                    closed_descendants: child.closed_descendants,
                };
                self.tell(parent, Command::ChildEnded(end)).await?;
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// A command whose answer says nothing more.
    pub(crate) async fn tell(&self, run_id: &RunId, command: Command) -> Result<(), Error> {
        self.command(run_id, command).await.map(|_| ())
    }

    async fn command(&self, run_id: &RunId, command: Command) -> Result<Reply, Error> {
        // What a parked or ended run would refuse or answer without a change needs no activation.
        if self.inner.slots.get(run_id).is_none()
            && let Some((run, _)) = read_run(&*self.inner.journal, run_id).await?
            && run.state.is_final()
        {
            match decide(&run, &command, self.inner.clock.now()) {
                Ok(decision) if decision.events.is_empty() && decision.effects.is_empty() => return Ok(decision.reply),
                Err(refusal) => return Err(refusal.into()),
                Ok(_) => {}
            }
        }
        let ask = |handle: &Handle, permit, reply| {
            let message = Message::Command { command: Box::new(command.clone()), reply, permit: Some(permit) };
            handle.actor.cast(message).is_ok()
        };
        self.ask(run_id, ask).await
    }

    /// Sends to the run's activation, activating it if need be. A message that met an activation
    /// which ended without taking it is sent again; one that was taken and not answered is not.
    async fn ask<T>(
        &self,
        run_id: &RunId,
        send: impl Fn(&Handle, OwnedSemaphorePermit, oneshot::Sender<Result<T, Error>>) -> bool,
    ) -> Result<T, Error> {
        for _ in 0..LOOKUPS {
            let handle = self.activation(run_id).await?;
            let permit = handle.admission.clone().try_acquire_owned().map_err(|_| {
                metrics::SHED.inc();
                Error::Busy { limit: ADMISSION }
            })?;
            let (reply, answer) = oneshot::channel();
            if send(&handle, permit, reply) {
                match answer.await {
                    Ok(result) => return result,
                    Err(_) if self.is_draining() => return Err(Error::Draining),
                    // The actor stopped with the message in its mailbox or while it carried it out.
                    // Every command can be repeated: it is recorded by its key or its ids, or has no
                    // second effect.
                    Err(_) => {}
                }
            }
            self.inner.slots.remove_actor(handle.actor.get_id());
        }
        Err(Error::Gone)
    }

    // ---- activation -----------------------------------------------------------------------------

    async fn activation(&self, run_id: &RunId) -> Result<Handle, Error> {
        let slot = self.inner.slots.slot(run_id);
        let filled = slot.0.get_or_try_init(|| self.activate(run_id)).await.cloned();
        if filled.is_err() {
            self.inner.slots.remove(run_id, &slot);
        }
        filled
    }

    /// Reads the journal and takes the run over: its first act is an append that fences all others.
    async fn activate(&self, run_id: &RunId) -> Result<Handle, Error> {
        if self.is_draining() {
            return Err(Error::Draining);
        }
        let started = tokio::time::Instant::now();
        let inner = &self.inner;
        let activated = async {
            let Some((mut run, position)) = read_run(&*inner.journal, run_id).await? else {
                return Err(Error::NotFound);
            };
            let activate = Command::Activate { replica: self.replica().clone() };
            let decision = decide(&run, &activate, inner.clock.now())?;
            let epoch = run.epoch.next();
            let mut log = Log::new(inner.journal.clone(), inner.clock.clone(), run_id.clone(), epoch, position);
            let frame = log.frame(run.seq.next(), decision.events);
            for recorded in frame.clone().recorded() {
                run.apply(&recorded);
            }
            log.append(&frame, head(&run)).await?;
            self.spawn(run, log).await
        };
        let handle = activated.await.inspect_err(|error| {
            if !matches!(error, Error::NotFound | Error::Draining) {
                metrics::ACTIVATION_FAILURES.inc();
            }
        })?;
        metrics::ACTIVATE_SECONDS.observe(started.elapsed().as_secs_f64());
        Ok(handle)
    }

    async fn spawn(&self, run: Run, log: Log) -> Result<Handle, Error> {
        let inner = &self.inner;
        let supervisor = inner.supervisor.get().ok_or(Error::Gone)?;
        let parked = Arc::new(AtomicI64::new(-1));
        let run_id = run.spec.run_id.clone();
        let location = Location { replica: self.replica().clone(), epoch: run.epoch };
        let start = Box::new(Start { inner: inner.clone(), run, log, parked: parked.clone() });
        let (actor, _) =
            Actor::spawn_linked(None, ResidentActor, start, supervisor.get_cell()).await.map_err(|_| Error::Gone)?;
        inner.slots.bind(actor.get_id(), run_id.clone());
        metrics::ACTIVE.inc();
        let registry = inner.registry.clone();
        inner.tasks.spawn(async move {
            if let Err(error) = registry.claim(&run_id, location).await {
                tracing::debug!(%error, "a location was not registered; lookups go through the journal");
            }
        });
        Ok(Handle { actor, admission: Arc::new(Semaphore::new(ADMISSION)), parked })
    }

    /// Takes a run up if it needs an owner.
    pub(crate) async fn wake(&self, run_id: &RunId) -> Result<(), Error> {
        if !self.is_active(run_id) {
            self.activation(run_id).await?;
        }
        Ok(())
    }

    pub(crate) async fn tick(&self, run_id: &RunId) -> Result<(), Error> {
        self.tell(run_id, Command::Tick { partial: String::new() }).await
    }

    // ---- reading and waiting ----------------------------------------------------------------------

    /// The run's state and the live text of its step. Activates nothing.
    pub async fn look(&self, run_id: &RunId) -> Result<(Box<Run>, String), Error> {
        if let Some(handle) = self.inner.slots.get(run_id) {
            let (reply, answer) = oneshot::channel();
            if handle.actor.cast(Message::Look { reply }).is_ok()
                && let Ok(seen) = answer.await
            {
                return Ok(seen);
            }
        }
        let (run, _) = read_run(&*self.inner.journal, run_id).await?.ok_or(Error::NotFound)?;
        Ok((Box::new(run), String::new()))
    }

    /// The envelope of a turn as it stands now. `NotFound`: the run knows no such turn.
    pub async fn turn(&self, run_id: &RunId, turn_id: &TurnId) -> Result<Envelope, Error> {
        let (run, live) = self.look(run_id).await?;
        if let Some(envelope) = run.envelope(turn_id, &live) {
            return Ok(envelope);
        }
        history::ended_turn(&*self.inner.journal, run_id, turn_id).await?.ok_or(Error::NotFound)
    }

    /// Waits until a turn has ended; it survives any number of take-overs.
    pub async fn await_turn(&self, run_id: &RunId, turn_id: &TurnId) -> Result<Envelope, Error> {
        loop {
            let envelope = self.turn(run_id, turn_id).await?;
            if envelope.outcome.is_some() {
                return Ok(envelope);
            }
            let handle = self.activation(run_id).await?;
            let (reply, answer) = oneshot::channel();
            if handle.actor.cast(Message::AwaitTurn { turn_id: turn_id.clone(), reply }).is_ok() {
                match answer.await {
                    Ok(Some(envelope)) => return Ok(envelope),
                    Ok(None) => continue,
                    Err(_) if self.is_draining() => return Err(Error::Draining),
                    Err(_) => {}
                }
            }
            self.inner.slots.remove_actor(handle.actor.get_id());
        }
    }

    /// Waits until a run is final: its state, and how many descendants its close has closed.
    pub async fn await_end(&self, run_id: &RunId) -> Result<(RunState, u64), Error> {
        loop {
            let (run, _) = self.look(run_id).await?;
            if run.state.is_final() {
                return Ok((run.state, run.closed_descendants));
            }
            let handle = self.activation(run_id).await?;
            let (reply, answer) = oneshot::channel();
            if handle.actor.cast(Message::AwaitEnd { reply }).is_ok() {
                match answer.await {
                    Ok(end) => return Ok(end),
                    Err(_) if self.is_draining() => return Err(Error::Draining),
                    Err(_) => {}
                }
            }
            self.inner.slots.remove_actor(handle.actor.get_id());
        }
    }
}

/// A slot that was never filled needs no owner.
impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("filled", &self.0.initialized()).finish()
    }
}
