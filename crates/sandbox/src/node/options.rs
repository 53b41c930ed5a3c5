//! What the operator sets for a node, parsed once from `SANDBOX_…` variables.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// The session image that `cargo xtask image` builds.
pub const DEFAULT_IMAGE: &str = "hearth-session:latest";
/// Size of a `/work` that is not durable, where the open names none and the ceiling allows it.
pub const DEFAULT_TMPFS_MB: u64 = 512;
/// What a node counts of its memory per session: most of them are idle most of the time.
const MEMORY_PER_SESSION_MB: u64 = 256;

/// The most that one session may have; also what it gets where its open says nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ceiling {
    pub cpu: f64,
    pub mem_mb: u64,
    pub pids: u64,
    /// The one limit whose default is lower, [`DEFAULT_TMPFS_MB`]: its pages count as memory.
    pub tmpfs_mb: u64,
}

impl Default for Ceiling {
    fn default() -> Self {
        Self { cpu: 2.0, mem_mb: 2_048, pids: 512, tmpfs_mb: 2_048 }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct NodeOptions {
    /// Shown as `node`, and in the label of that name.
    pub name: String,
    /// Identity, lock and records; one node per folder.
    pub state_dir: PathBuf,
    /// Absent: durable workspaces are refused.
    pub workspace_root: Option<PathBuf>,
    pub image: String,
    /// Images that an open may name besides `image`. Absent: all that are on the host, since none is
    /// ever fetched.
    pub allowed_images: Option<Vec<String>>,
    /// The engine's runtime for sessions that name none. Absent: that of the first driver.
    pub runtime: Option<String>,
    pub max_sessions: NonZeroUsize,
    /// Sessions that are kept ready of each kind that is asked for; they do not count as sessions. None
    /// by default: they hold memory, and what a killed node leaves of them stays until it starts again.
    pub pool_size: usize,
    /// What a durable workspace may hold.
    pub max_workspace_mb: u64,
    pub idle_ttl: Duration,
    pub max_ttl: Duration,
    pub ceiling: Ceiling,
    pub allow_egress: bool,
    /// Whether callers may put secrets into the commands' environment.
    pub allow_env_injection: bool,
    pub sweep_interval: Duration,
}

/// A variable that stops the start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is {value:?}; allowed: {allowed}")]
pub struct OptionsError {
    pub variable: String,
    pub value: String,
    pub allowed: String,
}

impl NodeOptions {
    pub fn new(name: impl Into<String>, state_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            state_dir: state_dir.into(),
            workspace_root: None,
            image: DEFAULT_IMAGE.to_owned(),
            allowed_images: None,
            runtime: None,
            max_sessions: sessions_for_memory(),
            pool_size: 0,
            max_workspace_mb: 10 * 1_024,
            idle_ttl: Duration::from_secs(15 * 60),
            max_ttl: Duration::from_secs(8 * 3600),
            ceiling: Ceiling::default(),
            allow_egress: false,
            allow_env_injection: false,
            sweep_interval: Duration::from_secs(5),
        }
    }

    /// The defaults changed by the variables that begin with `SANDBOX_`. `elsewhere` names those that
    /// the service reads itself; any other unknown one stops the start.
    pub fn from_vars(
        name: impl Into<String>,
        state_dir: impl Into<PathBuf>,
        vars: &BTreeMap<String, String>,
        elsewhere: &[&str],
    ) -> Result<Self, OptionsError> {
        let mut options = Self::new(name, state_dir);
        let ours = vars.iter().filter(|(key, _)| key.starts_with("SANDBOX_") && !elsewhere.contains(&key.as_str()));
        for (variable, value) in ours {
            options.set(Setting { variable, value })?;
        }
        if options.idle_ttl > options.max_ttl {
            return Err(OptionsError {
                variable: "SANDBOX_SESSION_IDLE_TTL".to_owned(),
                value: format!("{}s", options.idle_ttl.as_secs()),
                allowed: format!("at most SANDBOX_SESSION_MAX_TTL, {}s", options.max_ttl.as_secs()),
            });
        }
        Ok(options)
    }

    fn set(&mut self, setting: Setting<'_>) -> Result<(), OptionsError> {
        match setting.variable {
            "SANDBOX_WORKSPACE_ROOT" => self.workspace_root = Some(setting.folder()?),
            "SANDBOX_IMAGE" => self.image = setting.word()?,
            "SANDBOX_ALLOWED_IMAGES" => self.allowed_images = Some(setting.words()?),
            "SANDBOX_RUNTIME" => self.runtime = Some(setting.word()?),
            "SANDBOX_MAX_SESSIONS" => self.max_sessions = setting.count()?,
            "SANDBOX_POOL_SIZE" => self.pool_size = usize::try_from(setting.whole(0..=128)?).unwrap_or(0),
            "SANDBOX_MAX_WORKSPACE_MB" => self.max_workspace_mb = setting.whole(1..=1 << 30)?,
            "SANDBOX_SESSION_IDLE_TTL" => self.idle_ttl = setting.span(1..=30 * 86_400)?,
            "SANDBOX_SESSION_MAX_TTL" => self.max_ttl = setting.span(1..=30 * 86_400)?,
            "SANDBOX_SWEEP_INTERVAL" => self.sweep_interval = setting.span(1..=10)?,
            "SANDBOX_MAX_CPU" => self.ceiling.cpu = setting.cpus()?,
            "SANDBOX_MAX_MEM_MB" => self.ceiling.mem_mb = setting.whole(16..=1 << 22)?,
            "SANDBOX_MAX_PIDS" => self.ceiling.pids = setting.whole(8..=1 << 20)?,
            "SANDBOX_MAX_TMPFS_MB" => self.ceiling.tmpfs_mb = setting.whole(1..=2_048)?,
            "SANDBOX_ALLOW_EGRESS" => self.allow_egress = setting.flag()?,
            "SANDBOX_ALLOW_ENV_INJECTION" => self.allow_env_injection = setting.flag()?,
            _ => return Err(setting.refuse("a variable that Hearth knows; this one it does not")),
        }
        Ok(())
    }
}

/// From the memory of this machine, between 8 and 512.
fn sessions_for_memory() -> NonZeroUsize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let mb = total.and_then(|kb| kb.trim().parse::<u64>().ok()).map_or(2_048, |kb| kb / 1_024);
    let sessions = usize::try_from(mb / MEMORY_PER_SESSION_MB).unwrap_or(512);
    NonZeroUsize::new(sessions.clamp(8, 512)).unwrap_or(NonZeroUsize::MIN)
}

#[derive(Clone, Copy)]
struct Setting<'a> {
    variable: &'a str,
    value: &'a str,
}

impl Setting<'_> {
    fn refuse(self, allowed: impl Into<String>) -> OptionsError {
        OptionsError { variable: self.variable.to_owned(), value: self.value.to_owned(), allowed: allowed.into() }
    }

    fn flag(self) -> Result<bool, OptionsError> {
        match self.value {
            "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            _ => Err(self.refuse("true, false, 1 or 0")),
        }
    }

    fn whole(self, range: std::ops::RangeInclusive<u64>) -> Result<u64, OptionsError> {
        let value = self.value.parse::<u64>().ok().filter(|value| range.contains(value));
        value.ok_or_else(|| self.refuse(format!("a whole number from {} to {}", range.start(), range.end())))
    }

    fn count(self) -> Result<NonZeroUsize, OptionsError> {
        let value = self.whole(1..=10_000)?;
        usize::try_from(value).ok().and_then(NonZeroUsize::new).ok_or_else(|| self.refuse("1 to 10000"))
    }

    fn cpus(self) -> Result<f64, OptionsError> {
        let value = self.value.parse::<f64>().ok().filter(|value| (0.01..=1_024.0).contains(value));
        value.ok_or_else(|| self.refuse("a number from 0.01 to 1024"))
    }

    fn word(self) -> Result<String, OptionsError> {
        let fits = !self.value.is_empty() && !self.value.contains(char::is_whitespace);
        if fits { Ok(self.value.to_owned()) } else { Err(self.refuse("one word")) }
    }

    fn words(self) -> Result<Vec<String>, OptionsError> {
        let words: Vec<String> = self.value.split(',').map(|word| word.trim().to_owned()).collect();
        let fits = words.iter().all(|word| !word.is_empty() && !word.contains(char::is_whitespace));
        if fits { Ok(words) } else { Err(self.refuse("names with commas between them")) }
    }

    fn folder(self) -> Result<PathBuf, OptionsError> {
        let path = PathBuf::from(self.value);
        if path.is_absolute() { Ok(path) } else { Err(self.refuse("an absolute path")) }
    }

    /// `90s`, `15m`, `8h`, `1d` or `500ms`, within a range of whole seconds.
    fn span(self, seconds: std::ops::RangeInclusive<u64>) -> Result<Duration, OptionsError> {
        let digits = self.value.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = self.value.split_at(digits);
        let unit_ms = match unit {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            "d" => Some(86_400_000),
            _ => None,
        };
        let span = number.parse::<u64>().ok().zip(unit_ms).and_then(|(number, ms)| number.checked_mul(ms));
        let (low, high) = (Duration::from_secs(*seconds.start()), Duration::from_secs(*seconds.end()));
        span.map(Duration::from_millis)
            .filter(|span| (low..=high).contains(span))
            .ok_or_else(|| self.refuse(format!("a duration such as 90s, 15m or 8h, from {low:?} to {high:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<NodeOptions, OptionsError> {
        let vars = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        NodeOptions::from_vars("node-0", "/state", &vars, &["SANDBOX_LISTEN_ADDR"])
    }

    #[test]
    fn nothing_set_gives_the_defaults_of_the_contract() {
        let options = parse(&[("PATH", "/bin"), ("SANDBOX_LISTEN_ADDR", ":9000")]).unwrap();
        assert_eq!(options, NodeOptions::new("node-0", "/state"));
        assert_eq!(options.idle_ttl, Duration::from_secs(900));
        assert_eq!(options.max_ttl, Duration::from_secs(28_800));
        assert!(!options.allow_egress && options.workspace_root.is_none());
        assert!(options.sweep_interval <= Duration::from_secs(10));
    }

    #[test]
    fn every_variable_is_heard() {
        let options = parse(&[
            ("SANDBOX_WORKSPACE_ROOT", "/srv/work"),
            ("SANDBOX_IMAGE", "mine:1"),
            ("SANDBOX_ALLOWED_IMAGES", "a:1, b"),
            ("SANDBOX_RUNTIME", "runsc"),
            ("SANDBOX_MAX_SESSIONS", "3"),
            ("SANDBOX_POOL_SIZE", "4"),
            ("SANDBOX_MAX_WORKSPACE_MB", "100"),
            ("SANDBOX_SESSION_IDLE_TTL", "5s"),
            ("SANDBOX_SESSION_MAX_TTL", "1h"),
            ("SANDBOX_SWEEP_INTERVAL", "1s"),
            ("SANDBOX_MAX_CPU", "0.5"),
            ("SANDBOX_MAX_MEM_MB", "256"),
            ("SANDBOX_MAX_PIDS", "64"),
            ("SANDBOX_MAX_TMPFS_MB", "32"),
            ("SANDBOX_ALLOW_EGRESS", "true"),
            ("SANDBOX_ALLOW_ENV_INJECTION", "1"),
        ])
        .unwrap();
        assert_eq!(options.ceiling, Ceiling { cpu: 0.5, mem_mb: 256, pids: 64, tmpfs_mb: 32 });
        assert_eq!(options.allowed_images, Some(vec!["a:1".to_owned(), "b".to_owned()]));
        assert_eq!((options.image.as_str(), options.runtime.as_deref()), ("mine:1", Some("runsc")));
        assert_eq!((options.max_sessions.get(), options.idle_ttl), (3, Duration::from_secs(5)));
        assert!(options.allow_egress && options.allow_env_injection);
        assert_eq!((options.pool_size, options.max_workspace_mb), (4, 100));
        assert_eq!(options.workspace_root, Some(PathBuf::from("/srv/work")));
    }

    #[test]
    fn a_bad_value_is_refused_with_its_name_its_value_and_what_is_allowed() {
        for (variable, value) in [
            ("SANDBOX_SESSION_IDLE_TTL", "15"),
            ("SANDBOX_SESSION_IDLE_TTL", "0s"),
            ("SANDBOX_SESSION_IDLE_TTL", "99h"),
            ("SANDBOX_ALLOW_EGRESS", "yes"),
            ("SANDBOX_MAX_CPU", "nan"),
            ("SANDBOX_MAX_MEM_MB", "-1"),
            ("SANDBOX_MAX_SESSIONS", "0"),
            ("SANDBOX_POOL_SIZE", "129"),
            ("SANDBOX_WORKSPACE_ROOT", "work"),
            ("SANDBOX_IMAGE", ""),
            ("SANDBOX_TYPO", "1"),
        ] {
            let refused = parse(&[(variable, value)]).unwrap_err();
            assert_eq!(refused.variable, variable, "{value}");
            assert!(refused.to_string().contains("allowed: "), "{refused}");
        }
    }
}
