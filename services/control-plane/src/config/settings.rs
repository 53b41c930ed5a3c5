//! The settings of a replica in strict types.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU16};
use std::path::PathBuf;
use std::time::Duration;

use hearth_telemetry::LogFormat;
use hearth_types::ReplicaId;

use super::error::ConfigError;
use super::sources::{Merged, Raw, Sources};
use super::table::find;
use super::value;

/// A secret that does not show in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Debug, Clone)]
pub struct Settings {
    pub listen: SocketAddr,
    /// A listener for `/metrics` alone, which asks for no token.
    pub metrics_listen: Option<SocketAddr>,
    /// Absent: a fresh one.
    pub replica_id: Option<ReplicaId>,
    pub data_dir: PathBuf,
    pub agents_dir: Option<PathBuf>,
    pub tokens_file: Option<PathBuf>,
    /// An admin of tenant `default`.
    pub token: Option<Secret>,
    pub no_auth: bool,
    pub max_interactive_children: u32,
    pub interactive_child_idle_ttl: Duration,
    /// Runs of one tenant that are not final; 0: no bound.
    pub max_runs_per_tenant: u64,
    /// The servers of bus and journal; absent: this replica is embedded.
    pub nats_url: Option<String>,
    pub nats_credentials: Option<PathBuf>,
    pub nats_user: Option<String>,
    pub nats_password: Option<Secret>,
    pub redis_url: Option<Secret>,
    /// The certificate authority of NATS and Redis.
    pub stores_ca: Option<PathBuf>,
    /// Separates clusters that share servers.
    pub cluster_name: String,
    pub journal_partitions: NonZeroU16,
    /// Copies of the journal.
    pub journal_replicas: NonZeroU8,
    /// Where others reach this replica; absent: the address that it listens on.
    pub advertise_url: Option<String>,
    pub replica_lease: Duration,
    pub passivate_after: Duration,
    /// Events that stay in a run's journal when older ones are folded away.
    pub journal_keep_events: u64,
    /// Whether the agent `dev/exec` is there.
    pub dev_exec: bool,
    /// Model steps that run at once in this replica.
    pub max_concurrent_steps: usize,
    pub max_concurrent_requests: usize,
    pub max_streams: usize,
    /// Bytes of request bodies that are held at once.
    pub max_body_memory: usize,
    /// How long a reader of a stream may stand still.
    pub stream_stall: Duration,
    /// How long requests in flight may go on once the end was asked for.
    pub shutdown_grace: Duration,
    pub log_format: LogFormat,
    pub log_filter: String,
    pub otlp_endpoint: Option<String>,
    /// Where a test wants this process to end.
    #[cfg(debug_assertions)]
    pub crash_at_append: Option<hearth_journal::CrashPoint>,
    /// Where a test wants this process to write as the next version would.
    #[cfg(debug_assertions)]
    pub next_version: Option<hearth_journal::NextVersion>,
    /// `SANDBOX_…` names and values, not checked here.
    pub sandbox: BTreeMap<String, String>,
}

impl Settings {
    /// Merges the sources and parses what counts.
    ///
    /// # Errors
    /// All unknown names and bad values.
    pub fn load(sources: &Sources) -> Result<Self, ConfigError> {
        let mut reader = Reader { merged: Merged::of(sources) };
        let settings = reader.settings();
        let problems = std::mem::take(&mut reader.merged.problems);
        // The fallbacks of a setting that was refused never get out: the problem does.
        settings.filter(|_| problems.is_empty()).ok_or(ConfigError { problems })
    }
}

struct Reader {
    merged: Merged,
}

impl Reader {
    fn settings(&mut self) -> Option<Settings> {
        // Every setting is read before any of them may end this, so that all problems are told.
        let listen = self.read("listen", |text| text.parse().ok());
        let metrics_listen = self.read_if_set("metrics_listen", |text| text.parse().ok());
        let replica_id = self.read_if_set("replica_id", |text| ReplicaId::parse(text).ok());
        let data_dir = self.read("data_dir", path);
        let agents_dir = self.read_if_set("agents_dir", path);
        let tokens_file = self.read_if_set("tokens_file", path);
        let token = self.read_if_set("token", token);
        let no_auth = self.read("no_auth", value::boolean);
        let children = self.read("max_interactive_children", |text| value::number(text, 0, 10_000));
        let idle_ttl =
            self.read("interactive_child_idle_ttl_ms", |text| value::milliseconds(text, 1_000, 2_592_000_000));
        let runs_per_tenant = self.read("max_runs_per_tenant", |text| value::number(text, 0, 1_000_000_000));
        let nats_url = self.read_if_set("nats_url", not_empty);
        let nats_credentials = self.read_if_set("nats_credentials", path);
        let nats_user = self.read_if_set("nats_user", not_empty);
        let nats_password = self.read_if_set("nats_password", self::token);
        let redis_url = self.read_if_set("redis_url", redis_url);
        let stores_ca = self.read_if_set("stores_ca", path);
        let cluster_name = self.read("cluster_name", cluster_name);
        let partitions = self.read("journal_partitions", |text| value::number(text, 1, 1_024));
        let copies = self.read("journal_replicas", |text| value::number(text, 1, 5).filter(|n| n % 2 == 1));
        let advertise_url = self.read_if_set("advertise_url", http_url);
        let lease = self.read("replica_lease_ms", |text| value::milliseconds(text, 300, 600_000));
        let passivate = self.read("passivate_after_ms", |text| value::milliseconds(text, 10, 86_400_000));
        let keep_events = self.read("journal_keep_events", |text| value::number(text, 1, 1_000_000_000));
        let dev_exec = self.read("dev_exec", value::boolean);
        let steps = self.read("max_concurrent_steps", |text| value::number(text, 1, 1_000_000));
        let requests = self.read("max_concurrent_requests", |text| value::number(text, 8, 1_000_000));
        let streams = self.read("max_streams", |text| value::number(text, 1, 1_000_000));
        let body_mb = self.read("max_body_memory_mb", |text| value::number(text, 16, 1_000_000));
        let stream_stall = self.read("stream_stall", value::duration);
        let shutdown_grace = self.read("shutdown_grace", value::duration);
        let log_format = self.read("log_format", log_format);
        let log_filter = self.read("log_filter", not_empty);
        let otlp_endpoint = self.otlp_endpoint();
        Some(Settings {
            listen: listen?,
            metrics_listen,
            replica_id,
            data_dir: data_dir?,
            agents_dir,
            tokens_file,
            token,
            no_auth: no_auth?,
            max_interactive_children: u32::try_from(children?).ok()?,
            interactive_child_idle_ttl: idle_ttl?,
            max_runs_per_tenant: runs_per_tenant?,
            nats_url,
            nats_credentials,
            nats_user,
            nats_password,
            redis_url,
            stores_ca,
            cluster_name: cluster_name?,
            journal_partitions: u16::try_from(partitions?).ok().and_then(NonZeroU16::new)?,
            journal_replicas: u8::try_from(copies?).ok().and_then(NonZeroU8::new)?,
            advertise_url,
            replica_lease: lease?,
            passivate_after: passivate?,
            journal_keep_events: keep_events?,
            dev_exec: dev_exec?,
            max_concurrent_steps: usize::try_from(steps?).ok()?,
            max_concurrent_requests: usize::try_from(requests?).ok()?,
            max_streams: usize::try_from(streams?).ok()?,
            max_body_memory: usize::try_from(body_mb?).ok()?.checked_mul(1024 * 1024)?,
            stream_stall: stream_stall?,
            shutdown_grace: shutdown_grace?,
            log_format: log_format?,
            log_filter: log_filter?,
            otlp_endpoint,
            #[cfg(debug_assertions)]
            crash_at_append: None,
            #[cfg(debug_assertions)]
            next_version: None,
            sandbox: std::mem::take(&mut self.merged.sandbox),
        })
    }

    /// The general variable of OpenTelemetry counts where Hearth's own setting is absent.
    fn otlp_endpoint(&mut self) -> Option<String> {
        if let Some(raw) = self.merged.otlp_fallback.take() {
            self.merged.values.entry("otlp_endpoint").or_insert(raw);
        }
        self.read_if_set("otlp_endpoint", not_empty)
    }

    fn read<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        if !self.merged.values.contains_key(key) {
            let default = find(key)?.default?.trim_matches('"').to_owned();
            self.merged.values.insert(key, Raw { text: default, origin: "default".to_owned() });
        }
        self.read_if_set(key, parse)
    }

    fn read_if_set<T>(&mut self, key: &'static str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let raw = self.merged.values.get(key)?;
        let parsed = parse(&raw.text);
        if parsed.is_none() {
            let setting = find(key)?;
            let shown = if setting.secret { "a value that is not shown".to_owned() } else { format!("{:?}", raw.text) };
            let problem = format!("`{key}` (from {}) is {shown}; allowed: {}", raw.origin, setting.allowed);
            self.merged.problems.push(problem);
        }
        parsed
    }
}

fn not_empty(text: &str) -> Option<String> {
    (!text.trim().is_empty()).then(|| text.to_owned())
}

/// From the root of the file system: containers and processes with other working folders are told of it.
fn path(text: &str) -> Option<PathBuf> {
    std::path::absolute(not_empty(text)?).ok()
}

fn token(text: &str) -> Option<Secret> {
    let fits = (1..=4096).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    fits.then(|| Secret(text.to_owned()))
}

fn log_format(text: &str) -> Option<LogFormat> {
    match text {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    }
}

fn redis_url(text: &str) -> Option<Secret> {
    (text.starts_with("redis://") || text.starts_with("rediss://")).then(|| Secret(text.to_owned()))
}

fn cluster_name(text: &str) -> Option<String> {
    (text.len() <= 32 && hearth_types::check_id(text).is_ok()).then(|| text.to_owned())
}

fn http_url(text: &str) -> Option<String> {
    (text.starts_with("http://") || text.starts_with("https://")).then(|| text.trim_end_matches('/').to_owned())
}
