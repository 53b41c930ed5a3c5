//! Replicas of production's code over shared stores, started, killed and started again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hearth_api::{AgentTool, Hearth};
use hearth_bus::{LocalBus, SharedBus};
use hearth_engine::{Engine, Tools};
use hearth_journal::{MemoryJournal, SharedJournal};
use hearth_library::{Catalogue, Library};
use hearth_registry::{MemoryRegistry, SharedRegistry};
use hearth_residency::Residents;
use hearth_sandbox::SharedSandboxes;
use hearth_types::{Clock, ReplicaId, RunId, SessionId, SharedClock, Timestamp};
use tokio::time::Instant;

use crate::broken::{Breakable, Broken};
use crate::gate::{Gate, Power};
use crate::node::{Node, Reached};
use crate::plan::Fault;
use crate::script;
use crate::stores::{Booked, FarJournal, FarRegistry, flaky_journal};
use crate::wire::flaky_bus;
use crate::world::{Line, World};

pub const LEASE: Duration = Duration::from_secs(3);
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// Few, so that journals are folded while runs go on.
const KEEP_EVENTS: u64 = 40;
const CONCURRENT_STEPS: usize = 64;
/// Resident children of one run: few, so that the cap is met.
pub const MAX_RESIDENTS: u32 = 3;

/// How far the clocks are off at the most, either way.
pub const MAX_SKEW_MS: i64 = 8_000;

/// A replica's clock: tokio's, and off by as much as the plan says.
struct SkewedClock {
    origin: Instant,
    base: Timestamp,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        self.base.plus(self.origin.elapsed())
    }
}

/// One process.
#[derive(Clone)]
pub struct Member {
    pub replica: ReplicaId,
    pub gate: Arc<Gate>,
    pub hearth: Hearth,
    pub residents: Residents,
}

pub struct Cluster {
    pub world: Arc<World>,
    pub journal: MemoryJournal,
    pub registry: MemoryRegistry,
    pub node: Node,
    bus: LocalBus,
    broken: Option<Broken>,
    origin: Instant,
    skews: Vec<i64>,
    members: Mutex<Vec<Option<Member>>>,
    /// The runs that some client was told of.
    known: Mutex<Vec<RunId>>,
}

impl Cluster {
    pub fn new(world: Arc<World>, broken: Option<Broken>) -> Arc<Self> {
        let replicas = world.plan.replicas;
        let skew = |_| {
            if world.plan.has(Fault::Skew) {
                MAX_SKEW_MS - world.below(2 * MAX_SKEW_MS.cast_unsigned()).cast_signed()
            } else {
                0
            }
        };
        let skews = (0..replicas).map(skew).collect();
        Arc::new(Self {
            journal: MemoryJournal::new(),
            registry: MemoryRegistry::new(),
            node: Node::new(world.clone()),
            bus: LocalBus::default(),
            broken,
            origin: Instant::now(),
            skews,
            members: Mutex::new(vec![None; replicas]),
            known: Mutex::default(),
            world,
        })
    }

    pub fn known(&self) -> MutexGuard<'_, Vec<RunId>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session that a run is of, as its journal tells it.
    pub fn session_of(&self, run: &RunId) -> Option<SessionId> {
        self.world.books().book(run)?.laws.spec.as_ref().map(|spec| spec.session_id.clone())
    }

    pub fn booked(&self) -> Booked {
        Booked { store: self.journal.clone(), world: self.world.clone() }
    }

    pub fn replica_id(place: usize) -> ReplicaId {
        ReplicaId::parse(&format!("replica-{place}")).unwrap()
    }

    /// The process at this place, dead or alive.
    pub fn member(&self, place: usize) -> Option<Member> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)[place].clone()
    }

    pub fn alive(&self) -> Vec<usize> {
        let is_alive = |place: &usize| self.member(*place).is_some_and(|member| !member.gate.is_dead());
        (0..self.world.plan.replicas).filter(is_alive).collect()
    }

    pub fn kill(&self, place: usize) {
        if let Some(member) = self.member(place) {
            self.world.story.tell(|| format!("{} is killed", member.replica));
            member.gate.set(Power::Dead);
        }
    }

    /// Starts a process at a place, and tries until it serves.
    pub async fn start(self: &Arc<Self>, place: usize) {
        loop {
            let (member, engine) = self.member_at(place);
            if member.residents.start(engine).await.is_ok() {
                self.world.story.tell(|| format!("{} serves", member.replica));
                self.members.lock().unwrap_or_else(PoisonError::into_inner)[place] = Some(member);
                return;
            }
            member.gate.set(Power::Dead);
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    fn member_at(&self, place: usize) -> (Member, Engine) {
        let (replica, gate) = (Self::replica_id(place), Arc::new(Gate::new()));
        let world = &self.world;
        let line = Line { world: world.clone(), gate: gate.clone(), replica: replica.clone() };
        let base = Timestamp::from_millis(1_700_000_000_000 + self.skews[place]);
        let clock: SharedClock = Arc::new(SkewedClock { origin: self.origin, base });
        let store = Breakable { journal: self.booked(), broken: self.broken, gate: gate.clone() };
        let journal = FarJournal { line: line.clone(), journal: flaky_journal(store, world) };
        let journal: SharedJournal = Arc::new(journal);
        let registry: SharedRegistry = Arc::new(FarRegistry::new(line.clone(), self.registry.clone()));
        let bus: SharedBus = Arc::new(flaky_bus(line.clone(), self.bus.clone()));
        let close_runs = !matches!(self.broken, Some(Broken::LeaveSandboxes));
        let sandboxes: SharedSandboxes = Arc::new(Reached { line, node: self.node.clone(), close_runs });
        let residents = Residents::new(
            hearth_residency::Options {
                replica: replica.clone(),
                passivate_after: world.plan.passivate_after,
                keep_events: KEEP_EVENTS,
                sweep_every: SWEEP_EVERY,
                lease: LEASE,
                url: None,
                max_runs_per_tenant: 0,
                placement_slack: world.plan.placement_slack,
            },
            hearth_residency::Deps {
                journal: journal.clone(),
                registry: registry.clone(),
                bus: bus.clone(),
                sandboxes: sandboxes.clone(),
                clock: clock.clone(),
            },
        );
        let options = hearth_api::Options {
            max_residents: MAX_RESIDENTS,
            idle_ttl_ms: u64::try_from(world.plan.idle_ttl.as_millis()).unwrap(),
        };
        let catalogue = Arc::new(Catalogue::new(vec![script::definition()], Library::default()));
        let deps = hearth_api::Deps {
            residents: residents.clone(),
            journal,
            registry,
            bus,
            sandboxes: sandboxes.clone(),
            catalogue,
            clock,
        };
        let hearth = Hearth::new(options, deps);
        let agent_tool = Arc::new(AgentTool::default());
        agent_tool.connect(&hearth);
        let engine = Engine::new(Arc::new(script::Scripts), Tools::new(agent_tool, sandboxes), CONCURRENT_STEPS);
        (Member { replica, gate, hearth, residents }, engine)
    }
}
