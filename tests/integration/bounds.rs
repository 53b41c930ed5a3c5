//! Caps, depth and idle time.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hearth_tests::{ADMIN, Options, Server, eventually, mock, program};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

#[tokio::test]
async fn a_run_holds_eight_residents_and_a_refused_open_leaves_no_trace() {
    let server = Server::start().await;
    let api = server.api();
    let parent = api.open("mock", "parent").await;
    let mut children = Vec::new();
    for number in 0..8 {
        children.push(api.open_below(&parent, "mock", &format!("child {number}")).await);
    }
    let body = json!({ "agent": "mock", "prompt": "one too many", "parent_run_id": parent });
    let error = api.post("/v1/_resident", body.clone()).await.refused(429, "resident_limit");
    assert_eq!(error["retryable"], false);
    assert_eq!(api.residents(&format!("parent_run_id={parent}")).await.len(), 8);
    let page = api.get(&format!("/v1/runs?root_run_id={parent}")).await.ok();
    assert_eq!(page["runs"].as_array().unwrap().len(), 9, "the refused child is no run");

    api.close(children.last().unwrap()).await;
    api.post("/v1/_resident", body).await.ok();
    server.stop().await;
}

#[tokio::test]
async fn the_cap_is_a_setting() {
    let server = Options::default().variable("HEARTH_MAX_INTERACTIVE_CHILDREN", "1").start().await;
    let api = server.api();
    let parent = api.open("mock", "parent").await;
    api.open_below(&parent, "mock", "child").await;
    let body = json!({ "agent": "mock", "prompt": "child", "parent_run_id": parent });
    api.post("/v1/_resident", body).await.refused(429, "resident_limit");
    server.stop().await;
}

#[tokio::test]
async fn a_tree_has_three_levels_below_its_root() {
    let server = Server::start().await;
    let api = server.api();
    let root = api.open("mock", "root").await;
    let mut deepest = root.clone();
    for level in 1..=3 {
        deepest = api.open_below(&deepest, "mock", &format!("level {level}")).await;
    }
    let body = json!({ "agent": "mock", "prompt": "level 4", "parent_run_id": deepest });
    let error = api.post("/v1/_resident", body).await.refused(422, "tool_refused");
    assert_eq!(error["retryable"], false);
    let run = api.get_run(&deepest).await;
    assert_eq!(run["root_run_id"], root);
    server.stop().await;
}

#[tokio::test]
async fn an_idle_resident_is_closed_with_its_subtree_and_polls_do_not_renew_it() {
    let server = Server::start().await;
    let api = server.api();
    let body = json!({ "agent": "mock", "prompt": "short-lived", "idle_ttl_seconds": 2 });
    let opened = api.post("/v1/_resident", body).await.ok();
    let id = opened["child_run_id"].as_str().unwrap();
    let child = api.open_below(id, "mock", "below").await;
    let listed = api.residents(&format!("root_run_id={id}")).await;
    assert!(listed.iter().any(|row| row["child_run_id"] == id && row["idle_ttl_seconds"] == 2), "{listed:?}");
    eventually("polls did not keep it", async || (api.poll(id).await["state"] == "closed").then_some(())).await;
    eventually("its subtree is closed", async || (api.poll(&child).await["state"] == "closed").then_some(())).await;
    server.stop().await;
}

#[tokio::test]
async fn t31_a_child_that_ended_by_itself_shows_its_final_state_and_output() {
    let server = Server::start().await;
    let api = server.api();
    let parent = api.open("mock", "parent").await;
    let body = json!({ "agent": "mock", "prompt": "last words", "parent_run_id": parent, "idle_ttl_seconds": 1 });
    let child = api.post("/v1/_resident", body).await.ok()["child_run_id"].as_str().unwrap().to_owned();
    let last = eventually("the child has ended", async || {
        let envelope = api.poll(&child).await;
        (envelope["state"] == "closed").then_some(envelope)
    })
    .await;
    assert_eq!((last["outcome"].as_str(), last["output"].as_str()), (Some("finished"), Some("last words")));
    assert_eq!(api.get_run(&child).await["state"], "closed");
    // The slot is free again: nine children in all, one after the other's end.
    for number in 0..8 {
        api.open_below(&parent, "mock", &format!("child {number}")).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn t28_a_turn_longer_than_the_idle_time_is_not_reaped() {
    let server = Server::start().await;
    let api = server.api();
    let prompt = mock(json!({ "latency_ms": 3_500, "output": "survived" }));
    let body = json!({ "agent": "mock", "prompt": prompt, "idle_ttl_seconds": 1 });
    let envelope = api.post("/v1/_resident", body).await.ok();
    assert_eq!((envelope["outcome"].as_str(), envelope["output"].as_str()), (Some("finished"), Some("survived")));
    server.stop().await;
}

#[tokio::test]
async fn a_send_renews_the_idle_time() {
    let server = Server::start().await;
    let api = server.api();
    let body = json!({ "agent": "mock", "prompt": "one", "idle_ttl_seconds": 2 });
    let id = api.post("/v1/_resident", body).await.ok()["child_run_id"].as_str().unwrap().to_owned();
    let start = Instant::now();
    // Busy and idle in turn for more than twice the idle time, never idle for as long as it.
    while start.elapsed() < Duration::from_secs(5) {
        let envelope = api.send(&id, &mock(json!({ "latency_ms": 700, "output": "busy" }))).await;
        assert_eq!(envelope["outcome"], "finished", "{envelope}");
    }
    assert_eq!(api.poll(&id).await["state"], "awaiting_input");
    server.stop().await;
}

#[tokio::test]
async fn t44_more_blocked_parents_than_turns_at_once_do_not_lock_up() {
    let server = Server::start().await;
    let api = server.api();
    let spawn = json!({ "name": "mock", "prompt": mock(json!({ "latency_ms": 200, "output": "child" })) });
    let prompt = mock(json!({ "tool": { "name": "Agent", "arguments": spawn } }));
    let calls = (0..150).map(|_| api.run("mock", &prompt));
    let runs = futures::future::join_all(calls).await;
    assert!(runs.iter().all(|run| run["output"] == "child"), "{:?}", runs.iter().find(|run| run["output"] != "child"));
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_has_at_most_as_many_runs_as_its_quota() {
    let server = Options::default().variable("HEARTH_MAX_RUNS_PER_TENANT", "2").start().await;
    let api = server.api();
    let first = api.open("mock", "one").await;
    api.open_below(&first, "mock", "two").await;
    let refused = api.post("/v1/runs", json!({ "agent": "mock", "prompt": "three" })).await;
    assert!(refused.header("retry-after").is_some(), "{}", refused.text);
    let error = refused.refused(429, "quota_exceeded");
    assert_eq!((error["details"]["limit"].as_u64(), error["details"]["taken"].as_u64()), (Some(2), Some(2)), "{error}");
    api.close(&first).await;
    for _ in 0..3 {
        let run = eventually("a run that ended gives its place back", async || {
            let reply = api.post("/v1/runs", json!({ "agent": "mock", "prompt": "next" })).await;
            (reply.status == 200).then_some(reply.body)
        })
        .await;
        assert_eq!(run["state"], "completed");
    }
    server.stop().await;
}

/// A small file system in memory over a folder, where the kernel lets this process mount one.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, size: &str) -> Option<Self> {
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "{} stays mounted", self.0.display());
    }
}

#[tokio::test]
async fn a_full_disk_refuses_what_is_new_and_loses_nothing() {
    let mut server = Options::default().variable("SANDBOX_DRIVER", "local").start().await;
    server.terminate().await;
    let Some(disk) = SmallDisk::mount(&server.data(), "12m") else {
        return println!("skipped: mounting a small file system is not allowed here");
    };
    server.restart().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let ballast = server.data().join("ballast");
    std::fs::write(&ballast, vec![1u8; 6 << 20]).unwrap();
    let prompt = "x".repeat(200_000);
    let mut accepted = Vec::new();
    let mut refused = None;
    for _ in 0..100 {
        let reply =
            api.post(&format!("/v1/_resident/{id}/send"), json!({ "prompt": prompt, "timeout_ms": 5_000 })).await;
        match reply.status {
            200 => accepted.push(reply.ok()["turn_id"].as_str().unwrap().to_owned()),
            // Accepted, and its end found no room: that is written once there is some.
            504 => drop(reply.refused(504, "deadline_exceeded")),
            _ => {
                refused = Some(reply);
                break;
            }
        }
    }
    let refused = refused.expect("the disk is full in the end");
    assert!(refused.header("retry-after").is_some());
    let error = refused.refused(503, "unavailable");
    assert!(error["retryable"] == true && error["message"].as_str().unwrap().contains("room"), "{error}");
    eventually("it says that it cannot serve", async || (api.get("/readyz").await.status == 503).then_some(())).await;
    assert_eq!(api.get("/livez").await.status, 200);
    assert_eq!(api.get_run(&id).await["run_id"], id.as_str(), "reads go on");
    assert!(api.metric("hearth_journal_errors_total").await >= 1.0);

    std::fs::remove_file(&ballast).unwrap();
    eventually("it serves again", async || (api.get("/readyz").await.status == 200).then_some(())).await;
    eventually("a send is taken", async || {
        let reply = api.post(&format!("/v1/_resident/{id}/send"), json!({ "prompt": "again" })).await;
        (reply.status == 200).then(|| assert_eq!(reply.ok()["output"], "again"))
    })
    .await;
    for turn in &accepted {
        let end = api.end_of(&id, turn).await;
        assert!(end["outcome"].is_string(), "{turn} was accepted and has no end");
    }
    server.terminate().await;
    let doctor = program().args(["doctor", "--data"]).arg(server.data()).output().unwrap();
    assert!(doctor.status.success(), "{}", String::from_utf8_lossy(&doctor.stdout));
    drop(disk);
    drop(server);
}

#[tokio::test]
async fn commands_past_what_one_run_takes_are_refused_with_a_time_to_come_back_and_it_goes_on() {
    const AT_ONCE: usize = 600;
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let path = format!("/v1/_resident/{id}/cancel");
    let ask = async |number: usize| {
        let reply = api.post_with_key(&path, &format!("k{number}"), json!({ "turn_id": "turn_none" })).await;
        let refused = reply.status == 429;
        if refused {
            assert!(reply.header("retry-after").is_some(), "{}", reply.text);
            reply.refused(429, "queue_full");
        } else {
            assert_eq!(reply.ok()["stopped"], false);
        }
        f64::from(u8::from(refused))
    };
    let refused: f64 = futures::future::join_all((0..AT_ONCE).map(ask)).await.into_iter().sum();
    let shed = api.metric("hearth_commands_shed_total").await;
    assert!((shed - refused).abs() < 0.5, "{refused} were refused and {shed} counted");
    assert_eq!(api.send(&id, "usable").await["output"], "usable");
    server.stop().await;
}

async fn is_alive(connection: &mut TcpStream) -> bool {
    let mut answer = [0; 12];
    let asked = connection.write_all(b"GET /livez HTTP/1.1\r\nHost: here\r\n\r\n").await;
    asked.is_ok() && connection.read_exact(&mut answer).await.is_ok() && &answer == b"HTTP/1.1 200"
}

#[tokio::test]
async fn connections_leave_the_replica_files_of_its_own_and_come_back_when_others_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .args(["-c", "ulimit -n 400 && exec \"$0\" \"$@\""]);
    shell.arg(hearth_tests::binary()).args(["--json", "dev", "--listen", "127.0.0.1:0", "--token", ADMIN, "--data"]);
    let child = shell.arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = Ended(child.unwrap());
    let output = child.0.stdout.take().unwrap();
    let first = tokio::task::spawn_blocking(move || BufReader::new(output).lines().next());
    let greeting: Value = serde_json::from_str(&first.await.unwrap().unwrap().unwrap()).unwrap();
    let address = greeting["url"].as_str().unwrap().trim_start_matches("http://").to_owned();

    let mut held = Vec::new();
    for _ in 0..300 {
        held.push(TcpStream::connect(&address).await.unwrap());
    }
    let mut served = 0;
    for connection in &mut held {
        served += u32::from(is_alive(connection).await);
    }
    assert!((64..=144).contains(&served), "{served} of 300 connections are served with 400 files");
    drop(held);
    eventually("whoever comes later is served", async || {
        let mut connection = TcpStream::connect(&address).await.ok()?;
        is_alive(&mut connection).await.then_some(())
    })
    .await;
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
