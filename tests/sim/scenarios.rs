//! What the seeds and the reading of the protocol have found, each step by step.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use hearth_journal::{Journal, LogKey, Position};
use hearth_types::{FaultCode, RunId, RunState, SessionId, TurnId, TurnOutcome};

use crate::client::Client;
use crate::cluster::{Cluster, LEASE, Member};
use crate::command::{Answer, Command};
use crate::gate::Power;
use crate::plan::{Fault, Plan};
use crate::script::{Call, Script, StepScript};
use crate::world::{Peer, World};

const PATIENT: Duration = Duration::from_secs(60);
/// Schedules that each scenario is tried under.
const SCHEDULES: u64 = 40;

/// Plays a scenario under several schedules; a breach of any promise fails it.
fn scene<F: Future<Output = ()>>(replicas: usize, play: impl Fn(Arc<Cluster>, Client) -> F) {
    scene_with(Vec::new(), replicas, play);
}

fn scene_with<F: Future<Output = ()>>(faults: Vec<Fault>, replicas: usize, play: impl Fn(Arc<Cluster>, Client) -> F) {
    scenes(SCHEDULES, faults, replicas, play);
}

fn scenes<F: Future<Output = ()>>(
    schedules: u64,
    faults: Vec<Fault>,
    replicas: usize,
    play: impl Fn(Arc<Cluster>, Client) -> F,
) {
    for seed in 0..schedules {
        let hour = Duration::from_secs(3_600);
        let plan = Plan {
            replicas,
            clients: 0,
            commands: 0,
            faults: faults.clone(),
            misfortunes: 0,
            idle_ttl: hour,
            passivate_after: hour,
            placement_slack: 64,
            closes: true,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        // A story of one schedule alone may be longer than anybody reads.
        let world = World::new(seed, plan, schedules > 1);
        runtime.block_on(async {
            let cluster = Cluster::new(world.clone(), None);
            for place in 0..replicas {
                cluster.start(place).await;
            }
            world.begin();
            // Everyone has heard of everyone.
            tokio::time::sleep(LEASE).await;
            Box::pin(play(cluster.clone(), Client::new(cluster, 0, seed))).await;
        });
        let story = world.story.text();
        assert!(world.breached().is_none(), "schedule {seed}: {}\n{story}", world.breached().unwrap());
    }
}

fn script(label: &str, calls: Vec<Call>, ms: u64) -> Script {
    let steps = if calls.is_empty() { Vec::new() } else { vec![StepScript { ms: 0, calls }] };
    Script { label: label.to_owned(), steps, ms, fails: false }
}

fn open(label: &str, ms: u64) -> Command {
    Command::Open { parent: None, script: script(label, Vec::new(), ms), wait_ms: 1 }
}

fn send(run: &RunId, label: &str, ms: u64, wait_ms: u64) -> Command {
    Command::Send { run: run.clone(), script: script(label, Vec::new(), ms), wait_ms }
}

fn message(run: &RunId, label: &str) -> Command {
    Command::Message { session: SessionId::of_run(run), script: script(label, Vec::new(), 0), wait_ms: 1 }
}

/// Where an input was taken.
fn placed(answer: &Answer) -> (RunId, TurnId) {
    let (run, turn, _) = turn_of(answer);
    (run, turn)
}

/// The answer of one replica, which must come. A run that moves meanwhile costs a repeat.
async fn ask(client: &Client, member: &Member, command: Command, key: &str) -> Answer {
    loop {
        match client.once(member, &command, Some(key), PATIENT).await.expect("an answer comes") {
            Answer::Refused(fault) if fault.code.retryable() => tokio::time::sleep(Duration::from_millis(50)).await,
            answer => return answer,
        }
    }
}

fn turn_of(answer: &Answer) -> (RunId, TurnId, Option<TurnOutcome>) {
    match answer {
        Answer::Turn(envelope) => (envelope.run_id.clone(), envelope.turn_id.clone().unwrap(), envelope.outcome),
        other => panic!("not a turn: {other:?}"),
    }
}

fn refused(answer: &Answer) -> Option<FaultCode> {
    match answer {
        Answer::Refused(fault) => Some(fault.code),
        _ => None,
    }
}

/// Waits for what must come within a minute.
async fn until(cluster: &Cluster, what: &str, holds: impl Fn(&Cluster) -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENT;
    while !holds(cluster) {
        assert!(tokio::time::Instant::now() < deadline, "not within a minute: {what}\n{}", cluster.world.story.text());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn epoch(cluster: &Cluster, run: &RunId) -> u64 {
    cluster.world.books().book(run).map_or(0, |book| book.laws.epoch.0)
}

fn has_ended(cluster: &Cluster, run: &RunId, turn: &TurnId) -> bool {
    cluster.world.books().book(run).is_some_and(|book| book.laws.ended.contains_key(turn))
}

/// The child that a run has journaled.
fn child_of(cluster: &Cluster, run: &RunId) -> Option<RunId> {
    cluster.world.books().book(run).and_then(|book| book.laws.children.keys().next().cloned())
}

#[test]
fn a_close_of_an_ended_run_waits_for_its_subtree() {
    scene(2, async |cluster, mut client| {
        let grandchild = Box::new(script("grandchild", Vec::new(), 60_000));
        let child = Box::new(script("child", vec![Call::Open(grandchild, 1)], 60_000));
        let root = script("root", vec![Call::Open(child, 1)], 2_000);
        client.perform(Command::Create { interactive: false, script: root, timeout_s: None }, Some("k1".into())).await;
        let run = cluster.known()[0].clone();
        // What is told is judged as it comes: nothing lives below a run that is told as closed.
        client.perform(Command::Close { run }, Some("k2".into())).await;
    });
}

#[test]
fn a_prompt_that_waits_when_a_close_begins_is_told_of_the_end() {
    scene(1, async |cluster, client| {
        let member = cluster.member(0).unwrap();
        let child = Box::new(script("child", Vec::new(), 4_000));
        let first = script("first", vec![Call::Spawn(child)], 4_000);
        let opened = Command::Open { parent: None, script: first, wait_ms: 1 };
        let (run, ..) = turn_of(&ask(&client, &member, opened, "k1").await);
        let waiting = ask(&client, &member, send(&run, "second", 0, 0), "k2");
        let closing = async {
            until(&cluster, "the prompt waits", |cluster| {
                cluster.world.books().book(&run).is_some_and(|book| book.laws.waiting.len() == 1)
            })
            .await;
            ask(&client, &member, Command::Close { run: run.clone() }, "k3").await
        };
        let (told, closed) = tokio::join!(waiting, closing);
        assert!(matches!(closed, Answer::Closed { state: RunState::Closed, .. }), "{closed:?}");
        assert!(matches!(&told, Answer::Turn(envelope) if envelope.state == RunState::Closed), "{told:?}");
    });
}

/// Stops the owner of a run that is parked, and lets the other replica take it over with a new turn.
async fn taken_over(cluster: &Cluster, client: &Client, ms: u64) -> (RunId, TurnId) {
    let (old, new) = (cluster.member(0).unwrap(), cluster.member(1).unwrap());
    let (run, first, _) = turn_of(&ask(client, &old, open("first", 0), "k1").await);
    until(cluster, "the first turn has ended", |cluster| has_ended(cluster, &run, &first)).await;
    let earlier = cluster.registry.copy();
    old.gate.set(Power::Stopped);
    tokio::time::sleep(LEASE * 2).await;
    let (_, turn, _) = turn_of(&client.once(&new, &send(&run, "second", ms, 1), Some("k2"), PATIENT).await.unwrap());
    assert_eq!(epoch(cluster, &run), 2);
    cluster.registry.restore(&earlier);
    old.gate.set(Power::Runs);
    (run, turn)
}

#[test]
fn a_superseded_activation_knows_the_turns_since() {
    scene(2, async |cluster, client| {
        let (run, turn) = taken_over(&cluster, &client, 5_000).await;
        let old = cluster.member(0).unwrap();
        for wait_ms in [0, 20_000] {
            let poll = Command::Poll { run: run.clone(), turn: Some(turn.clone()), wait_ms };
            let (_, told, outcome) = turn_of(&ask(&client, &old, poll, "-").await);
            assert_eq!((told, outcome.is_some()), (turn.clone(), wait_ms > 0));
        }
    });
}

#[test]
fn a_superseded_activation_does_not_keep_its_replica_from_taking_the_run_up() {
    scene(2, async |cluster, client| {
        let (run, turn) = taken_over(&cluster, &client, 2_000).await;
        cluster.kill(1);
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(has_ended(&cluster, &run, &turn), "nobody runs it\n{}", cluster.world.story.text());
    });
}

#[test]
fn a_run_under_way_stays_with_its_owner_while_the_registry_is_away() {
    scene(3, async |cluster, client| {
        let owner = cluster.member(0).unwrap();
        let (run, turn, _) = turn_of(&ask(&client, &owner, open("long", 20_000), "k1").await);
        for place in 0..3 {
            cluster.world.cut(&Cluster::replica_id(place), Peer::Registry, true);
        }
        let poll = Command::Poll { run: run.clone(), turn: Some(turn), wait_ms: 0 };
        let (one, two) = (cluster.member(1).unwrap(), cluster.member(2).unwrap());
        ask(&client, &one, poll, "-").await;
        let answers = tokio::join!(
            ask(&client, &one, send(&run, "one", 0, 1), "k2"),
            ask(&client, &two, send(&run, "two", 0, 1), "k3")
        );
        assert_eq!((refused(&answers.0), refused(&answers.1)), (None, None));
        assert_eq!(epoch(&cluster, &run), 1, "it was taken from its owner\n{}", cluster.world.story.text());
    });
}

/// A parent whose child is journaled and whose owner dies before the child exists.
async fn unborn(cluster: &Cluster, client: &Client) -> Option<RunId> {
    let owner = cluster.member(0).unwrap();
    let (parent, ..) = turn_of(&ask(client, &owner, open("parent", 0), "k1").await);
    let opens = Command::Open { parent: Some(parent.clone()), script: script("child", Vec::new(), 0), wait_ms: 0 };
    let opening = client.once(&owner, &opens, Some("k2"), PATIENT);
    let killing = async {
        until(cluster, "the child is journaled", |cluster| child_of(cluster, &parent).is_some()).await;
        cluster.kill(0);
    };
    tokio::join!(opening, killing);
    let child = child_of(cluster, &parent).unwrap();
    // Where the schedule let it begin at once there is nothing to see.
    let exists = cluster.world.books().book(&child).is_some();
    (!exists).then_some(parent)
}

#[test]
fn another_body_is_refused_before_the_child_exists() {
    let met = Cell::new(0);
    scene(2, async |cluster, client| {
        let Some(parent) = unborn(&cluster, &client).await else { return };
        met.set(met.get() + 1);
        let other = Command::Open { parent: Some(parent), script: script("other", Vec::new(), 0), wait_ms: 1 };
        let answer = ask(&client, &cluster.member(1).unwrap(), other, "k2").await;
        assert_eq!(refused(&answer), Some(FaultCode::Conflict), "{answer:?}\n{}", cluster.world.story.text());
    });
    assert!(met.get() > 0, "no schedule killed the owner before the child existed");
}

#[test]
fn a_child_that_is_closed_before_it_exists_is_told_as_closed() {
    let met = Cell::new(0);
    scene(2, async |cluster, client| {
        let (owner, other) = (cluster.member(0).unwrap(), cluster.member(1).unwrap());
        let (parent, ..) = turn_of(&ask(&client, &owner, open("parent", 0), "k1").await);
        let opens = Command::Open { parent: Some(parent.clone()), script: script("child", Vec::new(), 0), wait_ms: 0 };
        let closes = Command::Close { run: parent.clone() };
        let unborn = |cluster: &Cluster| {
            child_of(cluster, &parent).is_some_and(|child| cluster.world.books().book(&child).is_none())
        };
        let is_closing = |cluster: &Cluster| cluster.world.books().book(&parent).is_some_and(|book| book.laws.closing);
        let killing = async {
            let ended = |cluster: &Cluster| cluster.world.books().end_of(&parent).is_some();
            until(&cluster, "the close begins", |cluster| is_closing(cluster) || ended(cluster)).await;
            cluster.kill(0);
        };
        let opening = client.once(&owner, &opens, Some("k2"), PATIENT);
        let closing = async {
            // Once the open is under way.
            until(&cluster, "the child is journaled", |cluster| child_of(cluster, &parent).is_some()).await;
            client.once(&owner, &closes, Some("k3"), PATIENT).await
        };
        tokio::join!(opening, closing, killing);
        let was_unborn = unborn(&cluster) && is_closing(&cluster);
        let child = child_of(&cluster, &parent).unwrap();
        let closed = ask(&client, &other, closes, "k3").await;
        assert!(matches!(closed, Answer::Closed { .. }), "{closed:?}");
        let again = ask(&client, &other, opens, "k2").await;
        assert_eq!((turn_of(&again).0, turn_of(&again).2.is_some()), (child, true), "{again:?}");
        met.set(met.get() + u32::from(was_unborn));
    });
    assert!(met.get() > 0, "no schedule closed the parent before the child existed");
}

#[test]
fn a_replica_that_drains_while_the_journal_is_away_leaves_no_gap() {
    scene(2, async |cluster, client| {
        let owner = cluster.member(0).unwrap();
        let mut work = script("work", vec![Call::List, Call::List], 0);
        work.steps[0].ms = 1_000;
        let opened = Command::Open { parent: None, script: work, wait_ms: 1 };
        let (run, ..) = turn_of(&ask(&client, &owner, opened, "k1").await);
        let began = tokio::time::Instant::now();
        let drain = owner.residents.drain(Duration::from_secs(40));
        let outage = async {
            cluster.world.cut(&owner.replica, Peer::Journal, true);
            // The step is reported after a second, and its append tried for ten. Who tries last is on its
            // way when the line is mended.
            let mended = began + Duration::from_millis(10_900 + cluster.world.below(300));
            tokio::time::sleep_until(mended).await;
            cluster.world.cut(&owner.replica, Peer::Journal, false);
        };
        tokio::join!(drain, outage);
        owner.gate.set(Power::Dead);
        let closed = ask(&client, &cluster.member(1).unwrap(), Command::Close { run }, "k2").await;
        assert!(matches!(closed, Answer::Closed { .. }), "{closed:?}\n{}", cluster.world.story.text());
    });
}

#[test]
fn a_prompt_without_a_key_is_taken_once_however_late_it_is_sent_again() {
    scene(2, async |cluster, client| {
        let (owner, other) = (cluster.member(0).unwrap(), cluster.member(1).unwrap());
        let (run, first, _) = turn_of(&ask(&client, &owner, open("first", 0), "k1").await);
        until(&cluster, "the first turn has ended", |cluster| has_ended(cluster, &run, &first)).await;
        let accepted = |cluster: &Cluster| cluster.world.books().book(&run).unwrap().laws.accepted.len();
        let once = send(&run, "once", 0, 0);
        let sending = client.once(&other, &once, None, PATIENT);
        let losing = async {
            until(&cluster, "the prompt is taken", |cluster| accepted(cluster) == 2).await;
            // The answer is lost on its way back.
            cluster.world.split(&owner.replica, &other.replica, true);
            for n in 0..6 {
                let more = send(&run, &format!("more{n}"), 0, 0);
                turn_of(&ask(&client, &owner, more, &format!("m{n}")).await);
            }
            cluster.world.split(&owner.replica, &other.replica, false);
        };
        let (told, ()) = tokio::join!(sending, losing);
        assert_eq!(turn_of(&told.unwrap()).2, Some(TurnOutcome::Finished));
        assert_eq!(accepted(&cluster), 8);
    });
}

#[test]
fn a_message_repeated_while_its_run_ends_is_one_message() {
    scenes(400, Vec::new(), 2, async |cluster, client| {
        let (owner, other) = (cluster.member(0).unwrap(), cluster.member(1).unwrap());
        let (run, first, _) = turn_of(&ask(&client, &owner, open("first", 0), "k1").await);
        until(&cluster, "the first turn has ended", |cluster| has_ended(cluster, &run, &first)).await;
        let message = || message(&run, "once");
        let closing = async {
            tokio::time::sleep(Duration::from_millis(cluster.world.below(60))).await;
            ask(&client, &other, Command::Close { run: run.clone() }, "k2").await
        };
        let again = async {
            tokio::time::sleep(Duration::from_millis(cluster.world.below(60))).await;
            ask(&client, &other, message(), "k3").await
        };
        let (told, again, _) = tokio::join!(ask(&client, &owner, message(), "k3"), again, closing);
        assert_eq!(placed(&told), placed(&again), "{}", cluster.world.story.text());
    });
}

#[test]
fn a_message_repeated_while_its_run_cannot_be_read_is_one_message() {
    scene_with(vec![Fault::FlakyJournal], 2, async |cluster, client| {
        let (owner, other) = (cluster.member(0).unwrap(), cluster.member(1).unwrap());
        let (run, ..) = turn_of(&ask(&client, &owner, open("first", 0), "k1").await);
        let told = ask(&client, &owner, message(&run, "once"), "k2").await;
        ask(&client, &owner, Command::Close { run: run.clone() }, "k3").await;
        for _ in 0..40 {
            let again = ask(&client, &other, message(&run, "once"), "k2").await;
            assert_eq!(placed(&told), placed(&again), "{}", cluster.world.story.text());
        }
    });
}

#[test]
fn a_parked_run_is_served_on_this_side_of_a_split() {
    scene(2, async |cluster, client| {
        let (owner, other) = (cluster.member(0).unwrap(), cluster.member(1).unwrap());
        let (run, first, _) = turn_of(&ask(&client, &owner, open("first", 0), "k1").await);
        until(&cluster, "the first turn has ended", |cluster| has_ended(cluster, &run, &first)).await;
        tokio::time::sleep(LEASE).await;
        cluster.world.split(&owner.replica, &other.replica, true);
        let sent = send(&run, "second", 0, 0);
        let answer = client.once(&other, &sent, Some("k2"), Duration::from_secs(30)).await;
        assert_eq!(turn_of(&answer.expect("an answer comes")).2, Some(TurnOutcome::Finished));
    });
}

#[test]
fn callers_that_go_away_while_runs_are_taken_up_leave_nothing_behind() {
    scene(2, async |cluster, client| {
        let (owner, other) = (cluster.member(0).unwrap(), cluster.member(1).unwrap());
        let mut runs = Vec::new();
        for n in 0..8 {
            let label = format!("first{n}");
            let (run, first, _) = turn_of(&ask(&client, &owner, open(&label, 0), &label).await);
            until(&cluster, "the first turn has ended", |cluster| has_ended(cluster, &run, &first)).await;
            runs.push(run);
        }
        cluster.kill(0);
        cluster.registry.forget();
        tokio::time::sleep(LEASE * 2).await;
        for (n, run) in (0..).zip(&runs) {
            let patience = Duration::from_millis(1 + cluster.world.below(12));
            client.once(&other, &send(run, &format!("gone{n}"), 0, 1), None, patience).await;
        }
        tokio::time::sleep(LEASE).await;
        let active = runs.iter().filter(|run| other.residents.is_active(run)).count();
        assert_eq!(other.residents.row().active, active as u64, "runs that nobody took up are counted");
    });
}

#[test]
fn t41_a_lost_acknowledgement_leaves_one_decision_when_cancel_and_completion_race() {
    let met = Cell::new(0);
    scene_with(vec![Fault::FlakyJournal], 1, async |cluster, client| {
        let owner = cluster.member(0).unwrap();
        let (run, first, _) = turn_of(&ask(&client, &owner, open("first", 0), "k").await);
        until(&cluster, "the first turn has ended", |cluster| has_ended(cluster, &run, &first)).await;
        for n in 0..12 {
            let sending = ask(&client, &owner, send(&run, &format!("turn{n}"), 30, 0), &format!("s{n}")).await;
            let (_, turn, outcome) = turn_of(&sending);
            assert!(outcome.is_some(), "{sending:?}");
            let racing = ask(&client, &owner, send(&run, &format!("raced{n}"), 30, 1), &format!("r{n}")).await;
            let (_, raced, _) = turn_of(&racing);
            tokio::time::sleep(Duration::from_millis(20 + cluster.world.below(20))).await;
            let cancel = Command::Cancel { run: run.clone(), turn: Some(raced.clone()) };
            let Answer::Cancelled { envelope, stopped } = ask(&client, &owner, cancel, &format!("c{n}")).await else {
                panic!("a cancel is answered")
            };
            until(&cluster, "the raced turn has ended", |cluster| has_ended(cluster, &run, &raced)).await;
            let poll = Command::Poll { run: run.clone(), turn: Some(raced.clone()), wait_ms: 0 };
            let (_, _, outcome) = turn_of(&ask(&client, &owner, poll, "-").await);
            // The books refuse a turn that ends twice; what is told is what stands.
            let stopped_it = outcome == Some(TurnOutcome::Cancelled);
            assert_eq!((stopped, envelope.turn_id.as_ref()), (stopped_it, Some(&raced)), "{turn} before, {outcome:?}");
        }
        assert_eq!(epoch(&cluster, &run), 1, "it took itself for fenced\n{}", cluster.world.story.text());
        let story = cluster.world.story.text();
        let lines: Vec<&str> = story.lines().collect();
        let lost = |pair: &&[&str]| pair[0].contains("answer will be lost") && pair[1].contains("TurnEnded");
        met.set(met.get() + lines.windows(2).filter(lost).count());
    });
    assert!(met.get() > 20, "an acknowledgement of a turn's end was lost only {} times", met.get());
}

#[test]
fn a_resident_of_ten_thousand_turns_is_taken_over_by_its_snapshot_and_the_tail() {
    const TURNS: u64 = 10_000;
    scenes(1, Vec::new(), 2, async |cluster, client| {
        let (owner, other) = (cluster.member(0).unwrap(), cluster.member(1).unwrap());
        let (run, ..) = turn_of(&ask(&client, &owner, open("first", 0), "k").await);
        for n in 1..TURNS {
            let sent = ask(&client, &owner, send(&run, &format!("turn{n}"), 0, 0), &format!("k{n}")).await;
            assert_eq!(turn_of(&sent).2, Some(TurnOutcome::Finished));
        }
        let book = |cluster: &Cluster| {
            let books = cluster.world.books();
            let book = books.book(&run).unwrap();
            (book.frames, book.snapshot, book.floor)
        };
        cluster.kill(0);
        tokio::time::sleep(LEASE * 2).await;
        let (frames, snapshot, floor) = book(&cluster);
        assert!(frames > 2 * TURNS && snapshot > 0 && floor > frames - frames / 4, "{frames} {snapshot} {floor}");
        let stored = cluster.journal.read(&LogKey::Run(run.clone()), Position(0), 100_000).await;
        assert_eq!(stored.unwrap().len() as u64, frames - floor + 1, "what is before the floor is gone");
        cluster.world.frames_read.store(0, std::sync::atomic::Ordering::Relaxed);
        let sent = ask(&client, &other, send(&run, "after", 0, 0), "after").await;
        assert_eq!(turn_of(&sent).2, Some(TurnOutcome::Finished));
        assert_eq!(epoch(&cluster, &run), 2);
        let read = cluster.world.frames_read.load(std::sync::atomic::Ordering::Relaxed);
        // The last frame once more, as it says where the snapshot is; and some looks at what is new.
        let tail = frames - snapshot + 1;
        assert!(read <= 2 * tail + 32, "{read} frames were read; the snapshot and the tail are {tail}");
        assert!(tail < 1_000, "the tail has {tail} frames");
    });
}
