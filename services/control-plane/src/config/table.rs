//! The list of all settings.

/// One setting: its name in the file; its variable is `HEARTH_` and the name in capitals.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    pub key: &'static str,
    /// As it would be written in the file; `None`: unset.
    pub default: Option<&'static str>,
    pub allowed: &'static str,
    /// Its value is never shown.
    pub secret: bool,
}

impl Setting {
    pub fn variable(&self) -> String {
        format!("HEARTH_{}", self.key.to_ascii_uppercase())
    }
}

const fn setting(key: &'static str, default: &'static str, allowed: &'static str) -> Setting {
    Setting { key, default: Some(default), allowed, secret: false }
}

const fn unset(key: &'static str, allowed: &'static str) -> Setting {
    Setting { key, default: None, allowed, secret: false }
}

const PATH: &str = "a path";
const ADDRESS: &str = "IP:PORT, such as 127.0.0.1:7420 or [::1]:7420";

/// Every setting of a replica, in the order of the example file.
pub const SETTINGS: &[Setting] = &[
    setting("listen", "\"127.0.0.1:7420\"", ADDRESS),
    unset("metrics_listen", ADDRESS),
    unset("replica_id", "1 to 128 characters of A-Z a-z 0-9 _ -"),
    setting("data_dir", "\"hearth-data\"", PATH),
    unset("agents_dir", PATH),
    unset("tokens_file", PATH),
    Setting { key: "token", default: None, allowed: "1 to 4096 visible ASCII characters", secret: true },
    setting("no_auth", "false", BOOL),
    setting("max_interactive_children", "8", "a number from 0 to 10000"),
    setting("interactive_child_idle_ttl_ms", "1800000", "milliseconds from 1000 to 2592000000"),
    setting("max_runs_per_tenant", "0", "a number from 0 to 1000000000"),
    unset("nats_url", "nats://HOST:PORT, or tls:// for TLS; more of the same cluster after commas"),
    unset("nats_credentials", PATH),
    unset("nats_user", "a name"),
    Setting { key: "nats_password", default: None, allowed: "1 to 4096 visible ASCII characters", secret: true },
    Setting {
        key: "redis_url",
        default: None,
        allowed: "redis://[[USER]:PASSWORD@]HOST:PORT[/DB], or rediss:// for TLS",
        secret: true,
    },
    unset("stores_ca", PATH),
    setting("cluster_name", "\"hearth\"", "1 to 32 characters of A-Z a-z 0-9 _ -"),
    setting("journal_partitions", "8", "a number from 1 to 1024"),
    setting("journal_replicas", "1", "1, 3 or 5"),
    unset("advertise_url", "http://HOST:PORT"),
    setting("replica_lease_ms", "3000", "milliseconds from 300 to 600000"),
    setting("passivate_after_ms", "60000", "milliseconds from 10 to 86400000"),
    setting("journal_keep_events", "10000", "a number from 1 to 1000000000"),
    setting("dev_exec", "false", BOOL),
    setting("max_concurrent_steps", "1024", "a number from 1 to 1000000"),
    setting("max_concurrent_requests", "16384", "a number from 8 to 1000000"),
    setting("max_streams", "4096", "a number from 1 to 1000000"),
    setting("max_body_memory_mb", "256", "a number from 16 to 1000000"),
    setting("stream_stall", "\"30s\"", DURATION),
    setting("shutdown_grace", "\"25s\"", DURATION),
    setting("log_format", "\"text\"", "text or json"),
    setting(
        "log_filter",
        "\"info,opentelemetry=warn,hyper=error,rmcp=off\"",
        "directives such as info,hearth_engine=debug",
    ),
    unset("otlp_endpoint", "http://HOST:PORT"),
];

pub(super) const BOOL: &str = "true or false (1 or 0)";
pub(super) const DURATION: &str = "a number with a unit, from 1ms to 1d, such as 500ms, 30s, 15m, 8h";

pub(super) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}
