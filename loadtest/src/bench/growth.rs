//! How cost grows: one curve for each thing that there can be more of, drawn into docs/growth.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use futures::{StreamExt, TryStreamExt, stream};
use hearth_client::{Client, ListRuns, Send};
use tokio::time::Instant;

use super::embedded::{open_residents, send};
use super::paired::{Caller, crowd};
use super::{Plan, sandbox};
use crate::floors::filler;
use crate::latencies::Latencies;
use crate::processes::{Cluster, DevServer};
use crate::report::svg::{Chart, Line};
use crate::{Error, machine, seed};

/// What there can be more of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Axis {
    Residents,
    Replicas,
    Turns,
    Bytes,
    Streams,
    Sandboxes,
}

impl Axis {
    fn name(self) -> &'static str {
        match self {
            Self::Residents => "residents",
            Self::Replicas => "replicas",
            Self::Turns => "turns",
            Self::Bytes => "bytes",
            Self::Streams => "streams",
            Self::Sandboxes => "sandboxes",
        }
    }
}

/// A curve under way: the same number of values at each step.
#[derive(Debug)]
pub(super) struct Curve {
    names: Vec<&'static str>,
    points: Vec<(f64, Vec<f64>)>,
}

impl Curve {
    pub(super) fn of(names: &[&'static str]) -> Self {
        Self { names: names.to_vec(), points: Vec::new() }
    }

    pub(super) fn put(&mut self, plan: &Plan, at: u64, values: Vec<f64>) {
        let shown: Vec<String> = self
            .names
            .iter()
            .zip(&values)
            .map(|(name, value)| format!("{name} {}", crate::report::number(*value)))
            .collect();
        plan.say(&format!("{at}: {}", shown.join(", ")));
        #[allow(clippy::cast_precision_loss, reason = "a step of a curve")]
        self.points.push((at as f64, values));
    }

    fn chart(&self, title: &str, x: &str, y: &str) -> Chart {
        let line = |(number, name): (usize, &&str)| Line {
            name: (*name).to_owned(),
            points: self.points.iter().map(|(at, values)| (*at, values[number])).collect(),
        };
        let lines = self.names.iter().enumerate().map(line).collect();
        Chart {
            title: title.to_owned(),
            x: x.to_owned(),
            y: y.to_owned(),
            log_x: true,
            log_y: true,
            lines,
            marks: Vec::new(),
        }
    }
}

/// Measures the axes one after the other, and draws each as soon as it is known.
pub(super) async fn measure(plan: &Plan, only: &[Axis], root: &Path) -> Result<(), Error> {
    let docs = root.join("docs/growth");
    std::fs::create_dir_all(&docs).map_err(Error::io(docs.display().to_string()))?;
    let mut failed = Vec::new();
    for axis in Axis::value_variants().iter().filter(|axis| only.is_empty() || only.contains(axis)) {
        let folder = super::folder(root)?;
        eprintln!("== growth of {}", axis.name());
        let drawing = async {
            match axis {
                Axis::Residents => Box::pin(residents(plan, folder.path())).await,
                Axis::Replicas => Box::pin(replicas(plan, folder.path())).await,
                Axis::Turns => Box::pin(turns(plan, folder.path())).await,
                Axis::Bytes => Box::pin(bytes(plan, folder.path())).await,
                Axis::Streams => Box::pin(streams(plan, folder.path())).await,
                Axis::Sandboxes => Box::pin(sandboxes(plan, folder.path())).await,
            }
        };
        match plan.stop.unless(drawing).await {
            Ok(chart) => {
                let path = docs.join(format!("{}.svg", axis.name()));
                std::fs::write(&path, format!("{}\n", chart.draw())).map_err(Error::io(path.display().to_string()))?;
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                eprintln!("   {} failed: {error}", axis.name());
                failed.push(axis.name());
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::program("growth", format!("not drawn: {}", failed.join(", ")))) }
}

/// Steps up to a bound: fewer when it is to be quick.
fn steps(plan: &Plan, all: &[u64]) -> Vec<u64> {
    let count = if plan.quick { 2 } else { all.len() };
    all.iter().copied().take(count).collect()
}

async fn residents(plan: &Plan, folder: &Path) -> Result<Chart, Error> {
    let mut curve = Curve::of(&["restart ms", "page p99 ms", "wake p50 ms", "memory MiB"]);
    let data = folder.join("data");
    let mut there = 0;
    let most = if plan.million { 1_000_000 } else { 100_000 };
    for count in steps(plan, &[1_000, 10_000, 100_000, 300_000, 1_000_000]).into_iter().filter(|step| *step <= most) {
        seed::seed_folder(&data, there..count).await?;
        there = count;
        let mut server = DevServer::start(&plan.hearth, &data, &[]).await?;
        let client = server.client()?;
        let (mut pages, mut wakes, mut cursor) = (Latencies::default(), Latencies::default(), None);
        for number in 0..200 {
            let began = Instant::now();
            let filter = ListRuns { limit: Some(50), cursor, ..ListRuns::default() };
            cursor = client.list_residents(&filter).await?["next_cursor"].as_str().map(str::to_owned);
            pages.record(began.elapsed());
            let began = Instant::now();
            send(&client, seed::resident(number * (count / 200)).as_str()).await?;
            wakes.record(began.elapsed());
        }
        #[allow(clippy::cast_precision_loss, reason = "bytes of memory")]
        let memory = machine::private_bytes(server.program.pid()).unwrap_or(0) as f64 / 1048576.0;
        let values = vec![server.started_in.as_secs_f64() * 1e3, pages.ms(0.99), wakes.ms(0.5), memory];
        curve.put(plan, count, values);
        server.program.kill();
    }
    Ok(curve.chart("Parked residents on one server", "residents", "ms, MiB"))
}

async fn replicas(plan: &Plan, folder: &Path) -> Result<Chart, Error> {
    let mut curve = Curve::of(&["turns a second, 64 callers", "send p50 ms"]);
    for count in steps(plan, &[1, 3, 5]) {
        let replicas = u16::try_from(count).unwrap_or(1);
        let cluster = Cluster::start(&plan.hearth, &folder.join(format!("cluster-{count}")), replicas).await?;
        let clients = Arc::new(cluster.clients()?);
        let mut residents = Vec::new();
        for client in clients.iter() {
            residents.extend(open_residents(client, 64_usize.div_ceil(clients.len())).await?);
        }
        let mut one = Latencies::default();
        for _ in 0..200 {
            let began = Instant::now();
            send(&clients[0], &residents[0]).await?;
            one.record(began.elapsed());
        }
        let residents = Arc::new(residents);
        let index = |number: u64, of: usize| usize::try_from(number).unwrap_or(0) % of.max(1);
        let sends: Caller = Arc::new(move |caller, turn| {
            let (clients, residents) = (clients.clone(), residents.clone());
            Box::pin(async move {
                send(&clients[index(caller + turn, clients.len())], &residents[index(caller, residents.len())]).await
            })
        });
        crowd(64, Duration::from_secs(1), &[], &sends).await?;
        curve.put(plan, count, vec![crowd(64, Duration::from_secs(4), &[], &sends).await?, one.ms(0.5)]);
    }
    Ok(curve.chart("Replicas of one cluster, all on this machine", "replicas", "1/s, ms"))
}

async fn turns(plan: &Plan, folder: &Path) -> Result<Chart, Error> {
    let mut curve = Curve::of(&["send p50 ms", "send p99 ms", "first send after a crash ms"]);
    let data = folder.join("data");
    let mut server = DevServer::start(&plan.hearth, &data, &[]).await?;
    let resident = open_residents(&server.client()?, 1).await?.remove(0);
    let mut done = 1;
    for count in steps(plan, &[10, 100, 1_000, 3_000, 10_000]) {
        let client = server.client()?;
        let mut times = Latencies::default();
        while done < count {
            let began = Instant::now();
            send(&client, &resident).await?;
            // The newest of them, as the older ones were counted at a step before.
            if done + 1_000 > count {
                times.record(began.elapsed());
            }
            done += 1;
        }
        server.program.kill();
        server = DevServer::start(&plan.hearth, &data, &[]).await?;
        let client = server.client()?;
        let began = Instant::now();
        send(&client, &resident).await?;
        done += 1;
        curve.put(plan, count, vec![times.ms(0.5), times.ms(0.99), began.elapsed().as_secs_f64() * 1e3]);
    }
    Ok(curve.chart("Turns of one resident", "turns", "ms"))
}

async fn bytes(plan: &Plan, folder: &Path) -> Result<Chart, Error> {
    let mut curve = Curve::of(&["send p50 ms", "send p99 ms"]);
    let server = DevServer::start(&plan.hearth, &folder.join("data"), &[]).await?;
    let client = server.client()?;
    for size in steps(plan, &[1, 1_024, 65_536, 1_048_576, 15_728_640]) {
        let resident = open_residents(&client, 1).await?.remove(0);
        let prompt = filler(usize::try_from(size).unwrap_or(1));
        let mut times = Latencies::default();
        for _ in 0..if size > 1_000_000 { 10 } else { 100 } {
            let began = Instant::now();
            let answer = client.send(&resident, &Send { prompt: prompt.clone(), ..Send::default() }).await?;
            times.record(began.elapsed());
            if answer.body.output.len() != prompt.len() {
                return Err(Error::Answer(format!("{} bytes came back of {size}", answer.body.output.len())));
            }
        }
        curve.put(plan, size, vec![times.ms(0.5), times.ms(0.99)]);
    }
    Ok(curve.chart("Bytes of a prompt, and of its output", "bytes", "ms"))
}

async fn streams(plan: &Plan, folder: &Path) -> Result<Chart, Error> {
    let mut curve = Curve::of(&["event p50 ms", "event p99 ms", "send p50 ms"]);
    let settings = [("HEARTH_MAX_STREAMS", "10000")];
    let server = DevServer::start(&plan.hearth, &folder.join("data"), &settings).await?;
    let client = server.client()?;
    for count in steps(plan, &[1, 10, 100, 1_000, 5_000]) {
        // Every stream watches the one resident that is sent to: the worst there is.
        let resident = open_residents(&client, 1).await?.remove(0);
        let watchers = usize::try_from(count).unwrap_or(1);
        let sends = (20_000 / watchers).clamp(10, 200);
        let opened = Arc::new(tokio::sync::Semaphore::new(0));
        let (asked, told) = tokio::sync::watch::channel(Instant::now());
        let mut watching = tokio::task::JoinSet::new();
        for _ in 0..watchers {
            watching.spawn(watch(client.clone(), resident.clone(), sends, told.clone(), opened.clone()));
        }
        let attached = opened.acquire_many(u32::try_from(watchers).unwrap_or(1));
        let attached = tokio::time::timeout(Duration::from_secs(60), attached).await;
        attached
            .map_err(|_| Error::Answer(format!("{watchers} streams did not attach within a minute")))?
            .map_err(|error| Error::Answer(error.to_string()))?
            .forget();
        let mut own = Latencies::default();
        for _ in 0..sends {
            let began = Instant::now();
            asked.send_replace(began);
            send(&client, &resident).await?;
            own.record(began.elapsed());
            // Until all have seen it: what is timed is one event and not a queue of them.
            let seen = opened.acquire_many(u32::try_from(watchers).unwrap_or(1));
            if let Ok(Ok(seen)) = tokio::time::timeout(Duration::from_secs(20), seen).await {
                seen.forget();
            }
        }
        let mut events = Latencies::default();
        while let Some(seen) = watching.join_next().await {
            events.merge(&seen.map_err(|error| Error::program("a watcher", error.to_string()))??);
        }
        curve.put(plan, count, vec![events.ms(0.5), events.ms(0.99), own.ms(0.5)]);
    }
    Ok(curve.chart("Event streams that watch one resident", "streams", "ms"))
}

/// Sees the ends of so many turns, each timed from the moment that was told last.
async fn watch(
    client: Client,
    resident: String,
    turns: usize,
    asked: tokio::sync::watch::Receiver<Instant>,
    seen: Arc<tokio::sync::Semaphore>,
) -> Result<Latencies, Error> {
    let mut events = client.stream(&resident, 0);
    let mut times = Latencies::default();
    let mut ends = 0;
    while let Some(event) = events.next().await? {
        if !event.ends_turn() {
            continue;
        }
        // The first is that of `open`: it says that the stream is attached.
        if ends > 0 {
            times.record(asked.borrow().elapsed());
        }
        ends += 1;
        seen.add_permits(1);
        if ends > turns {
            break;
        }
    }
    Ok(times)
}

async fn sandboxes(plan: &Plan, folder: &Path) -> Result<Chart, Error> {
    let mut curve = Curve::of(&["exec p50 ms", "exec p99 ms", "execs a second", "open ms each"]);
    let bench = sandbox::Bench::start(&folder.join("node"), 0).await?;
    let mut sessions = Vec::new();
    for count in steps(plan, &[1, 4, 16, 48]) {
        let began = Instant::now();
        let missing = usize::try_from(count).unwrap_or(1).saturating_sub(sessions.len());
        let opened: Result<Vec<_>, Error> =
            stream::iter(0..missing).map(async |_| bench.open().await).buffer_unordered(4).try_collect().await;
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                plan.say(&format!("no more sessions: {error}"));
                break;
            }
        };
        #[allow(clippy::cast_precision_loss, reason = "a count of sessions")]
        let open_ms = began.elapsed().as_secs_f64() * 1e3 / missing.max(1) as f64;
        sessions.extend(opened.into_iter().map(|opened| opened.session_id));
        let began = Instant::now();
        let execs = stream::iter(0..400_usize)
            .map(async |number| {
                let began = Instant::now();
                bench.exec(&sessions[number % sessions.len()], "true").await?;
                Ok::<_, Error>(began.elapsed())
            })
            .buffer_unordered(sessions.len());
        let took: Vec<Duration> = execs.try_collect().await?;
        let rate = 400.0 / began.elapsed().as_secs_f64();
        let mut times = Latencies::default();
        took.into_iter().for_each(|took| times.record(took));
        curve.put(plan, count, vec![times.ms(0.5), times.ms(0.99), rate, open_ms]);
    }
    bench.end().await?;
    Ok(curve.chart("Sandbox sessions of one node, all at work", "sessions", "ms, 1/s"))
}
