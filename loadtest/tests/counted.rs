//! What one call costs, counted and not timed: operations of the stores, messages, allocations. The
//! figures are exact, so that a call that began to cost more is caught without a clock.

#![allow(clippy::unwrap_used, reason = "all of this is a test")]

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hearth_bus::{FaultyBus, LocalBus, LocalOptions, SharedBus};
use hearth_journal::{FaultyJournal, MemoryJournal, SharedJournal};
use hearth_load::Within;
use hearth_registry::{FaultyRegistry, MemoryRegistry, SharedRegistry};

/// How often each kind of operation was asked for.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Counts {
    fn count(&self, operation: &'static str) {
        *self.0.lock().unwrap().entry(operation).or_default() += 1;
    }

    fn take(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Stores that several replicas share.
#[derive(Clone)]
struct Stores {
    journal: MemoryJournal,
    registry: MemoryRegistry,
    bus: LocalBus,
    counts: Counts,
}

impl Stores {
    fn new() -> Self {
        Self {
            journal: MemoryJournal::new(),
            registry: MemoryRegistry::new(),
            bus: LocalBus::new(LocalOptions::default()),
            counts: Counts::default(),
        }
    }

    /// A replica over them that does nothing by itself for as long as a test takes.
    async fn replica(&self, name: &str) -> Within {
        let counts = |operation: &'static str| {
            let counts = self.counts.clone();
            move || counts.count(operation)
        };
        let (append, read, trim, ask) = (counts("append"), counts("read"), counts("trim"), counts("registry"));
        let (publish, request) = (counts("publish"), counts("request"));
        let journal: SharedJournal = Arc::new(FaultyJournal::new(self.journal.clone(), move |operation| {
            match operation {
                hearth_journal::Operation::Append(_) => append(),
                hearth_journal::Operation::Read => read(),
                hearth_journal::Operation::Trim => trim(),
            }
            hearth_journal::Fate::Pass
        }));
        let registry: SharedRegistry = Arc::new(FaultyRegistry::new(self.registry.clone(), move || {
            ask();
            hearth_registry::Fate::Pass
        }));
        let bus: SharedBus = Arc::new(FaultyBus::new(self.bus.clone(), move |operation| {
            match operation {
                hearth_bus::Operation::Publish => publish(),
                hearth_bus::Operation::Request => request(),
            }
            hearth_bus::Fate::Pass
        }));
        let within = Within::start(name, journal, registry, bus).await.unwrap();
        // What it does at its start is no part of any call.
        tokio::time::sleep(Duration::from_millis(50)).await;
        self.counts.take();
        within
    }
}

async fn send(within: &Within, resident: &str) {
    within.send(resident, "what would you like for breakfast?").await.unwrap();
}

/// What one call costs on the average of several, which is the same for each.
async fn cost(counts: &Counts, calls: u64, mut call: impl AsyncFnMut()) -> BTreeMap<&'static str, f64> {
    counts.take();
    for _ in 0..calls {
        call().await;
    }
    // An event may be published after its turn was answered.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let calls = NonZeroU64::new(calls).unwrap().get() as f64;
    counts.take().into_iter().map(|(operation, count)| (operation, count as f64 / calls)).collect()
}

#[tokio::test]
async fn a_send_to_an_active_resident_is_two_appends_and_nothing_is_read() {
    let stores = Stores::new();
    let hearth = stores.replica("replica-0").await;
    let resident = hearth.open().await.unwrap();
    send(&hearth, &resident).await;
    let cost = cost(&stores.counts, 10, async || send(&hearth, &resident).await).await;
    // What is published: the two frames. A step in one piece is not told as live text besides.
    assert_eq!(cost, BTreeMap::from([("append", 2.0), ("publish", 2.0)]));
}

#[tokio::test]
async fn a_send_by_another_replica_is_one_question_and_one_look_more() {
    let stores = Stores::new();
    let owner = stores.replica("replica-0").await;
    let other = stores.replica("replica-1").await;
    let resident = owner.open().await.unwrap();
    send(&other, &resident).await;
    let cost = cost(&stores.counts, 10, async || send(&other, &resident).await).await;
    let expected = [("append", 2.0), ("publish", 2.0), ("registry", 1.0), ("request", 1.0)];
    assert_eq!(cost, BTreeMap::from(expected));
}

#[tokio::test]
async fn opening_a_resident_is_two_appends_and_one_row_of_the_registry() {
    let stores = Stores::new();
    let hearth = stores.replica("replica-0").await;
    let cost = cost(&stores.counts, 10, async || drop(hearth.open().await.unwrap())).await;
    assert_eq!(cost, BTreeMap::from([("append", 2.0), ("publish", 1.0), ("registry", 1.0)]));
}

/// Commits of the journal's file so far, and the appends in them.
fn committed() -> [f64; 2] {
    let text = hearth_telemetry::metrics::render();
    ["count", "sum"].map(|what| {
        let name = format!("hearth_journal_batch_appends_{what} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or_default()
    })
}

/// With one caller there is nothing to group: each append is one transaction, and nothing else is one.
#[tokio::test]
async fn a_send_is_two_appends_in_two_commits_and_many_at_once_share_theirs() {
    const SENDS: u32 = 20;
    let folder = tempfile::tempdir().unwrap();
    let hearth = Within::embedded(&folder.path().join("journal.db")).await.unwrap();
    let resident = hearth.open().await.unwrap();
    send(&hearth, &resident).await;
    tokio::time::sleep(Duration::from_millis(50)).await;

    let before = committed();
    for _ in 0..SENDS {
        send(&hearth, &resident).await;
    }
    let after = committed();
    let each = [0, 1].map(|at| (after[at] - before[at]) / f64::from(SENDS));
    assert!(each.iter().all(|each| (each - 2.0).abs() < f64::EPSILON), "commits and appends per send: {each:?}");

    let mut others = Vec::new();
    for _ in 0..SENDS {
        others.push(hearth.open().await.unwrap());
    }
    let before = committed();
    futures::future::join_all(others.iter().map(|resident| send(&hearth, resident))).await;
    let after = committed();
    let [commits, appends] = [0, 1].map(|at| after[at] - before[at]);
    assert!((appends - f64::from(2 * SENDS)).abs() < f64::EPSILON, "{appends} appends of {SENDS} sends at once");
    assert!(commits < appends, "{commits} commits for {appends} appends");
}

/// A ratchet: it may fall and not rise. What a send allocates is the same at each send, but for tables
/// that grow now and then.
#[test]
fn a_send_allocates_no_more_than_it_did() {
    const MOST: u64 = 120;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stores, hearth, resident) = runtime.block_on(async {
        let stores = Stores::new();
        let hearth = stores.replica("replica-0").await;
        let resident = hearth.open().await.unwrap();
        for _ in 0..10 {
            send(&hearth, &resident).await;
        }
        (stores, hearth, resident)
    });
    let one = || {
        let counted = allocation_counter::measure(|| runtime.block_on(send(&hearth, &resident)));
        counted.count_total
    };
    let mut counts: Vec<u64> = (0..15).map(|_| one()).collect();
    counts.sort_unstable();
    let middle = counts[counts.len() / 2];
    assert!(middle <= MOST, "a send makes {middle} allocations, at most {MOST} were made before");
    drop(stores);
}
