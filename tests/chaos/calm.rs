//! Nobody dies, and the machine has no CPU to spare: then nobody takes anything over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::future::join_all;
use hearth_tests::{ClusterOptions, Persistent, mock};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::misfortunes::Dice;

/// Turns at the same time.
const RESIDENTS: usize = 12;

/// Threads that want all of every core, as a compiler does.
struct Busy(Arc<AtomicBool>, Vec<JoinHandle<()>>);

impl Busy {
    fn start() -> Self {
        let cores = std::thread::available_parallelism().expect("a number of cores").get();
        let over = Arc::new(AtomicBool::new(false));
        let threads = (0..cores).map(|_| {
            let over = over.clone();
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        });
        Self(over.clone(), threads.collect())
    }

    fn end(self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.into_iter().for_each(|thread| thread.join().expect("it ends"));
    }
}

fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// Ten minutes, unless `CHAOS_SECONDS` says otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes ten minutes of both cores"]
async fn no_turn_is_taken_from_an_owner_that_lives_while_every_core_is_busy() {
    let (seed, seconds) = crate::chosen("every_core_is_busy -- --ignored", 600);
    let Some(cluster) = ClusterOptions::default().start().await else { return };
    let apis = cluster.apis();
    let busy = Busy::start();
    let client = Persistent::new(apis.clone()).patient(Duration::from_secs(120));
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut dice = Dice::new(seed);
    let loads = (0..RESIDENTS).map(|number| {
        let (client, mut dice) = (&client, dice.fork());
        async move {
            let id = client.open(&format!("open-{number}"), "mock", "first").await;
            let (mut turns, mut slowest) = (0, Duration::ZERO);
            while Instant::now() < until {
                let latency = dice.below(2_000);
                let prompt = mock(json!({ "latency_ms": latency, "output": "o", "chunks": 3 }));
                let began = Instant::now();
                let answer = client.send(&id, &format!("{number}-{turns}"), &prompt).await;
                assert_eq!(answer["outcome"], "finished", "{answer}");
                slowest = slowest.max(began.elapsed().saturating_sub(Duration::from_millis(latency)));
                turns += 1;
            }
            (id, turns, slowest)
        }
    });
    let watch = async {
        let mut loads = Vec::new();
        while Instant::now() < until {
            sleep(Duration::from_secs(seconds / 6 + 1)).await;
            loads.push(load_average());
        }
        loads
    };
    let (done, loads) = tokio::join!(join_all(loads), watch);
    busy.end();
    let turns: u64 = done.iter().map(|(_, turns, _)| turns).sum();
    let slowest = done.iter().map(|(_, _, slowest)| *slowest).max().unwrap_or_default();
    let mut taken = 0;
    for (id, ..) in &done {
        taken += apis[0].get_run(id).await["epoch"].as_u64().expect("a number") - 1;
    }
    let (mut stepped, mut unsure) = (0.0, 0);
    for (number, api) in apis.iter().enumerate() {
        stepped += api.metric("hearth_stepped_down_total").await;
        unsure += cluster.log(&format!("replica-{number}")).matches("stood still").count();
    }
    println!(
        "{seconds} s: {turns} turns, {taken} taken over, {stepped} activations stepped down, {unsure} leases were late; the \
         slowest turn took {slowest:?} longer than its model; load averages (1 and 5 min): {}",
        loads.join(", ")
    );
    assert_eq!((taken, stepped), (0, 0.0));
    cluster.stop().await;
}
