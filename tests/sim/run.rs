//! One seed from its beginning to the end, where everything is judged once more.

use std::sync::Arc;
use std::time::Duration;

use hearth_api::JournalLiveness;
use hearth_telemetry::task;
use hearth_types::RunId;
use tokio::time::Instant;

use crate::broken::Broken;
use crate::chaos;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::command::{Answer, Command};
use crate::gate::Power;
use crate::panics;
use crate::plan::{Fault, Plan};
use crate::world::World;

/// The longest that clients wait for their answers once all misfortune is over.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
/// The longest that anything is under way after the last answer.
const AT_REST_WITHIN: Duration = Duration::from_secs(25);

/// What ends activations.
const TROUBLE: [Fault; 5] = [Fault::Kill, Fault::Stop, Fault::Drain, Fault::CutJournal, Fault::FlakyJournal];

/// What a seed came to.
pub struct Outcome {
    pub breach: Option<String>,
    pub story: String,
    pub frames: u64,
}

/// Runs a seed. `told`: with its story.
pub fn seed(seed: u64, plan: Plan, broken: Option<Broken>, told: bool) -> Outcome {
    let machine = match broken {
        Some(Broken::Machine(machine)) => Some(machine),
        _ => None,
    };
    hearth_run_core::breaks::set(machine);
    panics::watch();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let outcome = runtime.block_on(async {
        let world = World::new(seed, plan, told);
        Box::pin(life(seed, world.clone(), broken)).await;
        if let Some(panic) = panics::seen() {
            world.breach(panic);
        }
        world
    });
    drop(runtime);
    hearth_run_core::breaks::set(None);
    let books = outcome.books();
    let frames = books.runs.values().map(|book| book.frames).sum();
    Outcome { breach: outcome.breached(), story: outcome.story.text(), frames }
}

async fn life(seed: u64, world: Arc<World>, broken: Option<Broken>) {
    let cluster = Cluster::new(world.clone(), broken);
    world.story.tell(|| format!("seed {seed}: {:?}", world.plan));
    for place in 0..world.plan.replicas {
        cluster.start(place).await;
    }
    let sweeper = cluster.clone();
    task::spawn("node", async move {
        // In a calm world the replicas do it all, and nothing is left to a node.
        let liveness = JournalLiveness::new(Arc::new(sweeper.journal.clone()));
        while !sweeper.world.plan.faults.is_empty() {
            tokio::time::sleep(Duration::from_secs(5)).await;
            sweeper.node.sweep(&liveness).await;
        }
    });
    world.begin();
    let clients: Vec<_> = (0..world.plan.clients)
        .map(|number| {
            let client = Client::new(cluster.clone(), number, seed);
            task::spawn("client", client.live())
        })
        .collect();
    let chaos = task::spawn("chaos", chaos::unleash(cluster.clone()));
    chaos.await.ok();
    let clients = heal_and_wait(&cluster, clients).await;
    if world.breached().is_none() {
        rest(&cluster).await;
    }
    if world.breached().is_none() {
        end(&cluster, clients).await;
    }
}

type LivingClient = tokio::task::JoinHandle<Option<Client>>;

/// Lets misfortune go on for a while, ends it, and waits until every client has its answers.
async fn heal_and_wait(cluster: &Arc<Cluster>, clients: Vec<LivingClient>) -> Vec<Client> {
    let world = &cluster.world;
    let until = Instant::now() + Duration::from_millis(world.below(15_000));
    while Instant::now() < until && !clients.iter().all(|client| client.is_finished()) {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.heal();
    for place in 0..world.plan.replicas {
        if let Some(member) = cluster.member(place) {
            member.gate.set(Power::Runs);
        }
    }
    let deadline = Instant::now() + ANSWERED_WITHIN;
    let mut finished = Vec::new();
    for (number, client) in clients.into_iter().enumerate() {
        match tokio::time::timeout_at(deadline, client).await {
            Ok(Ok(Some(client))) => finished.push(client),
            Ok(_) => world.breach(format!("a client panicked: c{number}")),
            Err(_) => world.breach(format!("P4: c{number} waits for an answer for ever")),
        }
    }
    finished
}

/// Waits until nothing is under way any more.
async fn rest(cluster: &Arc<Cluster>) {
    let world = &cluster.world;
    let deadline = Instant::now() + AT_REST_WITHIN;
    loop {
        let unrest = {
            let books = world.books();
            books.runs.iter().find_map(|(id, book)| Some(format!("{id}: {}", book.laws.at_rest().err()?)))
        };
        match unrest {
            None => return,
            Some(unrest) if Instant::now() > deadline => return world.breach(format!("not at rest: {unrest}")),
            Some(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

/// Ends every tree and looks at what is left.
async fn end(cluster: &Arc<Cluster>, clients: Vec<Client>) {
    let world = &cluster.world;
    world.story.tell(|| "the end: every tree is closed".to_owned());
    let roots: Vec<RunId> = {
        let books = world.books();
        let is_root = |book: &crate::books::Book| book.laws.spec.as_ref().is_some_and(|spec| spec.parent.is_none());
        books.runs.iter().filter(|(_, book)| is_root(book)).map(|(id, _)| id.clone()).collect()
    };
    let mut closer = Client::new(cluster.clone(), 99, 0);
    let idle = !world.plan.closes && world.plan.idle_ttl < Duration::from_secs(60);
    if idle {
        let skew = Duration::from_millis(2 * crate::cluster::MAX_SKEW_MS.cast_unsigned());
        tokio::time::sleep(world.plan.idle_ttl * 4 + skew).await;
    } else {
        for run in &roots {
            let key = Some(closer.fresh_key());
            closer.perform(Command::Close { run: run.clone() }, key).await;
        }
    }
    rest(cluster).await;
    // A node hears of the ends by itself within its sweep.
    tokio::time::sleep(Duration::from_secs(if world.plan.faults.is_empty() { 1 } else { 11 })).await;
    let deadline = Instant::now() + world.plan.passivate_after.max(Duration::from_secs(2)) * 2 + Duration::from_secs(5);
    // Ended runs leave memory as parked ones do; to wait an hour for that shows nothing more.
    while world.plan.passivate_after < Duration::from_secs(10) && active(cluster) > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    if world.plan.passivate_after < Duration::from_secs(10) {
        let active = active(cluster);
        world.hold("P7", active == 0, || format!("{active} activations stay in memory"));
    }
    check_end(cluster, &clients);
}

/// Activations in the memory of all replicas.
fn active(cluster: &Cluster) -> u64 {
    let members = cluster.alive().into_iter().filter_map(|place| cluster.member(place));
    members.map(|member| member.residents.row().active).sum()
}

fn check_end(cluster: &Arc<Cluster>, clients: &[Client]) {
    let world = &cluster.world;
    let books = world.books();
    let mut faults = Vec::new();
    for (id, book) in &books.runs {
        if book.laws.end.is_none() {
            faults.push(format!("P5: {id} has not ended"));
        }
        if let Err(what) = book.check_steered() {
            faults.push(what);
        }
        // Activations that follow one another without progress are the mark of a turn that ends its
        // host, not of a registry or a bus that fails.
        if book.given_up > 0 && !TROUBLE.iter().any(|fault| world.plan.has(*fault)) {
            faults.push(format!("P4: {id} gave a turn up and no replica was in trouble"));
        }
    }
    for client in clients {
        for (_, _, answer) in &client.told {
            if let Answer::Turn(envelope) = answer
                && let Err(what) = books.check_envelope(envelope)
            {
                faults.push(what);
            }
        }
    }
    for root in cluster.node.open_trees() {
        faults.push(format!("P5: the sandbox session of {root} is open"));
    }
    drop(books);
    for fault in faults {
        world.breach(fault);
    }
}
