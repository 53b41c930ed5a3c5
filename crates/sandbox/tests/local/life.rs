//! How sessions come and go.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::Duration;

use hearth_sandbox::init::{ExecSpec, InitClient};
use hearth_sandbox::local::Bwrap;
use hearth_sandbox::{Driver as _, ErrorKind, SessionSpec, SessionState, Work};
use hearth_sandbox_init::tree;
use hearth_types::{ExecId, SandboxId};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::ground::{Ground, LONG, eventually, exec, marked, open, runs, spec, whole_tree};

#[tokio::test]
async fn the_driver_says_what_it_holds_and_what_it_does_not() {
    for ground in Ground::both().await {
        assert_eq!((ground.driver.kind(), ground.driver.isolation().as_str()), ("local", "L1"));
        let notice = ground.driver.notice().unwrap();
        assert!(notice.starts_with("L1, ") && notice.contains("memory only for each process"), "{notice}");
        if ground.bwrap == Bwrap::Off {
            assert_eq!(ground.driver.runtime(), "process");
        }
        ground.clear().await;
    }
}

#[tokio::test]
async fn a_start_is_repeated_without_a_second_session_and_a_stop_without_an_error() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        session.text("echo here > file").await;
        assert_eq!(ground.driver.start(&session.spec).await.unwrap(), session.started);
        assert_eq!(session.text("cat file").await, "here");
        assert_eq!(ground.driver.inspect(&session.spec.session).await.unwrap(), SessionState::Running);
        for _ in 0..2 {
            ground.driver.stop(&session.spec.session).await.unwrap();
            assert_eq!(ground.driver.inspect(&session.spec.session).await.unwrap(), SessionState::Gone);
        }
        let lost = session.client.run(&exec("true"), LONG).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::SessionLost);
        assert_eq!(ground.driver.reattach(&session.spec).await.unwrap_err().kind(), ErrorKind::SessionLost);
        ground.clear().await;
    }
}

#[tokio::test]
async fn what_the_driver_cannot_give_is_refused() {
    for ground in Ground::both().await {
        let other = if ground.confined() { "process" } else { "runsc" };
        let image = SessionSpec { image: Some("debian".to_owned()), ..ground.spec(Work::Tmpfs { mb: 1 }) };
        let runtime = SessionSpec { runtime: Some(other.to_owned()), ..ground.spec(Work::Tmpfs { mb: 1 }) };
        assert_eq!(ground.driver.start(&image).await.unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(ground.driver.start(&runtime).await.unwrap_err().kind(), ErrorKind::IsolationUnavailable);
        let read_only = ground.spec(Work::Durable { host_dir: ground.workspace(), read_only: true });
        if ground.confined() {
            let started = ground.driver.start(&read_only).await.unwrap();
            let client = InitClient::connect(&started.socket).await.unwrap();
            let report = client.run(&exec("echo x > /work/f"), LONG).await.unwrap();
            assert_ne!(report.exit_code, Some(0));
            assert_eq!(client.write("f", b"x", None).await.unwrap_err().kind(), ErrorKind::Refused);
        } else {
            assert_eq!(ground.driver.start(&read_only).await.unwrap_err().kind(), ErrorKind::IsolationUnavailable);
        }
        ground.clear().await;
    }
}

#[tokio::test]
async fn a_start_that_fails_says_why_and_leaves_nothing() {
    for ground in Ground::both().await {
        let spec = ground.spec(Work::Durable { host_dir: "/no/such/folder".into(), read_only: false });
        let error = ground.driver.start(&spec).await.unwrap_err();
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(!cause.is_empty(), "{error:?}");
        assert_eq!(ground.driver.inspect(&spec.session).await.unwrap(), SessionState::Gone);
        ground.driver.stop(&spec.session).await.unwrap();
        ground.clear().await;
    }
}

#[tokio::test]
async fn a_new_driver_finds_the_session_and_the_running_command() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        let spec = exec("echo once >> ran; sleep 1; cat ran");
        session.client.exec(&spec).await.unwrap();
        let again = open(&ground.state(), ground.bwrap).await;
        assert_eq!(again.reattach(&session.spec).await.unwrap(), session.started);
        let client = InitClient::connect(&session.started.socket).await.unwrap();
        let report = client.run(&spec, LONG).await.unwrap();
        assert_eq!((report.exit_code, report.output.as_slice()), (Some(0), &b"once\n"[..]));
        ground.clear().await;
    }
}

/// What the stand-in for a node runs: its id is known to who comes after it.
fn shared_exec() -> ExecSpec {
    let exec_id = ExecId::derive(&["stand-in"]);
    ExecSpec { exec_id, ..exec("echo begun; echo once >> ran; sleep 1.5; cat ran; exit 5") }
}

/// Not a test of its own: another process runs it as the node that is going to be killed.
#[tokio::test]
async fn stand_in_for_a_node() {
    let Ok(state) = std::env::var("HEARTH_TEST_STATE") else { return };
    let bwrap = if std::env::var("HEARTH_TEST_BWRAP").is_ok() { Bwrap::Auto } else { Bwrap::Off };
    let driver = open(Path::new(&state), bwrap).await;
    let session = SandboxId::parse(&std::env::var("HEARTH_TEST_SESSION").unwrap()).unwrap();
    let started = driver.start(&SessionSpec { session, ..spec(Work::Tmpfs { mb: 16 }) }).await.unwrap();
    let client = InitClient::connect(&started.socket).await.unwrap();
    client.run(&shared_exec(), LONG).await.unwrap();
    panic!("it was to be killed before");
}

#[tokio::test]
async fn a_command_outlives_the_node_that_is_killed_and_its_result_is_fetched_by_the_next() {
    for ground in Ground::both().await {
        let spec = ground.spec(Work::Tmpfs { mb: 16 });
        let mut node = std::process::Command::new(std::env::current_exe().unwrap());
        node.args(["life::stand_in_for_a_node", "--exact"]).process_group(0);
        node.env("HEARTH_TEST_STATE", ground.state()).env("HEARTH_TEST_SESSION", spec.session.as_str());
        if ground.confined() {
            node.env("HEARTH_TEST_BWRAP", "1");
        }
        let mut node = node.spawn().unwrap();
        let exec_id = shared_exec().exec_id;
        eventually("the command runs", async || {
            let Ok(started) = ground.driver.reattach(&spec).await else { return false };
            let Ok(client) = InitClient::connect(&started.socket).await else { return false };
            client.poll(&exec_id).await.is_ok_and(|report| report.output == b"begun\n")
        })
        .await;
        // Its whole group, as a terminal or a service manager would.
        kill_process_group(Pid::from_raw(i32::try_from(node.id()).unwrap()).unwrap(), Signal::KILL).unwrap();
        node.wait().unwrap();
        let driver = open(&ground.state(), ground.bwrap).await;
        let started = driver.reattach(&spec).await.unwrap();
        let client = InitClient::connect(&started.socket).await.unwrap();
        let report = client.run(&shared_exec(), LONG).await.unwrap();
        assert_eq!((report.exit_code, report.output.as_slice()), (Some(5), &b"begun\nonce\n"[..]));
        ground.clear().await;
    }
}

#[tokio::test]
async fn a_stop_leaves_no_process_however_it_hides() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        let command = "trap '' TERM HUP; (setsid nohup sleep 994 >/dev/null 2>&1 &); \
             (env -i setsid sleep 994 &); sleep 994";
        session.client.exec(&exec(command)).await.unwrap();
        let sleepers = || {
            let tree = whole_tree(&session.spec.session);
            tree.into_iter().filter(|process| runs(process.pid, &["sleep", "994"])).collect::<Vec<_>>()
        };
        eventually("all three run", async || sleepers().len() == 3).await;
        let roots = marked(&session.spec.session);
        assert!(sleepers().iter().any(|process| !roots.contains(&process.pid)), "one has shed the mark");
        let tree = whole_tree(&session.spec.session);
        ground.driver.stop(&session.spec.session).await.unwrap();
        // One that is dead and not yet waited for by the system's init counts as gone.
        let lives =
            |was: &tree::Process| tree::process(was.pid).is_some_and(|now| now.started == was.started && !now.zombie);
        assert!(!tree.iter().any(lives));
        ground.clear().await;
    }
}

#[tokio::test]
async fn a_session_whose_init_was_killed_is_gone_and_can_be_cleared() {
    for ground in Ground::both().await {
        let session = ground.session().await;
        session.client.exec(&exec("sleep 993")).await.unwrap();
        for pid in marked(&session.spec.session) {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if String::from_utf8_lossy(&line).contains("serve") {
                kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).ok();
            }
        }
        eventually("it is gone", async || {
            // While it dies, the answer may be that it cannot be told.
            matches!(ground.driver.inspect(&session.spec.session).await, Ok(SessionState::Gone))
        })
        .await;
        ground.clear().await;
    }
}

#[tokio::test]
async fn a_session_ends_at_its_deadline_without_a_node() {
    for ground in Ground::both().await {
        let mut spec = ground.spec(Work::Tmpfs { mb: 1 });
        spec.deadline = hearth_types::Clock::now(&hearth_types::SystemClock::start()).plus(Duration::from_secs(2));
        let started = ground.driver.start(&spec).await.unwrap();
        let client = InitClient::connect(&started.socket).await.unwrap();
        client.exec(&exec("trap '' TERM; sleep 992")).await.unwrap();
        eventually("nobody is left", async || marked(&spec.session).is_empty()).await;
        assert_eq!(ground.driver.inspect(&spec.session).await.unwrap(), SessionState::Gone);
        ground.clear().await;
    }
}

#[tokio::test]
async fn sessions_work_below_a_state_folder_with_a_long_name() {
    for bwrap in [Bwrap::Auto, Bwrap::Off] {
        let base = tempfile::tempdir().unwrap();
        let state = base.path().join("long".repeat(40)).join("long".repeat(40));
        let driver = open(&state, bwrap).await;
        let spec = spec(Work::Tmpfs { mb: 1 });
        let started = driver.start(&spec).await.unwrap();
        assert!(started.socket.as_os_str().len() > 300);
        let client = InitClient::connect(&started.socket).await.unwrap();
        assert_eq!(client.run(&exec("echo ok"), LONG).await.unwrap().output, b"ok\n");
        driver.stop(&spec.session).await.unwrap();
        assert_eq!(marked(&spec.session), Vec::<i32>::new());
    }
}
