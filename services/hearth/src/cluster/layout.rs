//! Which member has which port and which files.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// Members of each kind at the most: their ports are fixed.
pub const MAX_REPLICAS: u16 = 9;
pub const MAX_NODES: u16 = 4;

const NODES_AT: u16 = 9;
const REDIS_AT: u16 = 13;
const NATS_AT: u16 = 14;
const NATS_ROUTES_AT: u16 = 17;
const CONTROL_AT: u16 = 23;

/// Ports from `base` to `base + 23`, and the folder of everything.
#[derive(Debug, Clone)]
pub struct Layout {
    pub data: PathBuf,
    pub base: u16,
    pub nats_servers: u16,
}

impl Layout {
    pub fn replica_port(&self, index: u16) -> u16 {
        self.base + index
    }

    pub fn node_port(&self, index: u16) -> u16 {
        self.base + NODES_AT + index
    }

    pub fn redis_port(&self) -> u16 {
        self.base + REDIS_AT
    }

    pub fn nats_port(&self, index: u16) -> u16 {
        self.base + NATS_AT + index
    }

    pub fn nats_route_port(&self, index: u16) -> u16 {
        self.base + NATS_ROUTES_AT + index
    }

    pub fn control_port(&self) -> u16 {
        self.base + CONTROL_AT
    }

    pub fn redis_url(&self) -> String {
        format!("redis://{}:{}", Ipv4Addr::LOCALHOST, self.redis_port())
    }

    pub fn nats_url(&self, index: u16) -> String {
        format!("nats://{}:{}", Ipv4Addr::LOCALHOST, self.nats_port(index))
    }

    pub fn nats_urls(&self) -> String {
        let urls: Vec<String> = (0..self.nats_servers).map(|index| self.nats_url(index)).collect();
        urls.join(",")
    }

    pub fn folder(&self, id: &str) -> PathBuf {
        self.data.join(id)
    }

    pub fn log(&self, id: &str) -> PathBuf {
        self.data.join("logs").join(format!("{id}.log"))
    }
}

/// Where `restart` finds the running cluster.
pub fn control_file(data: &Path) -> PathBuf {
    data.join("control.json")
}
