//! A replica within this process, over whatever stores: for what is counted, and for comparisons with
//! floors that have no HTTP either.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hearth_api::{AgentTool, Caller, Deps, Hearth, OpenResident, Options, Send};
use hearth_bus::{LocalBus, LocalOptions, SharedBus};
use hearth_engine::{Engine, Tools};
use hearth_journal::{SharedJournal, SqliteJournal, SqliteOptions};
use hearth_library::{Catalogue, Library};
use hearth_models::{BuiltInModels, BuiltInOptions, built_in_definitions};
use hearth_nodes::Nodes;
use hearth_registry::{MemoryRegistry, SharedRegistry};
use hearth_residency::Residents;
use hearth_types::{Principal, ReplicaId, Role, SystemClock};

use crate::Error;

/// It does nothing by itself for as long as anybody measures.
const LONG: Duration = Duration::from_secs(86_400);
/// Turns that take a step at once, as the product's default.
const STEPS: usize = 1_024;

/// The use cases of a replica within this process.
#[derive(Clone)]
pub struct Within(Hearth);

impl Within {
    /// A replica over these stores.
    pub async fn start(
        name: &str,
        journal: SharedJournal,
        registry: SharedRegistry,
        bus: SharedBus,
    ) -> Result<Self, Error> {
        let failed = |reason: String| Error::program("the replica within", reason);
        let clock = SystemClock::shared();
        let sandboxes = Arc::new(Nodes::new(registry.clone(), None));
        let residents = Residents::new(
            hearth_residency::Options {
                replica: ReplicaId::parse(name).map_err(|error| failed(error.to_string()))?,
                passivate_after: LONG,
                sweep_every: LONG,
                lease: LONG,
                url: None,
                max_runs_per_tenant: 0,
                placement_slack: hearth_residency::PLACEMENT_SLACK,
                keep_events: 100_000,
            },
            hearth_residency::Deps {
                journal: journal.clone(),
                registry: registry.clone(),
                bus: bus.clone(),
                sandboxes: sandboxes.clone(),
                clock: clock.clone(),
            },
        );
        let agent_tool = Arc::new(AgentTool::default());
        let hearth = Hearth::new(
            Options { max_residents: 8, idle_ttl_ms: 86_400_000 },
            Deps {
                residents: residents.clone(),
                journal,
                registry,
                bus,
                sandboxes: sandboxes.clone(),
                catalogue: Arc::new(Catalogue::new(built_in_definitions(), Library::default())),
                clock,
            },
        );
        agent_tool.connect(&hearth);
        let models = Arc::new(BuiltInModels::new(BuiltInOptions::default()));
        let engine = Engine::new(models, Tools::new(agent_tool, sandboxes), STEPS);
        residents.start(engine).await.map_err(|error| failed(error.to_string()))?;
        Ok(Self(hearth))
    }

    /// One as `hearth dev` has it, with its journal in this file.
    pub async fn embedded(file: &Path) -> Result<Self, Error> {
        let journal = SqliteJournal::open(SqliteOptions::at(file))?;
        let (registry, bus) = (Arc::new(MemoryRegistry::new()), Arc::new(LocalBus::new(LocalOptions::default())));
        Self::start("within", Arc::new(journal), registry, bus).await
    }

    /// Opens a resident of `mock`; its id.
    pub async fn open(&self) -> Result<String, Error> {
        let request = OpenResident { agent: "mock".into(), prompt: "begin".into(), ..OpenResident::default() };
        let answer = self.0.open(&caller(), request).await.map_err(|fault| Error::Answer(fault.to_string()))?;
        Ok(answer.body.run_id.to_string())
    }

    /// Sends, and wants the prompt back.
    pub async fn send(&self, resident: &str, prompt: &str) -> Result<(), Error> {
        let request = Send { prompt: prompt.into(), ..Send::default() };
        let answer =
            self.0.send(&caller(), resident, request).await.map_err(|fault| Error::Answer(fault.to_string()))?;
        if answer.body.output == prompt {
            return Ok(());
        }
        Err(Error::Answer(format!("the output {:?}", answer.body.output)))
    }
}

fn caller() -> Caller {
    let principal = Principal { tenant: "acme".into(), subject: "ann".into(), role: Role::Operator };
    Caller { principal, run: None, key: None, trace: None }
}
