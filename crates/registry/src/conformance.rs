//! The suite that every adapter of the port passes: one property of the trait's contract per
//! function, each on a fresh store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a suite says what is wrong by panicking")]

use std::any::Any;
use std::future::Future;
use std::time::Duration;

use hearth_types::{Epoch, Isolation, ReplicaId, RunId, SandboxId, Tenant, Timestamp};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::{Count, Location, NodeRow, NodeUsage, Registry, ReplicaRow, SandboxPlace, SharedRegistry, WorkspaceHome};

/// One empty store, as several users of it see it.
pub struct Store {
    /// At least two; as independent as the adapter allows.
    pub handles: Vec<SharedRegistry>,
    /// Lives as long as the store is used.
    pub keep: Box<dyn Any + Send>,
}

impl Store {
    pub fn new(handles: Vec<SharedRegistry>, keep: impl Any + Send) -> Self {
        assert!(handles.len() >= 2, "the suite needs two handles of the store");
        Self { handles, keep: Box::new(keep) }
    }

    fn first(&self) -> &dyn Registry {
        &*self.handles[0]
    }

    fn second(&self) -> &dyn Registry {
        &*self.handles[1]
    }
}

macro_rules! run_each {
    ($make:ident: $($property:ident),* $(,)?) => {
        $(
            println!("registry conformance: {}", stringify!($property));
            let store = $make().await;
            Box::pin($property(&store)).await;
        )*
    };
}

/// Runs every property, each on a store that `make` makes for it.
pub async fn run_all<F, Fut>(make: F)
where
    F: Fn() -> Fut,
    Fut: Future<Output = Store>,
{
    run_each!(make:
        nothing_is_known_at_first,
        a_claim_is_seen_by_everybody,
        only_a_higher_epoch_replaces_a_location,
        only_its_own_release_removes_a_location,
        of_racing_claims_the_highest_epoch_stands,
        a_replica_lives_as_long_as_its_lease,
        a_renewed_lease_does_not_lapse,
        a_heartbeat_replaces_the_row,
        a_replica_that_leaves_is_gone_at_once,
        replicas_come_in_the_order_of_their_ids,
        a_node_lives_as_long_as_its_lease_and_is_no_replica,
        seats_that_were_never_counted_are_given_to_nobody,
        of_racing_runs_exactly_as_many_get_seats_as_there_are,
        a_seat_is_kept_until_it_is_left_and_counts_once,
        seats_are_given_past_the_limit_to_those_that_need_one,
        a_workspace_has_one_home_and_only_a_later_move_changes_it,
        where_a_session_was_opened_is_known_for_a_while,
    );
}

fn run(name: &str) -> RunId {
    RunId::parse(&format!("run_{name}")).unwrap()
}

fn at(replica: &str, epoch: u64) -> Location {
    Location { replica: ReplicaId::parse(replica).unwrap(), epoch: Epoch(epoch) }
}

fn row(replica: &str) -> ReplicaRow {
    ReplicaRow {
        replica: ReplicaId::parse(replica).unwrap(),
        url: Some("http://127.0.0.1:7420".into()),
        version: "0.1.0 ü".into(),
        started_at: Timestamp::from_millis(1_764_511_200_007),
        draining: false,
        active: 3,
        turns: 1,
    }
}

const LONG: Duration = Duration::from_secs(60);

async fn ids(registry: &dyn Registry) -> Vec<String> {
    registry.replicas().await.unwrap().iter().map(|row| row.replica.to_string()).collect()
}

async fn nothing_is_known_at_first(store: &Store) {
    assert_eq!(store.first().locate(&run("a")).await.unwrap(), None);
    assert_eq!(store.first().replicas().await.unwrap(), vec![]);
    store.first().release(&run("a"), &at("r", 1)).await.unwrap();
    store.first().leave(&ReplicaId::parse("r").unwrap()).await.unwrap();
}

fn node(name: &str) -> NodeRow {
    NodeRow {
        node: name.to_owned(),
        url: "http://127.0.0.1:9000".into(),
        version: "0.1.0".into(),
        started_at: Timestamp::from_millis(1_764_511_200_007),
        draining: false,
        sessions: 2,
        max_sessions: 40,
        levels: vec![Isolation::L2],
        runtimes: vec!["runc".into()],
        image: "hearth-session:latest".into(),
        images: vec!["hearth-session:latest".into()],
        workspaces: true,
        store: Some("store_1".into()),
        pool: 1,
        usage: NodeUsage { cpus: 2, cpus_used: 0.25, execs: 1, ..NodeUsage::default() },
    }
}

async fn a_workspace_has_one_home_and_only_a_later_move_changes_it(store: &Store) {
    let home = |node: &str, generation| WorkspaceHome { node: node.into(), store: "s".into(), generation };
    assert_eq!(store.first().home("w").await.unwrap(), None);
    assert_eq!(store.first().move_home("w", home("n1", 1)).await.unwrap(), home("n1", 1));
    assert_eq!(store.second().move_home("w", home("n2", 1)).await.unwrap(), home("n1", 1), "the first one stands");
    assert_eq!(store.second().home("w").await.unwrap(), Some(home("n1", 1)));
    assert_eq!(store.second().move_home("w", home("n2", 2)).await.unwrap(), home("n2", 2));
    assert_eq!(store.first().move_home("w", home("n1", 1)).await.unwrap(), home("n2", 2));
    assert_eq!(store.first().home("other").await.unwrap(), None);
    store.first().forget_home("w").await.unwrap();
    store.second().forget_home("w").await.unwrap();
    assert_eq!(store.second().home("w").await.unwrap(), None);
    assert_eq!(store.first().move_home("w", home("n3", 1)).await.unwrap(), home("n3", 1), "its name is free again");
}

async fn where_a_session_was_opened_is_known_for_a_while(store: &Store) {
    let session = |name: &str| SandboxId::parse(name).unwrap();
    let place = |workspace: Option<&str>| SandboxPlace {
        node: "n1".into(),
        principal: "acme".into(),
        root_run: Some(run("a")),
        workspace: workspace.map(str::to_owned),
    };
    assert_eq!(store.first().sandbox(&session("sbx_1")).await.unwrap(), None);
    store.first().note_sandbox(&session("sbx_1"), place(Some("build")), LONG).await.unwrap();
    store.first().note_sandbox(&session("sbx_2"), place(None), Duration::from_millis(50)).await.unwrap();
    assert_eq!(store.second().sandbox(&session("sbx_1")).await.unwrap(), Some(place(Some("build"))));
    let until = tokio::time::Instant::now() + LONG;
    while store.second().sandbox(&session("sbx_2")).await.unwrap().is_some() {
        assert!(tokio::time::Instant::now() < until, "it is kept for ever");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(store.second().sandbox(&session("sbx_1")).await.unwrap(), Some(place(Some("build"))));
}

async fn a_node_lives_as_long_as_its_lease_and_is_no_replica(store: &Store) {
    store.first().announce(node("n2"), LONG).await.unwrap();
    store.first().announce(node("n1"), LONG).await.unwrap();
    assert_eq!(store.second().nodes().await.unwrap(), vec![node("n1"), node("n2")]);
    assert_eq!(store.second().replicas().await.unwrap(), vec![]);
    store.first().announce(NodeRow { draining: true, ..node("n1") }, LONG).await.unwrap();
    assert!(store.second().nodes().await.unwrap().first().is_some_and(|row| row.draining));
    store.second().withdraw("n1").await.unwrap();
    store.second().withdraw("n1").await.unwrap();
    store.first().announce(node("n2"), Duration::from_millis(50)).await.unwrap();
    let until = tokio::time::Instant::now() + LONG;
    while !store.first().nodes().await.unwrap().is_empty() {
        assert!(tokio::time::Instant::now() < until, "a lease does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn a_claim_is_seen_by_everybody(store: &Store) {
    store.first().claim(&run("a"), at("r1", 1)).await.unwrap();
    store.second().claim(&run("A"), at("r2", u64::MAX >> 1)).await.unwrap();
    for registry in &store.handles {
        assert_eq!(registry.locate(&run("a")).await.unwrap(), Some(at("r1", 1)));
        assert_eq!(registry.locate(&run("A")).await.unwrap(), Some(at("r2", u64::MAX >> 1)));
        assert_eq!(registry.locate(&run("b")).await.unwrap(), None);
    }
}

async fn only_a_higher_epoch_replaces_a_location(store: &Store) {
    // Also where the two numbers differ in length, and where they no longer fit 53 bits.
    for (n, epochs) in [(1, 2), (9, 10), (99, 1_000), ((1 << 53), (1 << 53) + 1)].into_iter().enumerate() {
        let (low, high) = epochs;
        let run = run(&format!("higher{n}"));
        store.first().claim(&run, at("old", low)).await.unwrap();
        store.second().claim(&run, at("same", low)).await.unwrap();
        assert_eq!(store.first().locate(&run).await.unwrap(), Some(at("old", low)));
        store.second().claim(&run, at("new", high)).await.unwrap();
        assert_eq!(store.first().locate(&run).await.unwrap(), Some(at("new", high)));
        store.first().claim(&run, at("old", low)).await.unwrap();
        assert_eq!(store.first().locate(&run).await.unwrap(), Some(at("new", high)));
    }
}

async fn only_its_own_release_removes_a_location(store: &Store) {
    let run = run("release");
    store.first().claim(&run, at("r1", 2)).await.unwrap();
    for other in [at("r2", 2), at("r1", 1), at("r1", 3)] {
        store.second().release(&run, &other).await.unwrap();
        assert_eq!(store.first().locate(&run).await.unwrap(), Some(at("r1", 2)), "released by {other:?}");
    }
    store.second().release(&run, &at("r1", 2)).await.unwrap();
    assert_eq!(store.first().locate(&run).await.unwrap(), None);
    store.first().claim(&run, at("r3", 1)).await.unwrap();
    assert_eq!(store.first().locate(&run).await.unwrap(), Some(at("r3", 1)), "a release forgets the epoch too");
}

async fn of_racing_claims_the_highest_epoch_stands(store: &Store) {
    for round in 0..50 {
        let run = run(&format!("race{round}"));
        let mut claims = JoinSet::new();
        for epoch in 1..=8u64 {
            // In another order in each round.
            let epoch = (epoch * 3 + round) % 8 + 1;
            let registry = store.handles[epoch as usize % store.handles.len()].clone();
            let run = run.clone();
            claims.spawn(async move { registry.claim(&run, at(&format!("r{epoch}"), epoch)).await.unwrap() });
        }
        while let Some(claim) = claims.join_next().await {
            claim.unwrap();
        }
        assert_eq!(store.first().locate(&run).await.unwrap(), Some(at("r8", 8)), "round {round}");
    }
}

async fn a_replica_lives_as_long_as_its_lease(store: &Store) {
    let lease = Duration::from_millis(1_500);
    store.first().heartbeat(row("long"), LONG).await.unwrap();
    let began = Instant::now();
    store.first().heartbeat(row("short"), lease).await.unwrap();
    loop {
        let live = ids(store.second()).await;
        let took = began.elapsed();
        if live == ["long"] {
            assert!(took >= lease, "the lease lapsed after {took:?}");
            break;
        }
        assert_eq!(live, ["long", "short"]);
        assert!(took < lease * 4, "the lease does not lapse");
        sleep(Duration::from_millis(50)).await;
    }
    assert!(!store.second().heartbeat(row("short"), LONG).await.unwrap(), "it is told that it was gone");
    assert_eq!(ids(store.first()).await, ["long", "short"], "it may come back");
    assert!(store.first().heartbeat(row("long"), LONG).await.unwrap(), "this one was there");
}

async fn a_renewed_lease_does_not_lapse(store: &Store) {
    let lease = Duration::from_secs(2);
    let began = Instant::now();
    while began.elapsed() < lease + Duration::from_millis(600) {
        store.first().heartbeat(row("alive"), lease).await.unwrap();
        assert_eq!(ids(store.second()).await, ["alive"], "after {:?}", began.elapsed());
        sleep(Duration::from_millis(200)).await;
    }
}

async fn a_heartbeat_replaces_the_row(store: &Store) {
    store.first().heartbeat(row("r"), LONG).await.unwrap();
    assert_eq!(store.second().replicas().await.unwrap(), vec![row("r")]);
    let changed = ReplicaRow { draining: true, active: 0, turns: 9, url: None, ..row("r") };
    store.second().heartbeat(changed.clone(), LONG).await.unwrap();
    assert_eq!(store.first().replicas().await.unwrap(), vec![changed]);
}

async fn a_replica_that_leaves_is_gone_at_once(store: &Store) {
    store.first().heartbeat(row("stays"), LONG).await.unwrap();
    store.first().heartbeat(row("leaves"), LONG).await.unwrap();
    store.second().leave(&ReplicaId::parse("leaves").unwrap()).await.unwrap();
    for registry in &store.handles {
        assert_eq!(ids(&**registry).await, ["stays"]);
    }
}

async fn replicas_come_in_the_order_of_their_ids(store: &Store) {
    for name in ["replica-2", "replica-10", "b", "a", "replica-1", "A"] {
        store.first().heartbeat(row(name), LONG).await.unwrap();
    }
    assert_eq!(ids(store.second()).await, ["A", "a", "b", "replica-1", "replica-10", "replica-2"]);
}

fn tenant(name: &str) -> Tenant {
    name.to_owned()
}

async fn seats_that_were_never_counted_are_given_to_nobody(store: &Store) {
    let acme = tenant("acme");
    let seat = store.first().take_seat(&acme, &run("a"), 9).await.unwrap();
    assert_eq!((seat.granted, seat.taken, seat.count), (false, 0, Count::Lost));
    store.second().counted(&acme, false).await.unwrap();
    let seat = store.first().take_seat(&acme, &run("a"), 9).await.unwrap();
    assert!(seat.granted && matches!(seat.count, Count::Recounted { ago } if ago < LONG), "{seat:?}");
    store.first().counted(&acme, true).await.unwrap();
    assert_eq!(store.second().take_seat(&acme, &run("b"), 9).await.unwrap().count, Count::Whole);
    let other = store.second().take_seat(&tenant("other"), &run("b"), 9).await.unwrap();
    assert_eq!((other.granted, other.taken), (false, 0), "each tenant has its own");
}

async fn of_racing_runs_exactly_as_many_get_seats_as_there_are(store: &Store) {
    let acme = tenant("acme");
    store.first().counted(&acme, true).await.unwrap();
    let mut racers = JoinSet::new();
    for n in 0..40 {
        let (registry, acme) = (store.handles[n % store.handles.len()].clone(), acme.clone());
        racers.spawn(async move { registry.take_seat(&acme, &run(&format!("r{n}")), 7).await.unwrap() });
    }
    let seats = racers.join_all().await;
    assert_eq!(seats.iter().filter(|seat| seat.granted).count(), 7);
    assert!(seats.iter().all(|seat| seat.taken <= 7), "{seats:?}");
    assert_eq!(store.second().seats(&acme, 0, 100).await.unwrap().len(), 7);
}

async fn a_seat_is_kept_until_it_is_left_and_counts_once(store: &Store) {
    let acme = tenant("acme");
    store.first().counted(&acme, true).await.unwrap();
    for _ in 0..3 {
        let seat = store.first().take_seat(&acme, &run("a"), 1).await.unwrap();
        assert_eq!((seat.granted, seat.taken), (true, 1), "a repeat has its seat already");
    }
    let refused = store.second().take_seat(&acme, &run("b"), 1).await.unwrap();
    assert_eq!((refused.granted, refused.taken), (false, 1));
    let held = store.second().seats(&acme, 0, 10).await.unwrap();
    assert!(held.len() == 1 && held[0].0 == run("a") && held[0].1 < LONG, "{held:?}");
    for _ in 0..2 {
        store.second().leave_seat(&acme, &run("a")).await.unwrap();
    }
    store.first().leave_seat(&tenant("unknown"), &run("a")).await.unwrap();
    assert!(store.first().take_seat(&acme, &run("b"), 1).await.unwrap().granted);
}

async fn seats_are_given_past_the_limit_to_those_that_need_one(store: &Store) {
    let acme = tenant("acme");
    let all: Vec<RunId> = (0..1_203).map(|n| run(&format!("n{n:04}"))).collect();
    store.first().seat_all(&acme, &all).await.unwrap();
    store.second().seat_all(&acme, &all[..7]).await.unwrap();
    store.first().counted(&acme, false).await.unwrap();
    let seat = store.first().take_seat(&acme, &run("late"), 1_000).await.unwrap();
    assert_eq!((seat.granted, seat.taken), (false, 1_203));
    let mut seen = Vec::new();
    loop {
        let page = store.second().seats(&acme, seen.len() as u64, 500).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page.into_iter().map(|(run, _)| run));
    }
    seen.sort();
    assert_eq!(seen, all);
}
