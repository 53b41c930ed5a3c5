//! The settings of a node, from `SANDBOX_…` and a few `HEARTH_…` variables.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hearth_sandbox::node::{NodeOptions, OptionsError};

/// Variables that the service reads itself, besides those of the drivers.
const OWN: &[&str] =
    &["SANDBOX_LISTEN_ADDR", "SANDBOX_AUTH_TOKEN", "SANDBOX_NODE_ID", "SANDBOX_STATE_DIR", "SANDBOX_ADVERTISE_URL"];

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error("SANDBOX_AUTH_TOKEN is not set: without it anybody who reaches the node could run commands")]
    NoToken,
}

pub struct NodeSettings {
    pub listen: SocketAddr,
    pub token: String,
    pub node_id: String,
    /// Where replicas reach this node; absent: the address that it listens on.
    pub advertise_url: Option<String>,
    pub redis_url: Option<String>,
    pub nats_url: Option<String>,
    pub nats_credentials: Option<PathBuf>,
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
    /// Reads the environment, which is passed in.
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
        let lease_ms = get("HEARTH_REPLICA_LEASE_MS").unwrap_or_else(|| "3000".to_owned());
        let lease = lease_ms.parse().ok().filter(|ms| (300..=600_000).contains(ms));
        let lease =
            lease.ok_or_else(|| bad("HEARTH_REPLICA_LEASE_MS", &lease_ms, "milliseconds from 300 to 600000"))?;
        let state_dir = PathBuf::from(get("SANDBOX_STATE_DIR").unwrap_or_else(|| "hearth-node".to_owned()));
        let elsewhere: Vec<&str> = OWN.iter().chain(hearth_sandbox::DRIVER_VARIABLES).copied().collect();
        Ok(Self {
            listen,
            token: get("SANDBOX_AUTH_TOKEN").ok_or(SettingsError::NoToken)?,
            options: NodeOptions::from_vars(&node_id, state_dir, &variables, &elsewhere)?,
            node_id,
            advertise_url: get("SANDBOX_ADVERTISE_URL"),
            redis_url: get("HEARTH_REDIS_URL"),
            nats_url: get("HEARTH_NATS_URL"),
            nats_credentials: get("HEARTH_NATS_CREDENTIALS").map(PathBuf::from),
            cluster_name: get("HEARTH_CLUSTER_NAME").unwrap_or_else(|| "hearth".to_owned()),
            lease: Duration::from_millis(lease),
            variables,
            host_env: env,
        })
    }
}
