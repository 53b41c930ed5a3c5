//! What is asked for, checked before anything is sent.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hearth_types::SystemClock;
use serde::Serialize;

use super::chaos::Kills;
use super::pace::{Ramp, StagePace, ramp};
use crate::Error;
use crate::processes::ClusterMap;

const LONGEST: u64 = 24 * 3600;

/// What a caller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScenarioName {
    /// Opens a resident, sends to it three times, closes it
    OpenSendClose,
    /// Sends to a few of many residents, and now and then to one that sleeps
    Parked,
    /// Sends to children by replicas that are not their owners, and by their parents' turns
    Cross,
    /// Sends to residents that others watch by event streams, and times the events
    Stream,
    /// Opens a sandbox, runs commands in it, closes it
    Sandbox,
    /// Sends while replicas are killed, repeats with the same key, and checks that each counted once
    Chaos,
    /// Mostly sends; some opens and closes, polls and lists
    Mixed,
}

impl ScenarioName {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OpenSendClose => "open-send-close",
            Self::Parked => "parked",
            Self::Cross => "cross",
            Self::Stream => "stream",
            Self::Sandbox => "sandbox",
            Self::Chaos => "chaos",
            Self::Mixed => "mixed",
        }
    }
}

/// Drive a deployment with a scenario and report what it did
///
/// With --users each caller makes its next call when the one before is answered. With --rate calls begin
/// at that rate whatever the answers do, and each time is counted from the moment at which its call was to
/// begin. With --ramp the rate grows until the deployment no longer keeps up.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth-load run mixed --url http://127.0.0.1:7420 --token \"$TOKEN\" --users 16
  hearth-load run cross --cluster up.json --rate 500 --duration 60 --html cross.html
  hearth-load run open-send-close --cluster up.json --ramp 50:5000:12 --json a.json
  hearth-load run chaos --cluster up.json --data ./cluster --hearth target/release/hearth --rate 200")]
pub struct RunArgs {
    #[arg(value_enum)]
    scenario: ScenarioName,
    /// A replica, or a load balancer; several with commas, called in turns [env: HEARTH_URL]
    #[arg(long, value_name = "URL", value_delimiter = ',', conflicts_with = "cluster")]
    url: Vec<String>,
    /// The token to call with; it should be an admin's [env: HEARTH_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// The line that `hearth cluster up` printed, in a file: its replicas and token, whatever the environment says
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Callers at once, each at its next call when the one before is answered [default: 8]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=20_000), conflicts_with_all = ["rate", "ramp"])]
    users: Option<u32>,
    /// Calls that begin in a second
    #[arg(long, value_parser = rate, allow_negative_numbers = true, conflicts_with = "ramp")]
    rate: Option<f64>,
    /// FROM:TO:STEPS, calls a second: each step lasts for --duration
    #[arg(long, value_parser = ramp)]
    ramp: Option<Ramp>,
    /// Seconds, of each stage
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=LONGEST))]
    duration: u64,
    /// Seconds before that, which are not counted
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=600))]
    warm_up: u64,
    /// Calls at the most, over all stages
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    max_calls: u64,
    /// Calls in flight at the most; a call that has to wait for its place counts the wait
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    max_in_flight: u32,
    /// A ramp ends once a hundredth of the calls takes longer than this many milliseconds
    #[arg(long, default_value_t = 1_000.0, value_parser = limit, allow_negative_numbers = true)]
    limit_ms: f64,
    /// Residents to send to
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    residents: u32,
    /// Event streams that watch them
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    streams: u32,
    /// Bytes of each prompt
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=15_000_000))]
    prompt_bytes: u32,
    /// Milliseconds that each turn takes
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=600_000))]
    turn_ms: u64,
    /// Write the results here as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a report here: one page with everything in it
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// chaos: the folder of the cluster, so that killed members can be started again
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// chaos: the program `hearth`
    #[arg(long, value_name = "FILE", default_value = "hearth")]
    hearth: PathBuf,
    /// chaos: seconds between two kills
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    kill_every: u64,
    /// Allow a target that is not on this machine
    #[arg(long)]
    allow_remote: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.01..=200_000.0).contains(rate));
    rate.ok_or_else(|| "a number from 0.01 to 200000".to_owned())
}

fn limit(text: &str) -> Result<f64, String> {
    let limit = text.parse::<f64>().ok().filter(|limit| (0.1..=3_600_000.0).contains(limit));
    limit.ok_or_else(|| "milliseconds from 0.1 to 3600000".to_owned())
}

/// Nobody wants to learn after an hour that the results cannot be kept.
fn writable(path: &std::path::Path) -> Result<(), Error> {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.map(drop).map_err(Error::io(path.display().to_string()))
}

/// The wish, checked.
#[derive(Debug)]
pub(crate) struct Plan {
    pub scenario: ScenarioName,
    pub urls: Vec<String>,
    pub token: Option<String>,
    pub kills: Option<Kills>,
    pub started_at: String,
    pub duration: Duration,
    pub warm_up: Duration,
    pub max_calls: u64,
    pub max_in_flight: usize,
    pub limit_ms: f64,
    pub residents: usize,
    pub streams: usize,
    pub prompt_bytes: usize,
    pub turn_ms: u64,
    pub json: Option<PathBuf>,
    pub html: Option<PathBuf>,
    users: u32,
    rate: Option<f64>,
    ramp: Option<Ramp>,
}

/// What the results depend on, for the report.
#[derive(Debug, Clone, Serialize)]
struct Settings<'p> {
    duration_s: u64,
    warm_up_s: u64,
    residents: usize,
    streams: usize,
    prompt_bytes: usize,
    turn_ms: u64,
    max_in_flight: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    kill_every_s: Option<u64>,
    pace: &'p str,
}

impl Plan {
    /// The environment is asked for what neither the arguments nor a cluster's map say.
    pub(crate) fn of(args: &RunArgs, variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let map = args.cluster.as_deref().map(read_map).transpose()?;
        let urls: Vec<String> = match &map {
            Some(map) => map.replicas.iter().map(|replica| replica.url.clone()).collect(),
            None if args.url.is_empty() => {
                let url = variable("HEARTH_URL").unwrap_or_else(|| "http://127.0.0.1:7420".to_owned());
                url.split(',').map(str::to_owned).collect()
            }
            None => args.url.clone(),
        };
        urls.iter().try_for_each(|url| check_target(url, args.allow_remote))?;
        [&args.json, &args.html].into_iter().flatten().try_for_each(|path| writable(path))?;
        let kills = (args.scenario == ScenarioName::Chaos).then(|| kills(args, map.as_ref())).transpose()?;
        Ok(Self {
            scenario: args.scenario,
            urls,
            token: args.token.clone().or(map.map(|map| map.token)).or_else(|| variable("HEARTH_TOKEN")),
            kills,
            started_at: SystemClock::shared().now().to_string(),
            duration: Duration::from_secs(args.duration),
            warm_up: Duration::from_secs(args.warm_up),
            max_calls: args.max_calls,
            max_in_flight: usize::try_from(args.max_in_flight).unwrap_or(usize::MAX),
            limit_ms: args.limit_ms,
            residents: usize::try_from(args.residents).unwrap_or(usize::MAX),
            streams: usize::try_from(args.streams).unwrap_or(usize::MAX),
            prompt_bytes: usize::try_from(args.prompt_bytes).unwrap_or(usize::MAX),
            turn_ms: args.turn_ms,
            json: args.json.clone(),
            html: args.html.clone(),
            users: args.users.unwrap_or(8),
            rate: args.rate,
            ramp: args.ramp,
        })
    }

    pub(crate) fn ramps(&self) -> bool {
        self.ramp.is_some()
    }

    pub(crate) fn stages(&self) -> Vec<StagePace> {
        match (&self.ramp, self.rate) {
            (Some(ramp), _) => ramp.rates().into_iter().map(|rate| StagePace::Open { rate }).collect(),
            (None, Some(rate)) => vec![StagePace::Open { rate }],
            (None, None) => vec![StagePace::Closed { users: self.users }],
        }
    }

    pub(crate) fn settings(&self) -> serde_json::Value {
        let pace = match (&self.ramp, self.rate) {
            (Some(_), _) => "ramp",
            (None, Some(_)) => "open",
            (None, None) => "closed",
        };
        let settings = Settings {
            duration_s: self.duration.as_secs(),
            warm_up_s: self.warm_up.as_secs(),
            residents: self.residents,
            streams: self.streams,
            prompt_bytes: self.prompt_bytes,
            turn_ms: self.turn_ms,
            max_in_flight: self.max_in_flight,
            kill_every_s: self.kills.as_ref().map(|kills| kills.every.as_secs()),
            pace,
        };
        serde_json::to_value(settings).unwrap_or_default()
    }
}

fn read_map(path: &std::path::Path) -> Result<ClusterMap, Error> {
    let text = std::fs::read_to_string(path).map_err(Error::io(path.display().to_string()))?;
    let line = text.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line)
        .map_err(|error| Error::Usage(format!("{} is not what `hearth cluster up` prints: {error}", path.display())))
}

fn kills(args: &RunArgs, map: Option<&ClusterMap>) -> Result<Kills, Error> {
    let (Some(map), Some(data)) = (map, &args.data) else {
        return Err(Error::Usage("chaos needs --cluster and --data of a `hearth cluster up`".to_owned()));
    };
    if map.replicas.len() < 2 {
        return Err(Error::Usage("chaos needs two replicas or more: one has to be left".to_owned()));
    }
    Ok(Kills {
        replicas: map.replicas.clone(),
        hearth: args.hearth.clone(),
        data: data.clone(),
        every: Duration::from_secs(args.kill_every),
    })
}

fn check_target(url: &str, allow_remote: bool) -> Result<(), Error> {
    let parsed = reqwest::Url::parse(url).ok().filter(|url| ["http", "https"].contains(&url.scheme()));
    let Some(host) = parsed.as_ref().and_then(reqwest::Url::host_str) else {
        return Err(Error::Usage(format!("{url:?} is no URL of a replica, such as http://127.0.0.1:7420")));
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let here = host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if here || allow_remote {
        return Ok(());
    }
    Err(Error::Usage(format!("{url} is not on this machine; --allow-remote drives it all the same")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        run: RunArgs,
    }

    fn plan(args: &[&str]) -> Result<Plan, Error> {
        let words = ["load"].iter().chain(args);
        let parsed = Cli::try_parse_from(words).map_err(|error| Error::Usage(error.to_string()))?;
        Plan::of(&parsed.run, |name| Some(format!("http://localhost/{name}")))
    }

    #[test]
    fn what_is_said_counts_more_than_the_environment() {
        let folder = tempfile::tempdir().unwrap();
        let map = folder.path().join("up.json");
        let member = r#"{"id": "m", "url": "http://127.0.0.1:3", "pid": 1}"#;
        let text = format!(r#"{{"token": "theirs", "replicas": [{member}], "nats": [{member}], "redis": {member}}}"#);
        std::fs::write(&map, text).unwrap();
        let map = map.to_str().unwrap();
        let target = |args: &[&str]| plan(args).map(|plan| (plan.urls.concat(), plan.token.unwrap())).unwrap();
        let both = |url: &str, token: &str| (url.to_owned(), token.to_owned());
        let variables = both("http://localhost/HEARTH_URL", "http://localhost/HEARTH_TOKEN");
        assert_eq!(target(&["mixed"]), variables);
        assert_eq!(target(&["mixed", "--cluster", map]), both("http://127.0.0.1:3", "theirs"));
        assert_eq!(target(&["mixed", "--cluster", map, "--token", "mine"]), both("http://127.0.0.1:3", "mine"));
        assert_eq!(target(&["mixed", "--url", "http://[::1]:1"]), both("http://[::1]:1", &variables.1));
    }

    #[test]
    fn a_target_elsewhere_has_to_be_allowed() {
        assert!(plan(&["mixed", "--url", "http://10.0.0.1:7420"]).is_err());
        assert!(plan(&["mixed", "--url", "http://10.0.0.1:7420", "--allow-remote"]).is_ok());
        assert!(plan(&["mixed", "--url", "http://[::1]:1,http://localhost:2"]).is_ok_and(|plan| plan.urls.len() == 2));
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        for args in [
            &["mixed", "--users", "0"][..],
            &["mixed", "--rate", "nan"],
            &["mixed", "--url", "nonsense", "--allow-remote"],
            &["mixed", "--url", "http://127.0.0.1:1,"],
            &["mixed", "--url", "ftp://127.0.0.1"],
            &["mixed", "--rate", "5", "--users", "3"],
            &["mixed", "--ramp", "10:5:3"],
            &["mixed", "--duration", "0"],
            &["chaos"],
            &["nothing"],
        ] {
            assert!(plan(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn a_ramp_is_a_stage_for_each_rate() {
        let plan = plan(&["mixed", "--ramp", "100:400:3"]).unwrap();
        let rates: Vec<f64> = plan
            .stages()
            .iter()
            .map(|stage| match stage {
                StagePace::Open { rate } => rate.round(),
                StagePace::Closed { .. } => 0.0,
            })
            .collect();
        assert_eq!(rates, [100.0, 200.0, 400.0]);
    }
}
