//! The misfortunes of a plan, one after the other.

use std::sync::Arc;
use std::time::Duration;

use hearth_telemetry::task;

use crate::cluster::Cluster;
use crate::gate::Power;
use crate::plan::Fault;
use crate::world::Peer;

/// What comes as one event; the others are drawn call by call.
const EVENTS: [Fault; 8] = [
    Fault::Kill,
    Fault::Stop,
    Fault::Drain,
    Fault::CutJournal,
    Fault::CutRegistry,
    Fault::CutBus,
    Fault::Split,
    Fault::Amnesia,
];

/// Lets the plan's misfortunes happen, and returns when the last has begun.
pub async fn unleash(cluster: Arc<Cluster>) {
    let kinds: Vec<Fault> = EVENTS.into_iter().filter(|fault| cluster.world.plan.has(*fault)).collect();
    if kinds.is_empty() {
        return;
    }
    for _ in 0..cluster.world.plan.misfortunes {
        let world = &cluster.world;
        tokio::time::sleep(Duration::from_millis(world.below(1_500))).await;
        let kind = kinds[usize::try_from(world.below(kinds.len() as u64)).unwrap()];
        let place = usize::try_from(world.below(world.plan.replicas as u64)).unwrap();
        befall(&cluster, kind, place);
    }
}

fn befall(cluster: &Arc<Cluster>, kind: Fault, place: usize) {
    let world = cluster.world.clone();
    let long = |most: u64| Duration::from_millis(world.below(most));
    let cluster = cluster.clone();
    match kind {
        Fault::Kill => {
            let gone = long(8_000);
            task::spawn("kill", async move { kill(cluster, place, gone).await });
        }
        Fault::Stop => {
            let span = long(9_000);
            task::spawn("stop", async move { stop(cluster, place, span).await });
        }
        Fault::Drain => {
            let (patience, gone) = (long(2_000), long(1_000));
            task::spawn("drain", async move { drain(cluster, place, patience, gone).await });
        }
        Fault::CutJournal => {
            let span = long(14_000);
            // One in four times nobody reaches it.
            let places = if world.below(4) == 0 { 0..world.plan.replicas } else { place..place + 1 };
            for place in places {
                cut(cluster.clone(), place, Peer::Journal, span);
            }
        }
        Fault::CutRegistry => cut(cluster, place, Peer::Registry, long(9_000)),
        Fault::CutBus => cut(cluster, place, Peer::Bus, long(9_000)),
        Fault::Split => {
            let other = (place + 1) % world.plan.replicas;
            let (a, b) = (Cluster::replica_id(place), Cluster::replica_id(other));
            world.story.tell(|| format!("{a} and {b} cannot reach each other"));
            world.split(&a, &b, true);
            let span = long(9_000);
            task::spawn("split", async move {
                tokio::time::sleep(span).await;
                world.split(&a, &b, false);
                world.story.tell(|| format!("{a} and {b} can reach each other again"));
            });
        }
        _ => {
            let back = long(6_000);
            let kept = (world.below(2) == 0).then(|| cluster.registry.copy());
            task::spawn("amnesia", async move {
                match kept {
                    Some(kept) => {
                        tokio::time::sleep(back).await;
                        world.story.tell(|| format!("the registry is as it was {} ms ago", back.as_millis()));
                        cluster.registry.restore(&kept);
                    }
                    None => {
                        world.story.tell(|| "the registry forgets everything".to_owned());
                        cluster.registry.forget();
                    }
                }
            });
        }
    }
}

/// Kills the process at a place and starts another one later, unless it was dead already.
async fn kill(cluster: Arc<Cluster>, place: usize, gone: Duration) {
    if cluster.alive().contains(&place) {
        cluster.kill(place);
        tokio::time::sleep(gone).await;
        cluster.start(place).await;
    }
}

async fn stop(cluster: Arc<Cluster>, place: usize, span: Duration) {
    let Some(member) = cluster.member(place).filter(|member| member.gate.power() == Power::Runs) else { return };
    cluster.world.story.tell(|| format!("{} is stopped", member.replica));
    member.gate.set(Power::Stopped);
    tokio::time::sleep(span).await;
    member.gate.set(Power::Runs);
    cluster.world.story.tell(|| format!("{} goes on", member.replica));
}

async fn drain(cluster: Arc<Cluster>, place: usize, patience: Duration, gone: Duration) {
    let Some(member) = cluster.member(place).filter(|member| member.gate.power() == Power::Runs) else { return };
    if member.residents.is_draining() {
        return;
    }
    cluster.world.story.tell(|| format!("{} drains", member.replica));
    tokio::select! {
        biased;
        () = member.gate.died() => return,
        () = member.residents.drain(patience) => {}
    }
    cluster.world.story.tell(|| format!("{} has drained and exits", member.replica));
    member.gate.set(Power::Dead);
    tokio::time::sleep(gone).await;
    cluster.start(place).await;
}

fn cut(cluster: Arc<Cluster>, place: usize, peer: Peer, span: Duration) {
    let (world, replica) = (cluster.world.clone(), Cluster::replica_id(place));
    world.story.tell(|| format!("{replica} is cut off from {peer:?}"));
    world.cut(&replica, peer, true);
    task::spawn("cut", async move {
        tokio::time::sleep(span).await;
        world.cut(&replica, peer, false);
        world.story.tell(|| format!("{replica} reaches {peer:?} again"));
    });
}
