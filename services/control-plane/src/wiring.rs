//! Puts a replica together: the only place that knows concrete adapters.

use std::num::NonZeroU16;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hearth_api::{AgentTool, Hearth, JournalLiveness};
use hearth_bus::{LocalBus, LocalOptions, NatsBus, NatsOptions, SharedBus};
use hearth_engine::{Engine, Tools};
use hearth_journal::{JetStreamJournal, JetStreamOptions, SharedJournal, SqliteJournal, SqliteOptions};
pub use hearth_journal::{Progress, Repartitioned};
use hearth_library::{Catalogue, FileError, Library};
use hearth_models::{BuiltInModels, BuiltInOptions, CodeWorker, built_in_definitions, check_code};
use hearth_nodes::{Announcer, Binder, Nodes};
use hearth_registry::{MemoryRegistry, RedisOptions, RedisRegistry, SharedRegistry};
use hearth_residency::Residents;
use hearth_sandbox::SharedSandboxes;
use hearth_sandbox::node::{Node, NodeOptions};
use hearth_types::{Fault, ReplicaId, RunId, SharedClock, SystemClock};
use tokio_util::sync::CancellationToken;

use crate::config::Settings;

/// How often due times and sleepers are looked at.
const SWEEP_EVERY: Duration = Duration::from_millis(500);

/// Where answers to replicas come. Nodes have another place, which is all that the servers let them read.
const REPLICA_INBOX: &str = "_INBOX.replica";

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("`{0}` is not set: a replica of a cluster needs it; `hearth dev` does without")]
    Missing(&'static str),
    #[error("the bus cannot be used: {0}")]
    Bus(#[from] hearth_bus::Error),
    #[error("the registry cannot be used: {0}")]
    Registry(#[from] hearth_registry::Error),
    #[error("the data folder {path} cannot be used: {source}")]
    DataFolder { path: String, source: std::io::Error },
    #[error("the journal cannot be opened: {0}")]
    Journal(#[from] hearth_journal::Error),
    #[error("agent files are wrong:\n{}", .0.iter().map(|error| format!("  {error}")).collect::<Vec<_>>().join("\n"))]
    Agents(Vec<FileError>),
    #[error("the program of agent {agent} ({agent}.js) is wrong: {reason}")]
    Program { agent: String, reason: String },
    #[error(transparent)]
    SandboxSettings(#[from] hearth_sandbox::node::OptionsError),
    #[error(transparent)]
    Drivers(#[from] hearth_sandbox::Unavailable),
    #[error("sandboxes cannot be served: {0}")]
    Sandbox(#[from] hearth_sandbox::Error),
    #[error("the residents cannot be served: {0}")]
    Residents(#[from] hearth_residency::Error),
}

/// A replica that serves. Its surfaces call `hearth`.
pub struct Replica {
    pub hearth: Hearth,
    residents: Residents,
    /// The sandbox node inside this process, if there is one.
    node: Option<Arc<Node>>,
    /// What sandboxes run on here, in words.
    pub sandbox: String,
}

impl Replica {
    /// Gives everything up in good order: turns are handed over at their next boundary. Sandbox sessions
    /// go on; those that are nobody's yet do not.
    pub async fn drain(&self, deadline: Duration) {
        let pool = async {
            if let Some(node) = &self.node {
                node.drain_pool().await;
            }
        };
        tokio::join!(self.residents.drain(deadline), pool);
    }

    /// Returns once a drain was asked for, by a caller of any replica.
    pub async fn drain_begun(&self) {
        self.residents.drain_begun().await;
    }
}

struct Stores {
    journal: SharedJournal,
    registry: SharedRegistry,
    bus: SharedBus,
}

/// An embedded replica: journal in a SQLite file, registry and bus in this process.
pub async fn embedded(settings: &Settings) -> Result<Replica, StartError> {
    make_private(&settings.data_dir)?;
    let journal = SqliteJournal::open(SqliteOptions::at(settings.data_dir.join("journal.db")))?;
    let stores = Stores {
        journal: crashing(settings, Arc::new(journal)),
        registry: Arc::new(MemoryRegistry::new()),
        bus: Arc::new(LocalBus::new(LocalOptions::default())),
    };
    let replica = match &settings.replica_id {
        Some(named) => named.clone(),
        None => kept_id(&settings.data_dir)?,
    };
    let clock = SystemClock::shared();
    let (node, said) = local_node(settings, &replica, &clock, &stores).await?;
    let (replica, _) = assemble(settings, replica, stores, clock, node.clone(), said).await?;
    Ok(Replica { node: Some(node), ..replica })
}

#[cfg(debug_assertions)]
fn crashing(settings: &Settings, journal: SharedJournal) -> SharedJournal {
    match settings.crash_at_append {
        Some(point) => Arc::new(hearth_journal::CrashingJournal::new(journal, point)),
        None => journal,
    }
}

#[cfg(not(debug_assertions))]
fn crashing(_settings: &Settings, journal: SharedJournal) -> SharedJournal {
    journal
}

/// The id of an embedded replica belongs to its data folder: two on one machine are two, and one that was
/// started again is the same to what its journal says of it.
fn kept_id(data_dir: &Path) -> Result<ReplicaId, StartError> {
    let path = data_dir.join("replica-id");
    let failed = |source| StartError::DataFolder { path: path.display().to_string(), source };
    match std::fs::read_to_string(&path) {
        Ok(text) => ReplicaId::parse(text.trim())
            .map_err(|error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, error.to_string()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let fresh = ReplicaId::generate();
            std::fs::write(&path, format!("{fresh}\n")).map_err(failed)?;
            Ok(fresh)
        }
        Err(error) => Err(failed(error)),
    }
}

/// A replica of a cluster: journal in JetStream, registry in Redis, bus on NATS.
pub async fn clustered(settings: &Settings) -> Result<Replica, StartError> {
    let nats_url = settings.nats_url.clone().ok_or(StartError::Missing("nats_url"))?;
    let redis_url = settings.redis_url.clone().ok_or(StartError::Missing("redis_url"))?;
    make_private(&settings.data_dir)?;
    let replica = settings.replica_id.clone().unwrap_or_else(ReplicaId::generate);
    let bus = NatsBus::connect(NatsOptions {
        credentials_file: settings.nats_credentials.clone(),
        user: nats_user(settings),
        ca_file: settings.stores_ca.clone(),
        inbox: REPLICA_INBOX.to_owned(),
        name: replica.to_string(),
        prefix: settings.cluster_name.clone(),
        ..NatsOptions::at(nats_url.clone())
    })
    .await?;
    let registry = RedisRegistry::new(RedisOptions {
        prefix: settings.cluster_name.clone(),
        ca_file: settings.stores_ca.clone(),
        ..RedisOptions::at(redis_url.0)
    })?;
    let journal = JetStreamJournal::connect(journal_options(settings, nats_url, replica.to_string())).await?;
    let journal: SharedJournal = Arc::new(journal);
    #[cfg(debug_assertions)]
    let journal: SharedJournal = match settings.next_version {
        Some(version) => Arc::new(hearth_journal::NextVersionJournal::new(journal, version)),
        None => journal,
    };
    let stores = Stores { journal: crashing(settings, journal), registry: Arc::new(registry), bus: Arc::new(bus) };
    let nodes = Nodes::new(stores.registry.clone(), settings.sandbox.get("SANDBOX_AUTH_TOKEN").cloned());
    let said = "sandbox nodes of the cluster".to_owned();
    let (replica, residents) =
        assemble(settings, replica, stores, SystemClock::shared(), Arc::new(nodes.clone()), said).await?;
    nodes.connect(Arc::new(RootBinder(residents)));
    Ok(replica)
}

fn nats_user(settings: &Settings) -> Option<(String, String)> {
    settings.nats_user.clone().zip(settings.nats_password.as_ref().map(|secret| secret.0.clone()))
}

fn journal_options(settings: &Settings, nats_url: String, name: String) -> JetStreamOptions {
    JetStreamOptions {
        credentials_file: settings.nats_credentials.clone(),
        user: nats_user(settings),
        ca_file: settings.stores_ca.clone(),
        inbox: REPLICA_INBOX.to_owned(),
        name,
        prefix: settings.cluster_name.clone(),
        partitions: settings.journal_partitions,
        replicas: settings.journal_replicas,
        ..JetStreamOptions::at(nats_url, settings.data_dir.join("index"))
    }
}

/// Changes the journal of a cluster whose replicas are stopped from `from` to `to` partitions.
pub async fn repartition(
    settings: &Settings,
    from: NonZeroU16,
    to: NonZeroU16,
    told: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Repartitioned, StartError> {
    let nats_url = settings.nats_url.clone().ok_or(StartError::Missing("nats_url"))?;
    let options =
        JetStreamOptions { partitions: to, ..journal_options(settings, nats_url, "hearth journal".to_owned()) };
    let relocate = |frame: &[u8], place: &dyn Fn(u64) -> Option<u64>| {
        hearth_run_core::relocate(frame, place).map_err(|error| error.to_string())
    };
    Ok(hearth_journal::repartition(&options, from.get(), &relocate, told).await?)
}

/// Gives up a change that was begun; whether there was one.
pub async fn cancel_repartition(settings: &Settings) -> Result<bool, StartError> {
    let nats_url = settings.nats_url.clone().ok_or(StartError::Missing("nats_url"))?;
    let options = journal_options(settings, nats_url, "hearth journal".to_owned());
    Ok(hearth_journal::cancel_repartition(&options).await?)
}

/// Lets a tree's root run decide where its shared session is.
struct RootBinder(Residents);

#[async_trait]
impl Binder for RootBinder {
    async fn bind(&self, root: &RunId, slot: String, node: String, replaces: Option<String>) -> Result<String, Fault> {
        Ok(self.0.bind_sandbox(root, slot, node, replaces).await?)
    }

    async fn bound(&self, root: &RunId) -> Result<Vec<String>, Fault> {
        let (run, _) = self.0.look(root).await?;
        Ok(run.sandbox_nodes.into_values().collect())
    }
}

async fn assemble(
    settings: &Settings,
    replica: ReplicaId,
    stores: Stores,
    clock: SharedClock,
    sandboxes: SharedSandboxes,
    sandbox: String,
) -> Result<(Replica, Residents), StartError> {
    let Stores { journal, registry, bus } = stores;
    let catalogue = catalogue(settings)?;

    let residents = Residents::new(
        hearth_residency::Options {
            replica,
            passivate_after: settings.passivate_after,
            keep_events: settings.journal_keep_events,
            sweep_every: SWEEP_EVERY,
            lease: settings.replica_lease,
            max_runs_per_tenant: settings.max_runs_per_tenant,
            placement_slack: hearth_residency::PLACEMENT_SLACK,
            url: Some(settings.advertise_url.clone().unwrap_or_else(|| format!("http://{}", settings.listen))),
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
        hearth_api::Options {
            max_residents: settings.max_interactive_children,
            idle_ttl_ms: u64::try_from(settings.interactive_child_idle_ttl.as_millis()).unwrap_or(u64::MAX),
        },
        hearth_api::Deps {
            residents: residents.clone(),
            journal,
            registry,
            bus,
            sandboxes: sandboxes.clone(),
            catalogue: Arc::new(catalogue),
            clock,
        },
    );
    agent_tool.connect(&hearth);
    let models = BuiltInModels::new(BuiltInOptions {
        dev_exec: settings.dev_exec,
        code_worker: code_worker(),
        ..BuiltInOptions::default()
    });
    let engine = Engine::new(Arc::new(models), Tools::new(agent_tool, sandboxes), settings.max_concurrent_steps);
    residents.start(engine).await?;
    Ok((Replica { hearth, residents: residents.clone(), node: None, sandbox }, residents))
}

/// The command of `hearth` that runs the programs of code agents.
pub const CODE_WORKER: &str = "code-worker";

/// Programs run in a process of their own: an interpreter at the end of its memory takes that process
/// down and not this one.
fn code_worker() -> Option<CodeWorker> {
    let program = std::env::current_exe().ok()?;
    Some(CodeWorker { program, arguments: vec![CODE_WORKER.into()], environment: Vec::new() })
}

pub use hearth_models::serve_code_worker;

/// A program that cannot be read stops the start, as every other bad agent file does.
fn check_programs(library: &Library) -> Result<(), StartError> {
    for agent in &library.agents {
        let Some(code) = &agent.code else { continue };
        check_code(code)
            .map_err(|error| StartError::Program { agent: agent.name.clone(), reason: error.to_string() })?;
    }
    Ok(())
}

fn catalogue(settings: &Settings) -> Result<Catalogue, StartError> {
    let library = match &settings.agents_dir {
        Some(folder) => hearth_library::load(folder).map_err(StartError::Agents)?,
        None => Library::default(),
    };
    check_programs(&library)?;
    let mut built_in = built_in_definitions();
    if !settings.dev_exec {
        built_in.retain(|agent| agent.name != "dev/exec");
    }
    Ok(Catalogue::new(built_in, library))
}

/// The sandbox node inside this process: containers where an engine and an image are there, else
/// confined processes.
async fn local_node(
    settings: &Settings,
    replica: &ReplicaId,
    clock: &SharedClock,
    stores: &Stores,
) -> Result<(Arc<Node>, String), StartError> {
    let state = settings.data_dir.join("sandbox");
    let mut options =
        NodeOptions::from_vars(replica.as_str(), &state, &settings.sandbox, hearth_sandbox::DRIVER_VARIABLES)?;
    if options.workspace_root.is_none() {
        options.workspace_root = Some(settings.data_dir.join("workspaces"));
    }
    let host_env =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let (drivers, said) = hearth_sandbox::available_drivers(&settings.sandbox, &host_env.collect(), &options).await?;
    let liveness = Arc::new(JournalLiveness::new(stores.journal.clone()));
    let node = Arc::new(Node::start(options.clone(), drivers.clone(), clock.clone(), liveness).await?);
    let (registry, url) = (stores.registry.clone(), format!("http://{}", settings.listen));
    let lease = settings.replica_lease;
    let announcer = Announcer::new(registry, node.clone(), &options, &drivers, url, clock.now(), lease)?.alone();
    // It ends with the process, as the registry does that it tells.
    drop(hearth_telemetry::task::spawn("sandbox-announce", announcer.run(CancellationToken::new())));
    Ok((node, said))
}

fn make_private(folder: &Path) -> Result<(), StartError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|source| StartError::DataFolder { path: folder.display().to_string(), source })
}
