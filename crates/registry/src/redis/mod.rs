//! A registry in Redis, shared by the replicas of a cluster.

mod scripts;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use hearth_types::{Epoch, ReplicaId, RunId, SandboxId, Tenant};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{FromRedisValue, RedisError, ScriptInvocation, TlsCertificates};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::{Count, Error, Location, NodeRow, Registry, ReplicaRow, SandboxPlace, Seat, WorkspaceHome};
use scripts::Scripts;

const REPLICAS: &str = "replicas";
const NODES: &str = "nodes";
/// Runs that one script seats.
const SEATS_AT_ONCE: usize = 500;

/// Where Redis is and what bounds a call.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis://[[user]:password@]host:port[/db]`, or `rediss://` for TLS.
    pub url: String,
    /// The certificate authority of the server's certificate, instead of the system's; PEM.
    pub ca_file: Option<PathBuf>,
    /// The first part of every key, so that several clusters can share a server.
    pub prefix: String,
    /// Every call ends within this time, also while the server is out of reach.
    pub answer_within: Duration,
}

impl RedisOptions {
    pub fn at(url: impl Into<String>) -> Self {
        Self { url: url.into(), ca_file: None, prefix: "hearth".into(), answer_within: Duration::from_secs(1) }
    }
}

/// The handle; clones share the connection.
///
/// The keys of one run carry its id as their hash tag, and those of the replicas one of their own, so
/// that each script's keys are in one slot of a cluster. Leases end by the server's clock. Nothing
/// scans keys.
#[derive(Clone)]
pub struct RedisRegistry {
    connection: ConnectionManager,
    scripts: &'static Scripts,
    options: RedisOptions,
}

impl RedisRegistry {
    /// How long a location stays without a claim: a bound on what activations that ended without a
    /// release leave behind.
    const LOCATION_TTL: Duration = Duration::from_secs(7 * 24 * 3_600);

    /// Connects at the first call, and again whenever the connection is lost. Needs a tokio runtime.
    /// Fails only when the URL is none of Redis.
    pub fn new(options: RedisOptions) -> Result<Self, Error> {
        let client = match &options.ca_file {
            Some(file) if options.url.starts_with("rediss://") => {
                let root_cert = std::fs::read(file).map_err(|error| Error::Unavailable {
                    reason: format!("cannot read {}: {error}", file.display()),
                })?;
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(root_cert) };
                redis::Client::build_with_tls(options.url.as_str(), certificates)
            }
            _ => redis::Client::open(options.url.as_str()),
        };
        let client = client.map_err(|error| unavailable(&error))?;
        // One attempt per call: the next heartbeat or look-up is the retry.
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(0)
            .set_connection_timeout(Some(options.answer_within))
            .set_response_timeout(Some(options.answer_within));
        let connection =
            ConnectionManager::new_lazy_with_config(client, config).map_err(|error| unavailable(&error))?;
        Ok(Self { connection, scripts: Scripts::get(), options })
    }

    fn run_key(&self, run: &RunId) -> String {
        format!("{}:run:{{{run}}}", self.options.prefix)
    }

    /// The leases and the rows of the members of one kind, in one slot.
    fn member_keys(&self, members: &str) -> [String; 2] {
        let prefix = &self.options.prefix;
        [format!("{{{prefix}:{members}}}:leases"), format!("{{{prefix}:{members}}}:rows")]
    }

    /// The seats of a tenant and how they were counted, in one slot.
    fn seat_keys(&self, tenant: &Tenant) -> [String; 2] {
        let prefix = &self.options.prefix;
        [format!("{{{prefix}:seats:{tenant}}}:runs"), format!("{{{prefix}:seats:{tenant}}}:count")]
    }

    fn homes_key(&self) -> String {
        format!("{}:workspaces", self.options.prefix)
    }

    fn sandbox_key(&self, session: &SandboxId) -> String {
        format!("{}:sandbox:{{{session}}}", self.options.prefix)
    }

    async fn beat<T: Serialize>(&self, members: &str, name: &str, row: &T, lease: Duration) -> Result<bool, Error> {
        let text = encoded(row)?;
        let mut invocation = self.scripts.heartbeat.prepare_invoke();
        invocation.key(&self.member_keys(members)[..]).arg(name).arg(text).arg(millis(lease));
        self.invoke(&invocation).await
    }

    async fn depart(&self, members: &str, name: &str) -> Result<(), Error> {
        let mut invocation = self.scripts.leave.prepare_invoke();
        invocation.key(&self.member_keys(members)[..]).arg(name);
        self.invoke(&invocation).await
    }

    async fn members<T: DeserializeOwned>(&self, members: &str) -> Result<Vec<T>, Error> {
        let mut invocation = self.scripts.replicas.prepare_invoke();
        invocation.key(&self.member_keys(members)[..]);
        let texts: Vec<Option<String>> = self.invoke(&invocation).await?;
        let parse = |text: String| {
            serde_json::from_str::<T>(&text)
                .inspect_err(|error| tracing::warn!(%error, members, "a member's row cannot be read"))
                .ok()
        };
        Ok(texts.into_iter().flatten().filter_map(parse).collect())
    }

    async fn invoke<T: FromRedisValue>(&self, invocation: &ScriptInvocation<'_>) -> Result<T, Error> {
        let mut connection = self.connection.clone();
        match timeout(self.options.answer_within, invocation.invoke_async(&mut connection)).await {
            Ok(answer) => answer.map_err(|error| unavailable(&error)),
            Err(_) => Err(Error::Unavailable { reason: "Redis does not answer in time".into() }),
        }
    }
}

/// Everything that goes wrong here is of one kind: the caller goes on without the registry.
fn unavailable(error: &RedisError) -> Error {
    Error::Unavailable { reason: error.to_string() }
}

/// Epochs are compared as text of one length: a number in Lua holds 53 bits.
fn epoch_text(epoch: Epoch) -> String {
    format!("{:020}", epoch.0)
}

#[async_trait]
impl Registry for RedisRegistry {
    async fn claim(&self, run: &RunId, location: Location) -> Result<(), Error> {
        let mut invocation = self.scripts.claim.prepare_invoke();
        invocation.key(self.run_key(run)).arg(epoch_text(location.epoch)).arg(location.replica.as_str());
        invocation.arg(millis(Self::LOCATION_TTL));
        self.invoke(&invocation).await
    }

    async fn release(&self, run: &RunId, location: &Location) -> Result<(), Error> {
        let mut invocation = self.scripts.release.prepare_invoke();
        invocation.key(self.run_key(run)).arg(epoch_text(location.epoch)).arg(location.replica.as_str());
        self.invoke(&invocation).await
    }

    async fn locate(&self, run: &RunId) -> Result<Option<Location>, Error> {
        let mut invocation = self.scripts.locate.prepare_invoke();
        invocation.key(self.run_key(run));
        let (epoch, replica): (Option<String>, Option<String>) = self.invoke(&invocation).await?;
        let (Some(epoch), Some(replica)) = (epoch, replica) else { return Ok(None) };
        // What cannot be read says nothing, as what is missing does.
        let parsed = ReplicaId::parse(&replica).ok().zip(epoch.parse().ok());
        Ok(parsed.map(|(replica, epoch)| Location { replica, epoch: Epoch(epoch) }))
    }

    async fn heartbeat(&self, row: ReplicaRow, lease: Duration) -> Result<bool, Error> {
        self.beat(REPLICAS, row.replica.as_str(), &row, lease).await
    }

    async fn leave(&self, replica: &ReplicaId) -> Result<(), Error> {
        self.depart(REPLICAS, replica.as_str()).await
    }

    async fn replicas(&self) -> Result<Vec<ReplicaRow>, Error> {
        let mut rows: Vec<ReplicaRow> = self.members(REPLICAS).await?;
        rows.sort_by(|a, b| a.replica.cmp(&b.replica));
        Ok(rows)
    }

    async fn announce(&self, row: NodeRow, lease: Duration) -> Result<(), Error> {
        self.beat(NODES, &row.node, &row, lease).await.map(drop)
    }

    async fn withdraw(&self, node: &str) -> Result<(), Error> {
        self.depart(NODES, node).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>, Error> {
        let mut rows: Vec<NodeRow> = self.members(NODES).await?;
        rows.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(rows)
    }

    async fn take_seat(&self, tenant: &Tenant, run: &RunId, limit: u64) -> Result<Seat, Error> {
        let mut invocation = self.scripts.take_seat.prepare_invoke();
        invocation.key(&self.seat_keys(tenant)[..]).arg(run.as_str()).arg(limit);
        let (granted, taken, ago): (bool, u64, i64) = self.invoke(&invocation).await?;
        let count = match ago {
            -2 => Count::Whole,
            -1 => Count::Lost,
            ago => Count::Recounted { ago: Duration::from_millis(ago.unsigned_abs()) },
        };
        Ok(Seat { granted, taken, count })
    }

    async fn leave_seat(&self, tenant: &Tenant, run: &RunId) -> Result<(), Error> {
        let mut invocation = self.scripts.leave_seat.prepare_invoke();
        invocation.key(&self.seat_keys(tenant)[..]).arg(run.as_str());
        self.invoke(&invocation).await
    }

    async fn seats(&self, tenant: &Tenant, skip: u64, limit: usize) -> Result<Vec<(RunId, Duration)>, Error> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let mut invocation = self.scripts.seats.prepare_invoke();
        invocation.key(&self.seat_keys(tenant)[..]).arg(skip).arg(skip.saturating_add(limit as u64 - 1));
        let rows: Vec<(String, u64)> = self.invoke(&invocation).await?;
        let parse = |(run, ms): (String, u64)| Some((RunId::parse(&run).ok()?, Duration::from_millis(ms)));
        Ok(rows.into_iter().filter_map(parse).collect())
    }

    async fn seat_all(&self, tenant: &Tenant, runs: &[RunId]) -> Result<(), Error> {
        for some in runs.chunks(SEATS_AT_ONCE) {
            let mut invocation = self.scripts.seat_all.prepare_invoke();
            invocation.key(&self.seat_keys(tenant)[..]);
            some.iter().for_each(|run| {
                invocation.arg(run.as_str());
            });
            self.invoke::<()>(&invocation).await?;
        }
        Ok(())
    }

    async fn counted(&self, tenant: &Tenant, whole: bool) -> Result<(), Error> {
        let mut invocation = self.scripts.counted.prepare_invoke();
        invocation.key(&self.seat_keys(tenant)[..]).arg(i32::from(whole));
        self.invoke(&invocation).await
    }

    async fn home(&self, workspace: &str) -> Result<Option<WorkspaceHome>, Error> {
        let mut invocation = self.scripts.home.prepare_invoke();
        invocation.key(self.homes_key()).arg(workspace);
        let text: Option<String> = self.invoke(&invocation).await?;
        text.map(|text| parsed("a workspace's home", &text)).transpose()
    }

    async fn move_home(&self, workspace: &str, home: WorkspaceHome) -> Result<WorkspaceHome, Error> {
        let text = encoded(&home)?;
        let mut invocation = self.scripts.move_home.prepare_invoke();
        invocation.key(self.homes_key()).arg(workspace).arg(home.generation).arg(text);
        let stands: String = self.invoke(&invocation).await?;
        parsed("a workspace's home", &stands)
    }

    async fn forget_home(&self, workspace: &str) -> Result<(), Error> {
        let mut invocation = self.scripts.forget_home.prepare_invoke();
        invocation.key(self.homes_key()).arg(workspace);
        self.invoke(&invocation).await
    }

    async fn note_sandbox(&self, session: &SandboxId, place: SandboxPlace, keep: Duration) -> Result<(), Error> {
        let mut invocation = self.scripts.note_sandbox.prepare_invoke();
        invocation.key(self.sandbox_key(session)).arg(encoded(&place)?).arg(millis(keep).max(1));
        self.invoke(&invocation).await
    }

    async fn sandbox(&self, session: &SandboxId) -> Result<Option<SandboxPlace>, Error> {
        let mut invocation = self.scripts.sandbox.prepare_invoke();
        invocation.key(self.sandbox_key(session));
        let text: Option<String> = self.invoke(&invocation).await?;
        text.map(|text| parsed("a session's place", &text)).transpose()
    }
}

fn encoded(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Unavailable { reason: error.to_string() })
}

fn parsed<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Unavailable { reason: format!("{what}: {error}") })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
