//! How sessions begin and end, over restarts and callers that go away.

use std::time::Duration;

use hearth_sandbox::node::Node;
use hearth_sandbox::{ExecArgs, Liveness, OpenArgs, Sandboxes as _, SessionArgs};
use hearth_types::{ExecId, RunId, SandboxId, SystemClock};
use tokio::time::Instant;

use super::bench::{Bench, Place, caller, code, command, run, until};

/// T1
pub async fn t1_sessions_and_commands_survive_the_node(place: Place) {
    let mut bench = Bench::new(place).await;
    let exec_id = ExecId::generate();
    let args = |session: &SandboxId| ExecArgs {
        exec_id: Some(exec_id.clone()),
        ..command(session, "echo first >> log; sleep 2; cat log; exit 4")
    };
    let opened = {
        let hand = bench.hand(run("run_root", "run_root"));
        let opened = hand.open().await;
        hand.write(&opened.session_id, "kept", "1").await.unwrap();
        let gave_up = tokio::time::timeout(Duration::from_millis(500), hand.try_exec(args(&opened.session_id))).await;
        assert!(gave_up.is_err());
        opened
    };
    bench.restart().await;
    let hand = bench.hand(run("run_root", "run_root"));
    let session = opened.session_id;
    let result = hand.try_exec(args(&session)).await.unwrap();
    assert_eq!((result.output.as_str(), result.exit_code), ("first\n", Some(4)), "it ran once");
    assert_eq!(hand.poll(&session, &exec_id, 0).await.unwrap().exit_code, Some(4));
    assert_eq!(hand.read(&session, "kept").await.unwrap().content, "1");
    let again = hand.open().await;
    assert!(again.warm && again.session_id == session);
    assert_eq!(again.expires_at, opened.expires_at);
    bench.finish().await;
}

/// T1: what is gone by the time the node is back is removed within a sweep.
pub async fn t1_what_died_meanwhile_is_cleared_away(place: Place) {
    let mut bench = Bench::new(place).await;
    let session = {
        let hand = bench.hand(caller("acme"));
        let session = hand.open().await.session_id;
        hand.sh(&session, "echo there").await;
        session
    };
    let drivers = (bench.place.drivers)(bench.options.state_dir.clone()).await;
    bench.kill();
    drivers[0].stop(&session).await.unwrap();
    bench.restart().await;
    let hand = bench.hand(caller("acme"));
    assert_eq!(code(hand.try_exec(command(&session, "true")).await), "session_lost");
    until("its record is gone", || async {
        !bench.options.state_dir.join(format!("sessions/{session}.json")).exists()
    })
    .await;
    assert!(hand.listed().await.is_empty());
    bench.finish().await;
}

pub async fn a_second_node_on_the_same_folder_is_refused(place: Place) {
    let bench = Bench::new(place).await;
    let drivers = (bench.place.drivers)(bench.options.state_dir.clone()).await;
    let second = Node::start(bench.options.clone(), drivers, SystemClock::shared(), bench.trees.clone()).await;
    assert_eq!(second.err().unwrap().kind(), hearth_sandbox::ErrorKind::Conflict);
    bench.finish().await;
}

/// T10
pub async fn t10_idle_counts_from_the_end_of_a_command(place: Place) {
    let bench = Bench::with(place, |options| options.idle_ttl = Duration::from_secs(2)).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let result = hand.sh(&session, "sleep 6; echo done").await;
    assert_eq!(result.output, "done\n");
    assert_eq!(hand.listed().await, vec![session.clone()], "its idle time has just begun");
    until("it is reaped", || async { hand.listed().await.is_empty() }).await;
    let fault = hand.try_exec(command(&session, "true")).await.unwrap_err();
    assert_eq!((fault.code.as_str(), &fault.details.unwrap()["reason"]), ("session_lost", &"idle".into()));
    bench.finish().await;
}

/// T10, for a command whose caller is gone, and across a restart.
pub async fn t10_a_command_that_nobody_waits_for_holds_its_session(place: Place) {
    let mut bench = Bench::with(place, |options| options.idle_ttl = Duration::from_secs(2)).await;
    let (session, exec_id) = {
        let hand = bench.hand(caller("acme"));
        let session = hand.open().await.session_id;
        let args = ExecArgs { background: Some(true), ..command(&session, "sleep 7; echo done") };
        let exec_id = hand.try_exec(args).await.unwrap().exec_id;
        (session, exec_id)
    };
    bench.restart().await;
    let hand = bench.hand(caller("acme"));
    let result = hand.poll(&session, &exec_id, 20_000).await.unwrap();
    assert_eq!(result.output, "done\n");
    until("it is reaped", || async { hand.listed().await.is_empty() }).await;
    bench.finish().await;
}

/// T11
pub async fn t11_looking_renews_nothing(place: Place) {
    let bench = Bench::with(place, |options| options.idle_ttl = Duration::from_secs(3)).await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    let exec_id = hand.sh(&session, "true").await.exec_id;
    let began = Instant::now();
    until("it is reaped all the same", || async {
        hand.poll(&session, &exec_id, 0).await.ok();
        bench.node().list_all().await.unwrap();
        hand.listed().await.is_empty()
    })
    .await;
    assert!(began.elapsed() >= Duration::from_secs(3), "not before its time");
    bench.finish().await;
}

pub async fn a_touch_a_read_and_a_write_renew(place: Place) {
    let bench = Bench::with(place, |options| options.idle_ttl = Duration::from_secs(60)).await;
    let hand = bench.hand(caller("acme"));
    let opened = hand.open().await;
    let session = opened.session_id;
    let expiry = || async {
        let rows = hand.node.list(&hand.caller).await.unwrap();
        rows.iter().find(|row| row.session_id == session).unwrap().idle_expires_at
    };
    let mut last = opened.idle_expires_at;
    for step in 0..3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        match step {
            0 => drop(hand.write(&session, "f", "1").await.unwrap()),
            1 => drop(hand.read(&session, "f").await.unwrap()),
            _ => {
                let args = SessionArgs { session_id: session.clone() };
                let row = hand.node.touch(&hand.caller, args).await.unwrap();
                assert!(row.idle_expires_at > last);
            }
        }
        let now = expiry().await;
        assert!(now > last, "step {step}");
        last = now;
    }
    bench.finish().await;
}

pub async fn a_live_or_unknown_tree_holds_its_session_and_an_ended_one_closes_it(place: Place) {
    let bench = Bench::with(place, |options| options.idle_ttl = Duration::from_secs(1)).await;
    let hand = bench.hand(run("run_root", "run_root"));
    bench.trees.set("run_root", Liveness::Alive);
    let session = hand.open().await.session_id;
    let held = tokio::time::Instant::now() + Duration::from_secs(4);
    while Instant::now() < held {
        assert_eq!(hand.listed().await, vec![session.clone()]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bench.trees.set("run_root", Liveness::Unknown);
    bench.node().sweep().await;
    assert_eq!(hand.listed().await, vec![session]);
    bench.trees.set("run_root", Liveness::Ended);
    let began = Instant::now();
    until("its tree's end closes it", || async { hand.listed().await.is_empty() }).await;
    assert!(began.elapsed() < Duration::from_secs(10));
    bench.finish().await;
}

pub async fn the_absolute_time_out_ends_a_session_whatever_runs(place: Place) {
    let bench = Bench::with(place, |options| {
        options.max_ttl = Duration::from_secs(4);
        options.idle_ttl = Duration::from_secs(4);
    })
    .await;
    let hand = bench.hand(run("run_root", "run_root"));
    bench.trees.set("run_root", Liveness::Alive);
    let session = hand.open().await.session_id;
    let args = ExecArgs { timeout_seconds: Some(60), ..command(&session, "sleep 50") };
    let began = Instant::now();
    let fault = hand.try_exec(args).await.unwrap_err();
    assert_eq!(fault.code.as_str(), "session_lost", "{fault}");
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(fault.details.unwrap()["reason"], "expired", "its own end is no loss");
    until("it is gone", || async { hand.listed().await.is_empty() }).await;
    assert_eq!(hand.try_exec(command(&session, "true")).await.unwrap_err().details.unwrap()["reason"], "expired");
    bench.finish().await;
}

pub async fn an_idle_session_ends_when_it_is_due_and_not_at_the_next_sweep(place: Place) {
    let bench = Bench::with(place, |options| {
        options.idle_ttl = Duration::from_secs(2);
        options.sweep_interval = Duration::from_secs(600);
    })
    .await;
    let hand = bench.hand(caller("acme"));
    let session = hand.open().await.session_id;
    hand.sh(&session, "true").await;
    // Ends of other sessions do not come in its way.
    let other = hand.open().await.session_id;
    hand.close(&other).await.unwrap();
    until("it is reaped", || async { hand.listed().await.is_empty() }).await;
    assert_eq!(hand.try_exec(command(&session, "true")).await.unwrap_err().details.unwrap()["reason"], "idle");
    bench.finish().await;
}

pub async fn an_open_whose_caller_goes_away_leaves_no_session_that_nobody_knows(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let dropped = tokio::time::timeout(Duration::from_millis(1), hand.try_open(OpenArgs::default())).await;
    assert!(dropped.is_err(), "the open was to be dropped half-way");
    assert_eq!(bench.node().sessions(), 1, "its place is taken until it is gone");
    until("nothing of it is left", || async { bench.node().sessions() == 0 }).await;
    assert_eq!(std::fs::read_dir(bench.options.state_dir.join("sessions")).unwrap().count(), 0);
    bench.finish().await;
}

pub async fn what_a_session_holds_on_disk_is_measured_while_somebody_looks(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(caller("acme"));
    let (own, durable) = (hand.open().await.session_id, hand.workspace("build").await.session_id);
    for session in [&own, &durable] {
        hand.sh(session, "head -c 5000000 /dev/zero > f").await;
    }
    until("both are measured", || async {
        let rows = hand.node.list(&hand.caller).await.unwrap();
        let held = |session: &SandboxId| {
            let row = rows.iter().find(|row| row.session_id == *session)?;
            row.usage?.disk_bytes
        };
        [&own, &durable].into_iter().all(|id| held(id).is_some_and(|bytes| (5_000_000..50_000_000).contains(&bytes)))
    })
    .await;
    bench.finish().await;
}

/// Two nodes on one storage.
pub async fn a_workspace_on_a_shared_storage_is_open_on_one_node(place: Place, other: Place) {
    let mut first = Bench::with(place, |options| options.name = "node-a".to_owned()).await;
    let root = first.options.workspace_root.clone();
    let second = Bench::with(other, |options| {
        options.name = "node-b".to_owned();
        options.workspace_root = root;
    })
    .await;
    let build = || OpenArgs { workspace: Some("build".to_owned()), ..OpenArgs::default() };
    second.trees.lives("node-a");
    first.trees.lives("node-b");
    let session = first.hand(caller("acme")).workspace("build").await.session_id;
    let refused = second.hand(caller("acme")).try_open(build()).await.unwrap_err();
    assert!(refused.code.as_str() == "unavailable" && refused.message.contains("node-a"), "{refused}");
    second.hand(caller("acme")).workspace("another").await;
    // The process dies, its container lives; the other node learns that it is gone.
    first.kill();
    second.trees.dies("node-a");
    second.hand(caller("acme")).workspace("build").await;
    first.restart().await;
    let hand = first.hand(caller("acme"));
    assert_eq!(code(hand.try_exec(command(&session, "true")).await), "session_lost", "it has moved");
    assert_eq!(code(hand.try_open(build()).await), "unavailable");
    // What was removed is nobody's.
    second.node().close_all().await.unwrap();
    let workspaces = second.node().workspaces().unwrap();
    workspaces.delete_workspace(&"acme".to_owned(), "build").await.unwrap();
    hand.workspace("build").await;
    first.finish().await;
    second.finish().await;
}

pub async fn a_node_that_is_cut_off_lets_go_of_what_another_may_open(place: Place, other: Place) {
    let first = Bench::with(place, |options| options.name = "node-a".to_owned()).await;
    let hand = first.hand(caller("acme"));
    let (own, durable) = (hand.open().await.session_id, hand.workspace("build").await.session_id);
    assert_eq!(first.node().leave_shared_workspaces().await, 0, "nobody shares its storage");
    hand.sh(&durable, "true").await;
    let now = tokio::time::Instant::now;
    first.node().registered(now() + Duration::from_secs(60)).await;
    let root = first.options.workspace_root.clone();
    let second = Bench::with(other, |options| {
        options.name = "node-b".to_owned();
        options.workspace_root = root;
    })
    .await;
    assert_eq!(first.node().leave_shared_workspaces().await, 1);
    let lost = hand.try_exec(command(&durable, "true")).await.unwrap_err();
    assert_eq!((lost.code.as_str(), &lost.details.unwrap()["reason"]), ("session_lost", &serde_json::json!("cut_off")));
    hand.sh(&own, "true").await;
    let build = || OpenArgs { workspace: Some("build".to_owned()), ..OpenArgs::default() };
    assert_eq!(code(hand.try_open(build()).await), "unavailable", "not while it is cut off");
    first.node().registered(now() + Duration::from_secs(60)).await;
    hand.try_open(build()).await.unwrap();
    first.finish().await;
    second.finish().await;
}

/// Before another node may open a workspace, what has it here is dead, even though nobody is left to end it.
pub async fn a_killed_nodes_shared_workspaces_are_let_go_and_nothing_else_is(place: Place, other: Place) {
    let mut first = Bench::with(place, |options| options.name = "node-a".to_owned()).await;
    let root = first.options.workspace_root.clone();
    let now = tokio::time::Instant::now;
    let short = Duration::from_millis(1_500);
    let hand = first.hand(caller("acme"));
    let early = hand.workspace("early").await.session_id;
    first.node().registered(now() + short).await;
    tokio::time::sleep(short).await;
    hand.sh(&early, "true").await;
    let second = Bench::with(other, |options| {
        options.name = "node-b".to_owned();
        options.workspace_root = root;
    })
    .await;
    // One that was there before is told, and one that is opened is, too.
    first.node().registered(now() + 4 * short).await;
    let hand = first.hand(caller("acme"));
    let (own, late) = (hand.open().await.session_id, hand.workspace("late").await.session_id);
    for session in [&own, &early, &late] {
        let ticking = "while :; do date +%s%N > tick; sleep 0.05; done";
        hand.try_exec(ExecArgs { background: Some(true), ..command(session, ticking) }).await.unwrap();
    }
    first.kill();
    let tick =
        |name: &str| std::fs::read(first.options.workspace_root.as_ref().unwrap().join("acme").join(name).join("tick"));
    tokio::time::sleep(4 * short).await;
    let last = ["early", "late"].map(|name| tick(name).unwrap());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(last, ["early", "late"].map(|name| tick(name).unwrap()), "nothing writes there any more");
    first.restart().await;
    let hand = first.hand(caller("acme"));
    for session in [&early, &late] {
        assert_eq!(code(hand.try_exec(command(session, "true")).await), "session_lost");
    }
    hand.sh(&own, "test -s tick").await;
    first.finish().await;
    second.finish().await;
}

/// T2
pub async fn t2_opens_and_closes_finish_without_their_callers(place: Place) {
    let bench = Bench::new(place).await;
    let hand = bench.hand(run("run_root", "run_root"));
    let dropped = tokio::time::timeout(Duration::from_millis(1), hand.try_open(OpenArgs::default())).await;
    assert!(dropped.is_err(), "the open was to be dropped half-way");
    until("it is open", || async { !hand.listed().await.is_empty() }).await;
    let opened = hand.open().await;
    assert!(opened.warm);
    let stubborn =
        ExecArgs { background: Some(true), ..command(&opened.session_id, "trap '' TERM; while :; do sleep 1; done") };
    hand.try_exec(stubborn).await.unwrap();
    let dropped = tokio::time::timeout(Duration::from_millis(1), hand.close(&opened.session_id)).await;
    assert!(dropped.is_err(), "the close was to be dropped half-way");
    until("it is gone", || async {
        !bench.options.state_dir.join(format!("sessions/{}.json", opened.session_id)).exists()
    })
    .await;
    let next = hand.open().await;
    assert!(!next.warm && next.session_id != opened.session_id);
    bench.finish().await;
}

pub async fn a_close_can_be_repeated_and_an_unknown_id_is_unknown(place: Place) {
    let mut bench = Bench::new(place).await;
    let session = {
        let hand = bench.hand(caller("acme"));
        let session = hand.open().await.session_id;
        let (one, two) = tokio::join!(hand.close(&session), hand.close(&session));
        one.and(two).unwrap();
        hand.close(&session).await.unwrap();
        assert_eq!(code(hand.try_exec(command(&session, "true")).await), "session_lost");
        session
    };
    bench.restart().await;
    let hand = bench.hand(caller("acme"));
    hand.close(&session).await.unwrap();
    let foreign = bench.hand(caller("beta"));
    let unknown = hearth_types::SandboxId::generate();
    assert_eq!(foreign.close(&session).await, foreign.close(&unknown).await);
    assert_eq!(code(foreign.close(&unknown).await), "not_found");
    bench.finish().await;
}

pub async fn a_tree_is_closed_at_once_and_stays_closed(place: Place) {
    let mut bench = Bench::new(place).await;
    let root = RunId::parse("run_root").unwrap();
    {
        let hand = bench.hand(run("run_root", "run_root"));
        hand.open().await;
        hand.try_open(OpenArgs { own: Some(true), ..OpenArgs::default() }).await.unwrap();
        let other = bench.hand(run("run_other", "run_other"));
        let kept = other.open().await.session_id;
        let closed = hand.node.close_run(&hand.caller, &root, true).await.unwrap().closed;
        assert_eq!(closed, 2);
        assert_eq!(hand.node.close_run(&hand.caller, &root, true).await.unwrap().closed, 0);
        assert!(hand.listed().await.is_empty());
        assert_eq!(code(hand.try_open(OpenArgs::default()).await), "run_ended");
        assert_eq!(other.listed().await, vec![kept]);
    }
    bench.restart().await;
    let hand = bench.hand(run("run_root", "run_late"));
    assert_eq!(code(hand.try_open(OpenArgs::default()).await), "run_ended", "it is remembered");
    bench.finish().await;
}

pub async fn a_close_that_meets_an_open_wins(place: Place) {
    let bench = Bench::new(place).await;
    let root = RunId::parse("run_root").unwrap();
    let hand = bench.hand(run("run_root", "run_root"));
    let opening = hand.try_open(OpenArgs::default());
    let closing = async {
        tokio::time::sleep(Duration::from_millis(3)).await;
        hand.node.close_run(&hand.caller, &root, true).await.unwrap()
    };
    let (opened, _) = tokio::join!(opening, closing);
    if let Err(fault) = opened {
        assert!(["session_lost", "run_ended"].contains(&fault.code.as_str()), "{fault}");
    }
    assert!(bench.node().list_all().await.unwrap().is_empty());
    let records = std::fs::read_dir(bench.options.state_dir.join("sessions")).unwrap().count();
    assert_eq!(records, 0, "nothing half-open is left");
    bench.finish().await;
}
