//! `send` in a cluster of three replicas, and what a killed one costs.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hearth_client::{Client, Send};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::embedded::{PROMPT, is_snapshot, open_residents, send};
use super::figure::Measured;
use super::paired::{Caller, Side, crowds};
use super::{Found, Plan};
use crate::Error;
use crate::floors::jetstream::nats;
use crate::floors::{FloorKind, FloorServer, Payload, Stored};
use crate::latencies::Latencies;
use crate::processes::{Cluster, signal};

/// The default, `HEARTH_REPLICA_LEASE_MS`.
const LEASE_S: f64 = 3.0;
/// Turns that are in flight when their owner is killed, and how long each takes.
const IN_FLIGHT: usize = 50;
const TURN: Duration = Duration::from_millis(1_000);
/// From the sends to the kill: long enough that all are accepted, shorter than a turn.
const BEFORE_THE_KILL: Duration = Duration::from_millis(400);

pub(super) async fn measure(plan: &Plan, folder: &Path, found: &mut Found) -> Result<(), Error> {
    let mut cluster = Cluster::start(&plan.hearth, &folder.join("cluster"), 3).await?;
    let clients = cluster.clients()?;
    let nats = cluster.map.nats.first().map(|server| server.url.clone()).unwrap_or_default();
    let owned = open_residents(&clients[0], 8).await?;
    let owner = clients[0].run(&owned[0]).await?["owner_replica"].as_str().unwrap_or_default().to_owned();
    if owner != cluster.map.replicas[0].id {
        return Err(Error::Answer(format!("a resident that was opened on replica-0 is owned by {owner:?}")));
    }
    for _ in 0..50 {
        send(&clients[0], &owned[0]).await?;
    }
    let payload = payload_of(&nats, &owned[0]).await?;
    plan.say(&format!("a send stores {} + {} bytes, and a row of {} twice", payload.accept, payload.end, payload.row));
    let floor = Floors::start(&nats, payload, folder).await?;
    sends(plan, &clients, &owned[0], &floor, found).await?;
    for (callers, name) in [(64, "cluster_turns_per_s_64"), (512, "cluster_turns_per_s_512")] {
        plan.say(&format!("{callers} callers"));
        let measured = turns(plan, callers, &clients, &floor).await;
        found.keep(name, measured);
    }
    drop(floor);
    failover(plan, &mut cluster, found).await?;
    Ok(())
}

/// How much a `send` writes, as the last turn of a run has written it.
async fn payload_of(url: &str, run: &str) -> Result<Payload, Error> {
    let context = async_nats::jetstream::new(async_nats::connect(url).await.map_err(nats)?);
    for partition in 0..8 {
        let stream = context.get_stream(format!("hearth-journal-{partition}")).await.map_err(nats)?;
        let subject = format!("hearth.journal.{partition}.run.{run}");
        let Ok(mut message) = stream.get_last_raw_message_by_subject(&subject).await else { continue };
        let (mut sizes, mut row) = (Vec::new(), 0);
        while sizes.len() < 2 {
            let header = |name: &str| message.headers.get(name).map_or("", |value| value.as_str());
            if !is_snapshot(&message.payload) {
                row = header("Hearth-Head").len();
                sizes.push(message.payload.len());
            }
            let before = header("Hearth-After").parse().map_err(nats)?;
            message = stream.get_raw_message(before).await.map_err(nats)?;
        }
        return Ok(Payload {
            request: PROMPT.len() + 14,
            answer: 260 + PROMPT.len(),
            accept: sizes[1],
            end: sizes[0],
            row,
        });
    }
    Err(Error::Answer(format!("the journal of {run} is on no stream")))
}

#[derive(Clone)]
struct Floors {
    local: Arc<FloorServer>,
    gateway: Arc<FloorServer>,
    _owner: Arc<FloorServer>,
}

impl Floors {
    async fn start(nats: &str, payload: Payload, folder: &Path) -> Result<Self, Error> {
        let start = async |kind| {
            let log = folder.join("floors.log");
            FloorServer::start(kind, Stored::OnNats(nats), payload, &log).await.map(Arc::new)
        };
        let owner = start(FloorKind::Owner).await?;
        Ok(Self { local: start(FloorKind::Local).await?, gateway: start(FloorKind::Gateway).await?, _owner: owner })
    }
}

/// One caller: to the owner, and by another replica.
async fn sends(
    plan: &Plan,
    clients: &[Client],
    resident: &str,
    floor: &Floors,
    found: &mut Found,
) -> Result<(), Error> {
    for client in clients.iter().take(2) {
        for _ in 0..50 {
            send(client, resident).await?;
        }
    }
    let (mut local, mut local_floor) = (Side::default(), Side::default());
    let (mut cross, mut cross_floor) = (Side::default(), Side::default());
    for _ in 0..plan.rounds(12) {
        local.round(50, async |_| send(&clients[0], resident).await).await?;
        local_floor.round(50, async |_| floor.local.turn(1).await).await?;
        cross.round(50, async |_| send(&clients[1], resident).await).await?;
        cross_floor.round(50, async |_| floor.gateway.turn(2).await).await?;
    }
    found.put("send_cluster_p50", local.over(&local_floor, 0.5));
    found.put("send_cluster_p99", local.over(&local_floor, 0.99));
    found.put("send_cross_p50", cross.over(&cross_floor, 0.5));
    found.put("send_cross_p99", cross.over(&cross_floor, 0.99));
    Ok(())
}

/// Many callers, each to its own resident, by the next replica each time.
async fn turns(plan: &Plan, callers: u64, clients: &[Client], floor: &Floors) -> Result<Measured, Error> {
    let each = usize::try_from(callers).unwrap_or(0).div_ceil(clients.len());
    let mut residents = Vec::new();
    for client in clients {
        residents.extend(open_residents(client, each).await?);
    }
    let (clients, residents) = (Arc::new(clients.to_vec()), Arc::new(residents));
    let index = |number: u64, of: usize| usize::try_from(number).unwrap_or(0) % of.max(1);
    let sends: Caller = Arc::new(move |caller, turn| {
        let (clients, residents) = (clients.clone(), residents.clone());
        Box::pin(async move {
            send(&clients[index(caller + turn, clients.len())], &residents[index(caller, residents.len())]).await
        })
    });
    let floor = floor.clone();
    let bare: Caller = Arc::new(move |caller, turn| {
        let floor = floor.clone();
        Box::pin(async move {
            // Logs of their own, as the two servers do not know each other's sequences.
            match (caller + turn) % 3 {
                0 => floor.local.turn(callers * 10_000 + caller).await,
                _ => floor.gateway.turn(callers * 10_000 + 5_000 + caller).await,
            }
        })
    });
    crowds(callers, plan.rounds(4), Duration::from_millis(1_500), &sends, &bare).await
}

/// Kills owners with turns in flight, and waits for the answers that others are blocked on.
async fn failover(plan: &Plan, cluster: &mut Cluster, found: &mut Found) -> Result<(), Error> {
    let mut waits = Latencies::default();
    let mut lost = Vec::new();
    for kill in 0..plan.kills {
        let victim = usize::try_from(kill).unwrap_or(0) % cluster.map.replicas.len();
        let (id, pid) = (cluster.map.replicas[victim].id.clone(), cluster.map.replicas[victim].pid);
        plan.say(&format!("kill {} of {}: {id} with {IN_FLIGHT} turns in flight", kill + 1, plan.kills));
        let clients = cluster.clients()?;
        let residents = open_residents(&clients[victim], IN_FLIGHT).await?;
        let others: Vec<Client> =
            clients.into_iter().enumerate().filter(|(index, _)| *index != victim).map(|(_, client)| client).collect();
        let mut turns = JoinSet::new();
        for (number, resident) in residents.into_iter().enumerate() {
            let client = others[number % others.len()].clone();
            turns.spawn(async move { slow_send(&client, &resident).await });
        }
        tokio::time::sleep(BEFORE_THE_KILL).await;
        let killed = Instant::now();
        signal(pid, rustix::process::Signal::KILL);
        while let Some(ended) = turns.join_next().await {
            match ended.map_err(|error| Error::program("a caller", error.to_string()))? {
                Ok(at) => waits.record(at.saturating_duration_since(killed)),
                Err(error) => lost.push(error.to_string()),
            }
        }
        cluster.restart(&id).await?;
        // Until its peers know it again.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    if let Some(first) = lost.first() {
        let reason = format!("{} of {} blocked sends failed, the first with: {first}", lost.len(), plan.kills * 50);
        found.miss("failover_p99", &reason);
        found.miss("failover_max", &reason);
        return Ok(());
    }
    found.put("failover_p99", Measured::over(waits.ms(0.99) / 1e3, LEASE_S));
    found.put("failover_max", Measured::over(waits.max_ms() / 1e3, LEASE_S));
    Ok(())
}

/// A turn that takes its time: when its answer came.
async fn slow_send(client: &Client, resident: &str) -> Result<Instant, Error> {
    let prompt = serde_json::json!({ "mock": { "latency_ms": TURN.as_millis(), "output": PROMPT } }).to_string();
    let answer = client.send(resident, &Send { prompt, ..Send::default() }).await?;
    if answer.body.output == PROMPT {
        return Ok(Instant::now());
    }
    Err(Error::Answer(format!("{:?} with the output {:?}", answer.body.outcome, answer.body.output)))
}
