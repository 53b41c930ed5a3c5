//! Many parked residents on real stores: what they take there, and what is left of them in the servers.
//!
//! Written in bulk through the journal's adapters while no server runs; then the servers start on them,
//! pages of them are listed, some are woken, and more are opened by the API as any client would.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use hearth_client::{Client, ListRuns, OpenResident};
use hearth_journal::{JetStreamJournal, JetStreamOptions};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::Plan;
use super::embedded::send;
use crate::latencies::Latencies;
use crate::processes::{Cluster, DevServer, signal};
use crate::report::number;
use crate::{Error, machine, seed};

const PAGES: u32 = 400;
const WAKES: u64 = 1_000;
/// Calls of `open` under way at once.
const WIDTH: usize = 64;
/// Woken ones are parked again by then.
const SETTINGS: [(&str, &str); 1] = [("HEARTH_PASSIVATE_AFTER_MS", "5000")];

/// How many: written in bulk, and opened by the API.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub parked: u64,
    pub opened: u64,
}

/// Lines of the table, in the order in which they were measured.
#[derive(Debug, Default)]
struct Found(Vec<(String, String)>);

impl Found {
    fn put(&mut self, plan: &Plan, what: impl Into<String>, value: String) {
        let what = what.into();
        plan.say(&format!("{what}: {value}"));
        self.0.push((what, value));
    }

    fn print(&self, title: &str) {
        println!("\n| {title} | |\n|---|---|");
        for (what, value) in &self.0 {
            println!("| {what} | {value} |");
        }
    }
}

pub(super) async fn measure(plan: &Plan, numbers: Numbers, folder: &Path) -> Result<(), Error> {
    eprintln!("== embedded");
    let found = Box::pin(embedded(plan, numbers, &folder.join("embedded"))).await?;
    found.print("embedded: SQLite");
    eprintln!("== cluster");
    let found = Box::pin(cluster(plan, numbers, &folder.join("cluster"))).await?;
    found.print("cluster of three replicas: JetStream, Redis");
    Ok(())
}

async fn embedded(plan: &Plan, numbers: Numbers, data: &Path) -> Result<Found, Error> {
    let mut found = Found::default();
    let began = Instant::now();
    seed::seed_folder(data, 0..numbers.parked).await?;
    found.put(plan, "written in bulk", rate(numbers.parked, began));
    found.put(plan, "on disk", each(size(data), numbers.parked));
    let empty = DevServer::start(&plan.hearth, &data.with_extension("empty"), &SETTINGS).await?;
    let bare = memory(empty.program.pid());
    drop(empty);
    // The second start is the one after a crash.
    DevServer::start(&plan.hearth, data, &SETTINGS).await?.program.kill();
    let server = DevServer::start(&plan.hearth, data, &SETTINGS).await?;
    found.put(plan, "start after `kill -9`", format!("{} s", number(server.started_in.as_secs_f64())));
    let pid = server.program.pid();
    let clients = [server.client()?];
    let held = |what: &str| (format!("memory {what}, an empty server's taken off"), memory(pid).saturating_sub(bare));
    let parked = |found: &mut Found, what: &str| {
        let (what, bytes) = held(what);
        found.put(plan, what, each(bytes, numbers.parked));
    };
    parked(&mut found, "after the start");
    use_them(plan, &mut found, &clients, numbers).await?;
    parked(&mut found, "after pages and wakes");
    open(plan, &mut found, &clients, numbers.opened).await?;
    parked(&mut found, "after the opens");
    Ok(found)
}

async fn cluster(plan: &Plan, numbers: Numbers, data: &Path) -> Result<Found, Error> {
    let mut found = Found::default();
    let mut cluster = Cluster::start(&plan.hearth, data, 3).await?;
    let replicas = cluster.map.replicas.clone();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let bare: Vec<u64> = replicas.iter().map(|replica| memory(replica.pid)).collect();
    replicas.iter().for_each(|replica| signal(replica.pid, Signal::KILL));
    let began = Instant::now();
    let cache = tempfile::tempdir().map_err(Error::io("a temporary folder"))?;
    let nats = cluster.map.nats.first().map(|nats| nats.url.clone()).unwrap_or_default();
    let journal = JetStreamJournal::connect(JetStreamOptions::at(nats, cache.path())).await?;
    seed::write(Arc::new(journal), 0..numbers.parked).await?;
    drop(cache);
    found.put(plan, "written in bulk", rate(numbers.parked, began));
    for replica in &replicas {
        let began = Instant::now();
        cluster.restart(&replica.id).await?;
        let took = number(began.elapsed().as_secs_f64());
        found.put(plan, format!("start of {} after `kill -9`, its index made anew", replica.id), format!("{took} s"));
    }
    stores(plan, &mut found, &cluster, data, numbers.parked).await?;
    let clients = cluster.clients()?;
    let held = |found: &mut Found, what: &str| {
        for (replica, bare) in cluster.map.replicas.iter().zip(&bare) {
            let what = format!("memory of {} {what}, an empty one's taken off", replica.id);
            found.put(plan, what, each(memory(replica.pid).saturating_sub(*bare), numbers.parked));
        }
    };
    held(&mut found, "after the start");
    use_them(plan, &mut found, &clients, numbers).await?;
    held(&mut found, "after pages and wakes");
    open(plan, &mut found, &clients, numbers.opened).await?;
    held(&mut found, "after the opens");
    stores(plan, &mut found, &cluster, data, numbers.parked + numbers.opened).await?;
    Ok(found)
}

/// What lies on disk, and in Redis.
async fn stores(plan: &Plan, found: &mut Found, cluster: &Cluster, data: &Path, count: u64) -> Result<(), Error> {
    let mut folders: Vec<_> = std::fs::read_dir(data).map_err(Error::io("the cluster's folder"))?.flatten().collect();
    folders.sort_by_key(std::fs::DirEntry::file_name);
    for folder in folders {
        let bytes = size(&folder.path());
        if bytes > 1024 * 1024 {
            found.put(plan, format!("`{}` on disk", folder.file_name().display()), each(bytes, count));
        }
    }
    let used = redis_memory(&cluster.map.redis.url).await?;
    found.put(plan, "Redis' memory", each(used, count));
    Ok(())
}

/// Lists pages and wakes residents that are far from each other.
async fn use_them(plan: &Plan, found: &mut Found, clients: &[Client], numbers: Numbers) -> Result<(), Error> {
    let (mut pages, mut wakes, mut cursor) = (Latencies::default(), Latencies::default(), None);
    for (client, _) in clients.iter().cycle().zip(0..PAGES) {
        let began = Instant::now();
        let page = client.list_residents(&ListRuns { limit: Some(50), cursor, ..ListRuns::default() }).await?;
        pages.record(began.elapsed());
        cursor = page["next_cursor"].as_str().map(str::to_owned);
    }
    let step = (numbers.parked / WAKES).max(1);
    for (client, number) in clients.iter().cycle().zip(0..WAKES.min(numbers.parked)) {
        let began = Instant::now();
        send(client, seed::resident(number * step).as_str()).await?;
        wakes.record(began.elapsed());
    }
    found.put(plan, "a page of 50, p50 / p99", times(&pages));
    found.put(plan, "a `send` that wakes one, p50 / p99", times(&wakes));
    // Until they are parked again, and their memory was given back.
    tokio::time::sleep(Duration::from_secs(15)).await;
    Ok(())
}

async fn open(plan: &Plan, found: &mut Found, clients: &[Client], count: u64) -> Result<(), Error> {
    let request = OpenResident { agent: "mock".to_owned(), prompt: "begin".to_owned(), ..OpenResident::default() };
    let began = Instant::now();
    let opening = clients.iter().cycle().zip(0..count).map(async |(client, _)| {
        let began = Instant::now();
        client.open(&request).await?;
        Ok::<_, Error>(began.elapsed())
    });
    let took: Vec<Duration> = stream::iter(opening).buffer_unordered(WIDTH).try_collect().await?;
    found.put(plan, format!("opened by the API, {WIDTH} at once"), rate(count, began));
    let mut latencies = Latencies::default();
    took.into_iter().for_each(|took| latencies.record(took));
    found.put(plan, "an `open` among them, p50 / p99", times(&latencies));
    tokio::time::sleep(Duration::from_secs(15)).await;
    Ok(())
}

fn memory(pid: u32) -> u64 {
    machine::private_bytes(pid).unwrap_or(0)
}

#[allow(clippy::cast_precision_loss, reason = "bytes for a person to read")]
fn each(bytes: u64, count: u64) -> String {
    format!("{} MiB, {} B each", number(bytes as f64 / 1048576.0), number(bytes as f64 / count.max(1) as f64))
}

#[allow(clippy::cast_precision_loss, reason = "a count for a person to read")]
fn rate(count: u64, began: Instant) -> String {
    let seconds = began.elapsed().as_secs_f64();
    format!("{count} in {} s, {} a second", number(seconds), number(count as f64 / seconds.max(1e-9)))
}

fn times(of: &Latencies) -> String {
    format!("{} / {} ms", number(of.ms(0.5)), number(of.ms(0.99)))
}

/// Bytes on disk below a folder; what goes away meanwhile counts nothing.
fn size(path: &Path) -> u64 {
    let Ok(about) = std::fs::symlink_metadata(path) else { return 0 };
    let below = std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| size(&entry.path())).sum::<u64>();
    about.blocks() * 512 + below
}

/// What Redis says it uses, asked in its own plain words.
async fn redis_memory(url: &str) -> Result<u64, Error> {
    let failed = || Error::io(format!("Redis at {url}"));
    let address = url.trim_start_matches("redis://").trim_end_matches('/');
    let mut redis = tokio::net::TcpStream::connect(address).await.map_err(failed())?;
    redis.write_all(b"INFO memory\r\nQUIT\r\n").await.map_err(failed())?;
    let mut said = String::new();
    redis.read_to_string(&mut said).await.map_err(failed())?;
    let used = said.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    used.ok_or_else(|| Error::Answer(format!("Redis at {url} does not tell its memory")))
}
