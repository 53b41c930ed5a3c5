//! The settings of a node, from `SANDBOX_…` and a few `HEARTH_…` variables.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hearth_sandbox::node::{NodeOptions, OptionsError};

use crate::auth::{Access, AccessError};
use crate::mcp::McpSettings;
use crate::tokens::{self, TokensError};

/// Variables that the service reads itself, besides those of the drivers.
const OWN: &[&str] = &[
    "SANDBOX_LISTEN_ADDR",
    "SANDBOX_AUTH_TOKEN",
    "SANDBOX_TOKENS_FILE",
    "SANDBOX_NODE_ID",
    "SANDBOX_STATE_DIR",
    "SANDBOX_ADVERTISE_URL",
    "SANDBOX_MCP_MAX_SESSIONS",
    "SANDBOX_MCP_SESSION_IDLE_MS",
];

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(transparent)]
    Tokens(#[from] TokensError),
}

pub struct NodeSettings {
    pub listen: SocketAddr,
    pub access: Access,
    pub mcp: McpSettings,
    pub node_id: String,
    /// Where replicas reach this node; absent: the address that it listens on.
    pub advertise_url: Option<String>,
    pub redis_url: Option<String>,
    pub nats_url: Option<String>,
    pub nats_credentials: Option<PathBuf>,
    /// Name and password.
    pub nats_user: Option<(String, String)>,
    /// The certificate authority of NATS and Redis.
    pub stores_ca: Option<PathBuf>,
    pub cluster_name: String,
    pub lease: Duration,
    pub options: NodeOptions,
    /// The `SANDBOX_…` variables, for the drivers.
    pub variables: BTreeMap<String, String>,
    /// The environment of the host.
    pub host_env: BTreeMap<String, String>,
}

fn bad(variable: &str, value: &str, allowed: &str) -> OptionsError {
    OptionsError { variable: variable.to_owned(), value: value.to_owned(), allowed: allowed.to_owned() }
}

impl NodeSettings {
    /// Reads the environment, which is passed in, and the tokens file that it names.
    ///
    /// # Errors
    /// A variable that is unknown or has a bad value; no token.
    pub fn load(env: BTreeMap<String, String>) -> Result<Self, SettingsError> {
        let variables: BTreeMap<String, String> =
            env.iter().filter(|(name, _)| name.starts_with("SANDBOX_")).map(|(k, v)| (k.clone(), v.clone())).collect();
        let get = |name: &str| env.get(name).filter(|value| !value.is_empty()).cloned();
        let listen = get("SANDBOX_LISTEN_ADDR").unwrap_or_else(|| ":9000".to_owned());
        let full = if listen.starts_with(':') { format!("0.0.0.0{listen}") } else { listen.clone() };
        let listen = full.parse().map_err(|_| bad("SANDBOX_LISTEN_ADDR", &listen, "[IP]:PORT, such as :9000"))?;
        let node_id = get("SANDBOX_NODE_ID").unwrap_or_else(|| "node-0".to_owned());
        hearth_types::check_id(&node_id)
            .map_err(|_| bad("SANDBOX_NODE_ID", &node_id, "1 to 128 characters of A-Z a-z 0-9 _ -"))?;
        let number = |name: &str, default: u64, range: std::ops::RangeInclusive<u64>| {
            let Some(text) = get(name) else { return Ok(default) };
            let allowed = format!("a whole number from {} to {}", range.start(), range.end());
            text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| bad(name, &text, &allowed))
        };
        let lease = number("HEARTH_REPLICA_LEASE_MS", 3_000, 300..=600_000)?;
        let mcp_sessions = number("SANDBOX_MCP_MAX_SESSIONS", 1_024, 1..=100_000)?;
        let mcp_idle = number("SANDBOX_MCP_SESSION_IDLE_MS", 1_800_000, 1_000..=86_400_000)?;
        let no_auth = match get("HEARTH_NO_AUTH").as_deref() {
            None | Some("0" | "false") => false,
            Some("1" | "true") => true,
            Some(other) => return Err(bad("HEARTH_NO_AUTH", other, "true or false (1 or 0)").into()),
        };
        let bound = match get("SANDBOX_TOKENS_FILE") {
            None => Vec::new(),
            Some(path) => tokens::read(Path::new(&path))?,
        };
        let state_dir = PathBuf::from(get("SANDBOX_STATE_DIR").unwrap_or_else(|| "hearth-node".to_owned()));
        let elsewhere: Vec<&str> = OWN.iter().chain(hearth_sandbox::DRIVER_VARIABLES).copied().collect();
        let options = NodeOptions::from_vars(&node_id, state_dir, &variables, &elsewhere)?;
        Ok(Self {
            listen,
            access: Access::new(get("SANDBOX_AUTH_TOKEN").as_deref(), bound, no_auth, listen)?,
            mcp: McpSettings {
                max_sessions: usize::try_from(mcp_sessions).unwrap_or(usize::MAX),
                session_idle: Duration::from_millis(mcp_idle),
                allow_env_injection: options.allow_env_injection,
            },
            options,
            node_id,
            advertise_url: get("SANDBOX_ADVERTISE_URL"),
            redis_url: get("HEARTH_REDIS_URL"),
            nats_url: get("HEARTH_NATS_URL"),
            nats_credentials: get("HEARTH_NATS_CREDENTIALS").map(PathBuf::from),
            nats_user: get("HEARTH_NATS_USER").zip(get("HEARTH_NATS_PASSWORD")),
            stores_ca: get("HEARTH_STORES_CA").map(PathBuf::from),
            cluster_name: get("HEARTH_CLUSTER_NAME").unwrap_or_else(|| "hearth".to_owned()),
            lease: Duration::from_millis(lease),
            variables,
            host_env: env,
        })
    }
}
