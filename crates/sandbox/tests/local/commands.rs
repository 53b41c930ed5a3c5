//! What commands get, and what they cannot do.

use std::collections::BTreeMap;
use std::time::Duration;

use hearth_sandbox::init::ExecSpec;
use hearth_sandbox::local::Bwrap;
use hearth_sandbox::{Driver as _, ErrorKind, Work, session_home};

use super::ground::{Ground, LONG, eventually, exec, runs, whole_tree};

// T6
#[tokio::test]
async fn commands_get_the_sessions_environment_and_nothing_of_the_hosts() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        let work = &session.started.workspace_path;
        let home = session_home(work, false);
        assert_eq!(session.text("pwd").await, *work);
        assert_eq!(session.text("echo $HOME; test -d $HOME && test -w $HOME").await, home);
        assert_eq!(session.text("echo $SESSION_VAR").await, "of the session");
        assert_eq!(session.text("env | grep -c s3cret; true").await, "0");
        let path = session.text("echo $PATH").await;
        assert!(path.starts_with(&format!("{home}/.local/bin:{home}/.cargo/bin:")), "{path}");
        let own = BTreeMap::from([("SESSION_VAR".to_owned(), "mine".to_owned())]);
        let own = ExecSpec { env: own, ..exec("echo $SESSION_VAR") };
        assert_eq!(session.client.run(&own, LONG).await.unwrap().output, b"mine\n");
        ground.clear().await;
    }
}

// T7
#[tokio::test]
async fn a_script_in_the_workspace_runs_and_a_full_workspace_stays_usable() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        session.client.write("bin/tool", b"#!/bin/sh\necho ran $1\n", Some(0o755)).await.unwrap();
        assert_eq!(session.text("bin/tool x; echo tmp > $(mktemp) && echo tmp").await, "ran x\ntmp");
        if ground.confined() {
            session.client.write("kept", b"old", None).await.unwrap();
            let full = session.sh("head -c 200M /dev/zero > big").await;
            assert_ne!(full.exit_code, Some(0));
            assert!(String::from_utf8_lossy(&full.output).contains("No space left"));
            let refused = session.client.write("kept", &vec![b'x'; 1 << 20], None).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NoSpace);
            assert_eq!(session.text("cat kept; rm big; echo usable").await, "oldusable");
        }
        ground.clear().await;
    }
}

#[tokio::test]
async fn a_small_cargo_project_builds_with_the_hosts_toolchain_and_is_warm_in_the_next_session() {
    for ground in Ground::both().await {
        let work = Work::Durable { host_dir: ground.workspace(), read_only: false };
        let session = ground.session_on(work.clone()).await;
        let cargo = std::path::Path::new(env!("CARGO"));
        assert_ne!(session.text("command -v cargo").await, "", "the host has {cargo:?}");
        let manifest = b"[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n";
        session.client.write("tiny/Cargo.toml", manifest, None).await.unwrap();
        session.client.write("tiny/src/main.rs", b"fn main() { println!(\"built\"); }", None).await.unwrap();
        assert_eq!(session.text("cd tiny && cargo run -q --offline").await, "built");
        assert_eq!(session.text("ls tiny").await, "Cargo.lock\nCargo.toml\nsrc");
        ground.driver.stop(&session.spec.session).await.unwrap();
        let again = ground.session_on(work).await;
        let warm = again.text("cd tiny && cargo build --offline 2>&1").await;
        assert!(!warm.contains("Compiling") && warm.contains("Finished"), "{warm}");
        ground.driver.stop(&again.spec.session).await.unwrap();
        assert!(ground.workspace().join("tiny/src/main.rs").exists(), "a durable workspace outlives its sessions");
        ground.clear().await;
    }
}

// T4, T5, T14
#[tokio::test]
async fn a_time_out_kills_the_tree_before_it_is_answered() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        let quick = session.sh("sleep 300 & echo ok; cat").await;
        assert_eq!((quick.exit_code, quick.output.as_slice()), (Some(0), &b"ok\n"[..]));
        assert!(quick.duration_ms < 2_000);
        let command = "echo partial; trap '' TERM; (setsid sleep 999 &); sleep 999";
        let spec = ExecSpec { timeout: Duration::from_secs(1), ..exec(command) };
        let report = session.client.run(&spec, LONG).await.unwrap();
        assert!(report.timed_out && report.duration_ms < 6_000, "{report:?}");
        assert_eq!(report.output, b"partial\n");
        let left = whole_tree(&session.spec.session);
        assert!(!left.iter().any(|process| runs(process.pid, &["sleep", "999"])));
        assert!(left.iter().any(|process| runs(process.pid, &["sleep", "300"])), "the other exec's child lives on");
        ground.clear().await;
    }
}

// T8, T15
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_are_marked_and_keep_their_code() {
    let ground = Ground::new(Bwrap::Auto).await;
    let session = ground.session().await;
    let floods = (0..4).map(|_| async {
        let spec = ExecSpec { timeout: LONG * 2, ..exec("yes | head -c 268435456; exit 3") };
        session.client.run(&spec, LONG * 2).await.unwrap()
    });
    let (floods, other) = tokio::join!(futures::future::join_all(floods), session.sh("echo other"));
    assert_eq!(other.output, b"other\n");
    for flood in floods {
        assert_eq!((flood.exit_code, flood.truncated, flood.output_bytes), (Some(3), true, 268_435_456));
        assert_eq!(flood.output.len(), 1024 * 1024);
    }
    let exact = ExecSpec { max_output_bytes: 1_000, ..exec("head -c 1000 /dev/zero") };
    let report = session.client.run(&exact, LONG).await.unwrap();
    assert_eq!((report.output.len(), report.truncated), (1_000, false), "exactly the cap is not cut off");
    ground.clear().await;
}

// T9
#[tokio::test]
async fn paths_that_lead_out_are_refused_and_the_host_is_untouched() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        let target = ground.folder.path().join("p");
        session.text(&format!("ln -s / up; ln -s {} host", ground.folder.path().display())).await;
        for path in ["up/tmp/p", "host/p", "../p", target.to_str().unwrap()] {
            let refused = session.client.write(path, b"x", None).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Refused, "{path}");
        }
        for path in ["../../etc/shadow", "up/etc/passwd", "/etc/passwd", "host/state"] {
            let refused = session.client.read(path, 0, 10).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Refused, "{path}");
        }
        assert!(!target.exists());
        session.client.write("/work/inside", b"x", None).await.unwrap();
        let inside = format!("{}/inside", session.started.workspace_path);
        assert_eq!(session.client.read(&inside, 0, 10).await.unwrap().content, b"x");
        ground.clear().await;
    }
}

// T12
#[tokio::test]
async fn two_commands_at_once_are_not_mixed() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        let timed = ExecSpec {
            timeout: Duration::from_millis(700),
            ..exec("trap 'exit 4' TERM; while true; do echo bbbb; sleep 0.02; done")
        };
        let (a, b) = tokio::join!(
            session.sh("for i in $(seq 100); do echo aaaa; sleep 0.005; done; exit 3"),
            session.client.run(&timed, LONG)
        );
        assert_eq!((a.exit_code, a.output), (Some(3), "aaaa\n".repeat(100).into_bytes()));
        let b = b.unwrap();
        assert_eq!((b.exit_code, b.timed_out), (Some(4), true));
        let text = String::from_utf8(b.output).unwrap();
        assert!(text.contains("bbbb") && !text.contains("aaaa"), "{text}");
        ground.clear().await;
    }
}

#[tokio::test]
async fn a_background_command_is_polled_and_killed() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        let spec = ExecSpec { stdin: Some(b"given".to_vec()), ..exec("cat; exec sleep 300") };
        assert!(session.client.exec(&spec).await.unwrap().running());
        eventually("its output can be seen while it runs", async || {
            let report = session.client.poll(&spec.exec_id).await.unwrap();
            report.running() && report.output == b"given"
        })
        .await;
        let killed = session.client.kill(&spec.exec_id).await.unwrap();
        assert_eq!((killed.killed, killed.exit_code, killed.signal.as_deref()), (true, Some(143), Some("SIGTERM")));
        assert_eq!(session.client.poll(&spec.exec_id).await.unwrap(), killed);
        session.client.forget(&spec.exec_id).await.unwrap();
        assert_eq!(session.client.exec(&spec).await.unwrap_err().kind(), ErrorKind::Evicted);
        ground.clear().await;
    }
}

#[tokio::test]
async fn many_waits_at_once_do_not_keep_a_kill_out() {
    let ground = Ground::new(Bwrap::Auto).await;
    let session = ground.session().await;
    let spec = exec("exec sleep 300");
    session.client.exec(&spec).await.unwrap();
    let waits = futures::future::join_all((0..200).map(|_| session.client.wait(&spec.exec_id, LONG)));
    let kill = async {
        eventually("the waits are under way", async || session.client.ping().await.is_ok()).await;
        session.client.kill(&spec.exec_id).await.unwrap()
    };
    let (waited, killed) = tokio::join!(waits, kill);
    assert!(killed.killed && waited.iter().all(|wait| wait.as_ref().is_ok_and(|report| report.killed)));
    ground.clear().await;
}

#[tokio::test]
async fn the_network_is_cut_where_the_driver_does_not_say_otherwise() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        let links = session.text("grep -c : /proc/net/dev").await;
        if !ground.driver.notice().unwrap().contains("network can be reached") {
            assert_eq!(links, "1", "only the loopback is there");
        }
        ground.clear().await;
    }
}

#[tokio::test]
async fn arguments_out_of_range_are_refused_with_what_is_allowed() {
    let ground = Ground::new(Bwrap::Off).await;
    let session = ground.session().await;
    let long = session.client.exec(&exec(&"x".repeat(200_000))).await.unwrap_err();
    assert!(long.kind() == ErrorKind::TooLarge && long.to_string().contains("131071"), "{long}");
    let bad = BTreeMap::from([("A=B".to_owned(), String::new())]);
    let variable = session.client.exec(&ExecSpec { env: bad, ..exec("true") }).await.unwrap_err();
    assert_eq!(variable.kind(), ErrorKind::Invalid);
    let cwd = ExecSpec { cwd: Some("nowhere".to_owned()), ..exec("true") };
    assert_eq!(session.client.exec(&cwd).await.unwrap_err().kind(), ErrorKind::Invalid);
    let huge = session.client.write("f", &vec![0; 17 << 20], None).await.unwrap_err();
    assert_eq!(huge.kind(), ErrorKind::TooLarge);
    session.client.write("f", &vec![7; 16 << 20], None).await.unwrap();
    let whole = session.client.read("f", 0, u64::MAX).await.unwrap();
    assert!(whole.content.len() == 16 << 20 && !whole.truncated);
    ground.clear().await;
}
