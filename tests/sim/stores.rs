//! The journal and the registry as one replica reaches them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use hearth_journal::{
    Append, Error, Fate, FaultyJournal, HeadPage, HeadQuery, Journal, LogKey, MemoryJournal, Operation, Position,
    RunHead, StoredFrame,
};
use hearth_registry::{
    Fate as RegistryFate, FaultyRegistry, Location, MemoryRegistry, NodeRow, Registry, ReplicaRow, SandboxPlace, Seat,
    WorkspaceHome,
};
use hearth_types::{ReplicaId, RunId, SandboxId, Tenant, Timestamp};

use crate::plan::Fault;
use crate::world::{Line, Lost, Peer, World};

/// The store itself; each frame that it takes goes into the books.
#[derive(Clone)]
pub struct Booked {
    pub store: MemoryJournal,
    pub world: Arc<World>,
}

#[async_trait]
impl Journal for Booked {
    async fn append(&self, append: Append) -> Result<Position, Error> {
        let before = self.store.last(&append.key).await?;
        let position = self.store.append(append.clone()).await;
        match &position {
            // The same append again is the same frame.
            Ok(position) if *position == before => {}
            Ok(position) => {
                tell_frame(&self.world, &append);
                let taken = self.world.books().take(&append, *position);
                if let Err(breach) = taken {
                    self.world.breach(breach);
                }
            }
            Err(error) => self.world.story.tell(|| format!("journal: {}: {error}", append.key)),
        }
        position
    }

    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        let frames = self.store.read(key, after, limit).await?;
        self.world.frames_read.fetch_add(frames.len() as u64, Ordering::Relaxed);
        Ok(frames)
    }

    async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error> {
        self.store.trim(key, limit).await
    }

    async fn last(&self, key: &LogKey) -> Result<Position, Error> {
        self.store.last(key).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.store.head(run).await
    }

    async fn heads(&self, query: &HeadQuery) -> Result<HeadPage, Error> {
        self.store.heads(query).await
    }

    async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
        self.store.waking(after, limit).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
        self.store.due(now, limit).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.store.ready().await
    }
}

fn tell_frame(world: &World, append: &Append) {
    world.story.tell(|| match hearth_run_core::Frame::decode(&append.frame) {
        Ok(frame) => {
            let events: Vec<String> = frame.events.iter().map(brief).collect();
            format!("{} epoch {}: {}", append.key, frame.epoch, events.join(", "))
        }
        Err(_) => format!("{}: a frame", append.key),
    });
}

/// An event in a few words.
fn brief(event: &hearth_run_core::Event) -> String {
    use hearth_run_core::Event as E;
    match event {
        E::Created { spec } => {
            let parent = spec.parent.as_ref().map(|parent| format!(" under {}", parent.run_id));
            format!("Created{}", parent.unwrap_or_default())
        }
        E::Activated { epoch, replica } => format!("Activated {epoch} on {replica}"),
        E::TurnAccepted { turn_id, prompt, key, .. } => {
            let key = key.as_ref().map_or("-", |key| key.id.get(..6).unwrap_or("?"));
            format!("TurnAccepted {turn_id} key {key} {:?}", crate::script::label_of(prompt))
        }
        E::TurnEnded { turn_id, outcome, state, error, .. } => {
            let why = error.as_ref().map(|error| format!(" ({})", error.message)).unwrap_or_default();
            format!("TurnEnded {turn_id} {} -> {}{why}", outcome.as_str(), state.as_str())
        }
        E::ToolCalled { call, .. } => format!("ToolCalled {} {}", call.id, call.name),
        E::ToolFinished { call_id, output, .. } => {
            let failed = if output.is_error { format!(" failed: {}", output.text()) } else { String::new() };
            format!("ToolFinished {call_id}{failed}")
        }
        E::ChildOpened { spec, kind, .. } => format!("ChildOpened {} {kind:?}", spec.run_id),
        E::Snapshot { .. } => "Snapshot".to_owned(),
        other => format!("{other:?}"),
    }
}

/// What the fault injection does to the store below the wire.
pub fn flaky_journal<J: Journal>(journal: J, world: &Arc<World>) -> FaultyJournal<J> {
    let world = world.clone();
    FaultyJournal::new(journal, move |operation| match operation {
        Operation::Append(append) if world.befalls(Fault::FlakyJournal, 60) => {
            world.story.tell(|| format!("journal: {}: the next answer will be lost", append.key));
            Fate::LoseAnswer
        }
        Operation::Append(_) if world.befalls(Fault::FlakyJournal, 60) => Fate::LoseRequest,
        _ if world.befalls(Fault::FlakyJournal, 40) => Fate::Refuse,
        _ if world.befalls(Fault::FlakyJournal, 40) => Fate::Delay(Duration::from_millis(world.below(900))),
        _ => Fate::Pass,
    })
}

/// The journal at the other end of a replica's line.
pub struct FarJournal<J> {
    pub line: Line,
    pub journal: J,
}

impl<J: Journal> FarJournal<J> {
    async fn carry<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let away = |_: Lost| Error::Unavailable { reason: "cut off".into() };
        self.line.carry(Peer::Journal, work).await.map_err(away)?
    }
}

#[async_trait]
impl<J: Journal> Journal for FarJournal<J> {
    async fn append(&self, append: Append) -> Result<Position, Error> {
        let carried = self.line.carry(Peer::Journal, self.journal.append(append)).await;
        match carried {
            Ok(appended) => appended,
            Err(Lost::Before) if self.line.world.below(2) == 0 => Err(Error::Unavailable { reason: "cut off".into() }),
            Err(_) => Err(Error::Unknown { reason: "cut off".into() }),
        }
    }

    async fn read(&self, key: &LogKey, after: Position, limit: usize) -> Result<Vec<StoredFrame>, Error> {
        self.carry(self.journal.read(key, after, limit)).await
    }

    async fn trim(&self, key: &LogKey, limit: usize) -> Result<u64, Error> {
        self.carry(self.journal.trim(key, limit)).await
    }

    async fn last(&self, key: &LogKey) -> Result<Position, Error> {
        self.carry(self.journal.last(key)).await
    }

    async fn head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.carry(self.journal.head(run)).await
    }

    async fn heads(&self, query: &HeadQuery) -> Result<HeadPage, Error> {
        self.carry(self.journal.heads(query)).await
    }

    async fn waking(&self, after: Option<&RunId>, limit: usize) -> Result<Vec<RunId>, Error> {
        self.carry(self.journal.waking(after, limit)).await
    }

    async fn due(&self, now: Timestamp, limit: usize) -> Result<Vec<RunId>, Error> {
        self.carry(self.journal.due(now, limit)).await
    }

    async fn ready(&self) -> Result<(), Error> {
        self.carry(self.journal.ready()).await
    }
}

/// The registry at the other end of a replica's line.
pub struct FarRegistry {
    line: Line,
    registry: FaultyRegistry<MemoryRegistry>,
}

impl FarRegistry {
    pub fn new(line: Line, registry: MemoryRegistry) -> Self {
        let world = line.world.clone();
        let registry = FaultyRegistry::new(registry, move || {
            if world.befalls(Fault::FlakyRegistry, 80) {
                RegistryFate::LoseAnswer
            } else if world.befalls(Fault::FlakyRegistry, 120) {
                RegistryFate::Refuse
            } else if world.befalls(Fault::FlakyRegistry, 80) {
                RegistryFate::Delay(Duration::from_millis(world.below(2_000)))
            } else {
                RegistryFate::Pass
            }
        });
        Self { line, registry }
    }

    async fn carry<T>(
        &self,
        work: impl Future<Output = Result<T, hearth_registry::Error>>,
    ) -> Result<T, hearth_registry::Error> {
        let away = |_: Lost| hearth_registry::Error::Unavailable { reason: "cut off".into() };
        self.line.carry(Peer::Registry, work).await.map_err(away)?
    }
}

#[async_trait]
impl Registry for FarRegistry {
    async fn claim(&self, run: &RunId, location: Location) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.claim(run, location)).await
    }

    async fn release(&self, run: &RunId, location: &Location) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.release(run, location)).await
    }

    async fn locate(&self, run: &RunId) -> Result<Option<Location>, hearth_registry::Error> {
        self.carry(self.registry.locate(run)).await
    }

    async fn heartbeat(&self, row: ReplicaRow, lease: Duration) -> Result<bool, hearth_registry::Error> {
        self.carry(self.registry.heartbeat(row, lease)).await
    }

    async fn leave(&self, replica: &ReplicaId) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.leave(replica)).await
    }

    async fn replicas(&self) -> Result<Vec<ReplicaRow>, hearth_registry::Error> {
        self.carry(self.registry.replicas()).await
    }
    async fn announce(&self, row: NodeRow, lease: Duration) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.announce(row, lease)).await
    }

    async fn withdraw(&self, node: &str) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.withdraw(node)).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, hearth_registry::Error> {
        self.carry(self.registry.nodes()).await
    }

    async fn take_seat(&self, tenant: &Tenant, run: &RunId, limit: u64) -> Result<Seat, hearth_registry::Error> {
        self.carry(self.registry.take_seat(tenant, run, limit)).await
    }

    async fn leave_seat(&self, tenant: &Tenant, run: &RunId) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.leave_seat(tenant, run)).await
    }

    async fn seats(
        &self,
        tenant: &Tenant,
        skip: u64,
        limit: usize,
    ) -> Result<Vec<(RunId, Duration)>, hearth_registry::Error> {
        self.carry(self.registry.seats(tenant, skip, limit)).await
    }

    async fn seat_all(&self, tenant: &Tenant, runs: &[RunId]) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.seat_all(tenant, runs)).await
    }

    async fn counted(&self, tenant: &Tenant, whole: bool) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.counted(tenant, whole)).await
    }

    async fn home(&self, workspace: &str) -> Result<Option<WorkspaceHome>, hearth_registry::Error> {
        self.carry(self.registry.home(workspace)).await
    }

    async fn move_home(&self, workspace: &str, home: WorkspaceHome) -> Result<WorkspaceHome, hearth_registry::Error> {
        self.carry(self.registry.move_home(workspace, home)).await
    }

    async fn forget_home(&self, workspace: &str) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.forget_home(workspace)).await
    }

    async fn note_sandbox(
        &self,
        session: &SandboxId,
        place: SandboxPlace,
        keep: Duration,
    ) -> Result<(), hearth_registry::Error> {
        self.carry(self.registry.note_sandbox(session, place, keep)).await
    }

    async fn sandbox(&self, session: &SandboxId) -> Result<Option<SandboxPlace>, hearth_registry::Error> {
        self.carry(self.registry.sandbox(session)).await
    }
}
