//! A cluster of real processes under load, with misfortunes from a seed; afterwards the journals and the clients' records are
//! compared.
//!
//! `CHAOS_SECONDS` and `CHAOS_SEED` choose how long and which; without them one short seed runs.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "these are tests")]

mod calm;
mod check;
mod load;
mod misfortunes;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use hearth_tests::{ClusterOptions, Persistent, Proxy};

use load::Client;
use misfortunes::{Dice, Misfortunes};

/// Residents that clients send to, each below a root of its own.
const RESIDENTS: u64 = 8;

fn number(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// The variables, and what they are without them.
fn chosen(name: &str, seconds: u64) -> (u64, u64) {
    let (seed, seconds) = (number("CHAOS_SEED", 1), number("CHAOS_SECONDS", seconds));
    println!(
        "CHAOS_SEED={seed} CHAOS_SECONDS={seconds} cargo test -p hearth-tests --test chaos {name} runs this one again"
    );
    (seed, seconds)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_once_whatever_dies() {
    let (seed, seconds) = chosen("whatever_dies", 20);
    under_misfortunes(1, seed, seconds).await;
}

/// The journal on three servers, each event in three copies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_is_there_once_when_servers_of_a_replicated_journal_fail() {
    let (seed, seconds) = chosen("servers_of_a_replicated_journal", 20);
    under_misfortunes(3, seed, seconds).await;
}

async fn under_misfortunes(servers: u16, seed: u64, seconds: u64) {
    // One member may be gone for longer than the lease; idle residents leave memory, so that runs change hands.
    let options = ClusterOptions::default()
        .nats(servers)
        .variable("HEARTH_REPLICA_LEASE_MS", 1_500)
        .variable("HEARTH_PASSIVATE_AFTER_MS", 700);
    let Some(cluster) = options.start().await else { return };
    let first = cluster.nats_url().split(',').next().expect("a server");
    let (nats, redis) = (Proxy::to(first).await, Proxy::to(cluster.redis_url()).await);
    let urls = [format!("nats://{}", nats.address()), format!("redis://{}", redis.address())];
    let far = cluster.join("far", &[("HEARTH_NATS_URL", &urls[0]), ("HEARTH_REDIS_URL", &urls[1])]).await;
    let mut apis = cluster.apis();
    apis.push(far);

    let over = AtomicBool::new(false);
    let mut dice = Dice::new(seed);
    let clients: Vec<Client> = (0..RESIDENTS)
        .map(|number| Client::new(number, Persistent::new(apis.clone()).patient(Duration::from_secs(120)), dice.fork()))
        .collect();
    let loads = clients.into_iter().map(|client| client.run(&over));
    let misfortunes = async {
        let story =
            Misfortunes { cluster: &cluster, servers, nats: &nats, redis: &redis, dice }.go_on_for(seconds).await;
        over.store(true, Ordering::Relaxed);
        story
    };
    let (records, story) = tokio::join!(join_all(loads), misfortunes);
    let counted = check::all(&cluster.apis(), &records).await;
    println!("{} misfortunes: {}", story.len(), story.join(", "));
    println!("{counted}");
    cluster.stop().await;
}
