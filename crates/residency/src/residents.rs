//! The residents of one replica: commands in, answers out, wherever the activation is.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hearth_bus::SharedBus;
use hearth_engine::Engine;
use hearth_journal::SharedJournal;
use hearth_registry::{Location, SharedRegistry};
use hearth_run_core::{Command, Event, Reply, Run, RunSpec, create, decide};
use hearth_sandbox::SharedSandboxes;
use hearth_types::{Envelope, Epoch, ReplicaId, RunId, Seq, SharedClock, Timestamp, TurnId};
use ractor::{Actor, ActorRef, ActorStatus};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::{Message, ResidentActor, Start};
use crate::log::{Log, Place, head, read_run};
use crate::peers::Peers;
use crate::quota::Quotas;
use crate::slots::{ADMISSION, Handle, Slot, Slots};
use crate::supervisor::Supervisor;
use crate::{Error, metrics};

/// Lookups of an activation that keeps ending before it answers.
const LOOKUPS: usize = 5;
/// Pause before an activation that did not answer is looked for again.
pub(crate) const REPLACED: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub struct Options {
    pub replica: ReplicaId,
    /// A parked activation leaves memory after this time.
    pub passivate_after: Duration,
    /// How often due times, sleepers and passivation are looked at.
    pub sweep_every: Duration,
    /// Events that stay in a run's journal at the least when snapshots make older ones superfluous.
    pub keep_events: u64,
    /// The replica's lease in the registry.
    pub lease: Duration,
    pub url: Option<String>,
    /// Runs of one tenant that are not final, over all replicas; 0: as many as it likes.
    pub max_runs_per_tenant: u64,
    /// Activations that this replica may have more than another before runs go there.
    pub placement_slack: u64,
}

/// Moving a run costs a hop at every call.
pub const PLACEMENT_SLACK: u64 = 64;

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
    pub peers: Peers,
    pub quotas: Quotas,
    /// What effects have started; waited for at the end.
    pub tasks: TaskTracker,
    pub draining: AtomicBool,
    /// Cancelled once this replica is to end, by whoever asked for it.
    pub asked_to_end: CancellationToken,
    /// Held by what folds a journal.
    pub folding: Semaphore,
    /// Cancelled once everything is handed over: ends what would go on for ever.
    pub over: CancellationToken,
    pub started_at: Timestamp,
    /// When this replica last knew that it works and that its activations are the newest.
    pub worked_at: Mutex<tokio::time::Instant>,
    /// A run id that nobody has: what a replica asks itself for.
    pub probe: RunId,
    pub supervisor: OnceLock<ActorRef<()>>,
    engine: OnceLock<Engine>,
    entropy: AtomicU64,
}

impl Inner {
    /// A number that spreads choices; it decides nothing that must be secret.
    pub fn entropy(&self) -> u64 {
        let mut x = self.entropy.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Whether this replica may count on its activations. One that stood still, or was cut off, may have lost them to
    /// others without knowing it.
    pub fn trusts_itself(&self) -> bool {
        let worked_at = *self.worked_at.lock().unwrap_or_else(PoisonError::into_inner);
        worked_at.elapsed() < self.options.lease * 2 / 3
    }

    /// Returns once this replica may begin something new outside.
    pub async fn trusted(&self) {
        while !self.trusts_itself() {
            tokio::time::sleep(REPLACED).await;
        }
    }

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
        let options_seed = started_at.as_millis().unsigned_abs() ^ seed_of(&options.replica);
        let inner = Inner {
            options,
            journal: deps.journal,
            registry: deps.registry,
            bus: deps.bus,
            sandboxes: deps.sandboxes,
            clock: deps.clock,
            slots: Slots::default(),
            peers: Peers::default(),
            quotas: Quotas::default(),
            tasks: TaskTracker::new(),
            draining: AtomicBool::new(false),
            asked_to_end: CancellationToken::new(),
            folding: Semaphore::new(crate::folding::AT_ONCE),
            over: CancellationToken::new(),
            started_at,
            worked_at: Mutex::new(tokio::time::Instant::now()),
            probe: RunId::derive(&["probe"]),
            supervisor: OnceLock::new(),
            engine: OnceLock::new(),
            entropy: AtomicU64::new(options_seed),
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
        self.serve().await?;
        crate::sweep::beat(self).await;
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

    /// Begins a run with its first turn, on this replica.
    pub(crate) async fn create_here(&self, spec: RunSpec, turn_id: TurnId, prompt: String) -> Result<Created, Error> {
        let started = tokio::time::Instant::now();
        let events = create(spec.clone(), turn_id, prompt, self.replica().clone());
        let created = self.begin(&spec.run_id, events).await?;
        metrics::OPEN_SECONDS.observe(started.elapsed().as_secs_f64());
        Ok(created)
    }

    /// Begins a run that has ended already: its id can never be used. Whoever waits for `first`, the
    /// turn that it was to begin with, is told that it never started.
    pub async fn create_closed(&self, spec: RunSpec, first: Option<(TurnId, String)>) -> Result<Created, Error> {
        let (run_id, trace) = (spec.run_id.clone(), spec.trace.clone());
        let mut events = vec![
            Event::Created { spec: Box::new(spec) },
            Event::Activated { epoch: Epoch(1), replica: self.replica().clone() },
        ];
        events.extend(first.map(|(turn_id, prompt)| Event::TurnAccepted { turn_id, prompt, key: None, trace }));
        events.push(Event::Closed);
        self.begin(&run_id, events).await
    }

    async fn begin(&self, run_id: &RunId, events: Vec<Event>) -> Result<Created, Error> {
        if self.is_draining() {
            return Err(Error::Draining);
        }
        let slot = self.inner.slots.claim(run_id);
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
                Ok(Created::Existing(self.look(run_id).await?.0))
            }
            Err(error) => Err(error),
        }
    }

    async fn first_frame(&self, run_id: &RunId, events: Vec<Event>) -> Result<(Run, Log), Error> {
        let inner = &self.inner;
        let mut log = Log::new(inner.journal.clone(), inner.clock.clone(), run_id.clone(), Epoch(1), Place::default());
        let frame = log.frame(Seq(1), events);
        let mut run = None;
        Run::fold(&mut run, frame.clone()).map_err(|source| Error::Fold { run: run_id.to_string(), source })?;
        let Some(run) = run else { return Err(Error::NotFound) };
        log.append(&frame, head(&run)).await?;
        Ok((run, log))
    }

    /// Sends a command to the run's activation, activating it if it may. A message that met an activation
    /// which ended without taking it is sent again; one that was taken and not answered is not. With the
    /// envelope of the turn that the command was accepted for, if it ended within `wait`: who waits for that
    /// is told once, of both.
    pub(crate) async fn ask(
        &self,
        run_id: &RunId,
        activates: bool,
        command: &Command,
        wait: Duration,
    ) -> Result<(Reply, Option<Envelope>), Error> {
        for _ in 0..LOOKUPS {
            let handle = match self.inner.slots.get(run_id) {
                Some(handle) => handle,
                None if activates => self.activation(run_id).await?,
                None => return Err(Error::Gone),
            };
            let permit = handle.admission.clone().try_acquire_owned().map_err(|_| {
                metrics::SHED.inc();
                Error::Busy { limit: ADMISSION }
            })?;
            let permit = Some(permit);
            let (reply, answer) = oneshot::channel();
            let (told, ended) = oneshot::channel();
            let message = match command {
                Command::OpenChild(open) => Message::OpenChild { open: open.clone(), reply, permit },
                other => {
                    let (asked, ended) = (Instant::now(), Some(told).filter(|_| !wait.is_zero()));
                    Message::Command { command: Box::new(other.clone()), reply, permit, ended, asked }
                }
            };
            if handle.actor.cast(message).is_ok() {
                let ended = if wait.is_zero() { None } else { timeout(wait, ended).await.ok().and_then(Result::ok) };
                match answer.await {
                    Ok(result) => return result.map(|reply| (reply, ended.flatten())),
                    Err(_) if self.is_draining() => return Err(Error::Draining),
                    // The actor stopped with the message in its mailbox or while it carried it out.
                    // Every command can be repeated: it is recorded by its key or its ids, or has no
                    // second effect.
                    Err(_) => {}
                }
            }
            self.forget_if_stopped(&handle);
            tokio::time::sleep(REPLACED).await;
        }
        Err(Error::Gone)
    }

    pub(crate) async fn activation(&self, run_id: &RunId) -> Result<Handle, Error> {
        let slot = self.inner.slots.claim(run_id);
        slot.0.get_or_try_init(|| self.activate(run_id, None)).await.cloned()
    }

    /// Reads the journal and takes the run over: its first act is an append that fences all others. Not from anybody but
    /// the activation of epoch `from`, if that is given.
    async fn activate(&self, run_id: &RunId, from: Option<Epoch>) -> Result<Handle, Error> {
        if self.is_draining() {
            return Err(Error::Draining);
        }
        let started = tokio::time::Instant::now();
        let inner = &self.inner;
        let activated = async {
            let Some(folded) = read_run(&*inner.journal, run_id).await? else { return Err(Error::NotFound) };
            let mut run = folded.run;
            if from.is_some_and(|from| from != run.epoch) {
                return Err(Error::Gone);
            }
            let activate = Command::Activate { replica: self.replica().clone() };
            let decision = decide(&run, &activate, inner.clock.now())?;
            let epoch = run.epoch.next();
            let mut log = Log::new(inner.journal.clone(), inner.clock.clone(), run_id.clone(), epoch, folded.place);
            let frame = log.frame(run.seq.next(), decision.events);
            run.advance(&frame);
            log.append(&frame, head(&run)).await?;
            self.spawn(run, log).await
        };
        let handle = activated.await.inspect_err(|error| {
            if !matches!(error, Error::NotFound | Error::Draining) && !error.moved() {
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
        let epoch = run.epoch;
        let location = Location { replica: self.replica().clone(), epoch };
        let start = Box::new(Start { inner: inner.clone(), run, log, parked: parked.clone() });
        let (actor, _) =
            Actor::spawn_linked(None, ResidentActor, start, supervisor.get_cell()).await.map_err(|_| Error::Gone)?;
        inner.slots.bind(actor.get_id(), run_id.clone(), location.epoch);
        metrics::ACTIVE.inc();
        let registry = inner.registry.clone();
        inner.tasks.spawn(async move {
            if let Err(error) = registry.claim(&run_id, location).await {
                tracing::debug!(%error, "a location was not registered; lookups go through the journal");
            }
        });
        Ok(Handle { actor, epoch, admission: Arc::new(Semaphore::new(ADMISSION)), parked })
    }

    /// Frees the slot of an actor that took a message and ended without an answer. The supervisor does
    /// the same; whoever is first.
    pub(crate) fn forget_if_stopped(&self, handle: &Handle) {
        if matches!(handle.actor.get_status(), ActorStatus::Stopping | ActorStatus::Stopped)
            && let Some((run_id, epoch)) = self.inner.slots.remove_actor(handle.actor.get_id())
        {
            self.release(run_id, epoch);
        }
    }

    /// Tells the registry that an activation has ended here.
    pub(crate) fn release(&self, run_id: RunId, epoch: Epoch) {
        let inner = self.inner.clone();
        let location = Location { replica: self.replica().clone(), epoch };
        self.inner.tasks.spawn(async move {
            if let Err(error) = inner.registry.release(&run_id, &location).await {
                tracing::debug!(%error, "a location was not released; whoever asks here is told");
            }
        });
    }

    /// Takes a run up if it needs an owner.
    pub(crate) async fn wake(&self, run_id: &RunId) -> Result<(), Error> {
        if !self.is_active(run_id) {
            self.activation(run_id).await?;
        }
        Ok(())
    }

    /// Takes a run up from the activation of this epoch, whose replica is gone. Whoever else does the same at this moment
    /// may be faster: then it is theirs.
    pub(crate) async fn take_over(&self, run_id: &RunId, from: Epoch) -> Result<(), Error> {
        let slot = self.inner.slots.claim(run_id);
        match slot.0.get_or_try_init(|| self.activate(run_id, Some(from))).await {
            Err(error) if !error.moved() => Err(error),
            _ => Ok(()),
        }
    }

    pub(crate) async fn tick(&self, run_id: &RunId) -> Result<(), Error> {
        self.tell(run_id, Command::Tick { partial: String::new() }).await
    }
}

fn seed_of(replica: &ReplicaId) -> u64 {
    replica
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// A slot that was never filled needs no owner.
impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("filled", &self.0.initialized()).finish()
    }
}
