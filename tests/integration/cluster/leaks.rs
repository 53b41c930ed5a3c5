//! Sandboxes come and go while everything around them is killed; afterwards nothing is left of any.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::future::join_all;
use hearth_tests::{Api, Cluster, ClusterOptions, DockerDaemon, Mcp, NODE_TOKEN, Node, eventually, mock};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::nodes::docker_is_there;

/// Sessions at once.
const WAVE: usize = 6;
/// Of the node's process after all of it, in KiB.
const RESIDENT_KIB: u64 = 400_000;
const OPEN_FILES: usize = 200;

/// What a call comes to may be a failure while things are killed; that it is answered is enough.
async fn tool(api: &Api, run: &str, tool: &str, arguments: Value) -> Option<Value> {
    let call = json!({ "tool": { "name": format!("mcp__sandbox__{tool}"), "arguments": arguments } });
    let path = format!("/v1/_resident/{run}/send");
    let answer = api.try_finish(api.request("POST", &path).json(&json!({ "prompt": mock(call) }))).await.ok()?;
    serde_json::from_str(answer.body["output"].as_str()?).ok()
}

/// One session's life in a run, by the number of its cycle.
async fn by_a_run(api: &Api, daemon: &DockerDaemon, number: usize) {
    let opened =
        api.try_finish(api.request("POST", "/v1/_resident").json(&json!({ "agent": "mock", "prompt": "x" }))).await;
    let Some(run) = opened.ok().and_then(|reply| Some(reply.body["child_run_id"].as_str()?.to_owned())) else { return };
    let workspace = (number % 4 == 1).then(|| format!("w{}", number % 3));
    let opened = tool(api, &run, "sandbox_open", json!({ "workspace": workspace })).await.unwrap_or_default();
    if let Some(session) = opened["session_id"].as_str() {
        let line = if number.is_multiple_of(3) { "trap '' TERM; sleep 55 & sleep 55" } else { "echo x > f; cat f" };
        let args = json!({ "session_id": session, "command": line, "background": number.is_multiple_of(3) });
        tool(api, &run, "sandbox_exec", args).await;
        if number % 8 == 5 {
            daemon.docker(&["rm", "-f", &format!("hearth-{session}")]);
        }
    }
    // Closed in the end whatever comes in between: a run whose close is not heard of would hold its session.
    eventually("the run is closed", async || {
        let path = format!("/v1/_resident/{run}/close");
        let closed = api.try_finish(api.request("POST", &path).json(&json!({}))).await;
        closed.is_ok_and(|reply| reply.status == 200).then_some(())
    })
    .await;
}

/// The same by a client of the node.
async fn by_a_client(base: &str, number: usize) {
    let Some(mcp) = connected(base).await else { return };
    let call = async |tool: &str, arguments: Value| {
        let params = json!({ "name": tool, "arguments": arguments });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let response = tokio::time::timeout(Duration::from_secs(60), mcp.post(&message).send()).await.ok()?.ok()?;
        if number % 4 == 2 {
            // The client goes away; the answer is not read.
            return None;
        }
        let text = response.text().await.ok()?;
        let line = text.lines().rev().find_map(|line| line.strip_prefix("data:")).unwrap_or(&text).trim().to_owned();
        serde_json::from_str::<Value>(&line).ok().map(|answer| answer["result"]["structuredContent"].clone())
    };
    let Some(opened) = call("sandbox_open", json!({})).await else { return };
    let Some(session) = opened["session_id"].as_str() else { return };
    call("sandbox_exec", json!({ "session_id": session, "command": "echo x > f; cat f" })).await;
    if number.is_multiple_of(2) {
        call("sandbox_close", json!({ "session_id": session })).await;
    }
    // Else it is left to be idle.
}

async fn connected(base: &str) -> Option<Mcp> {
    let mut mcp = Mcp::new(base, Some(NODE_TOKEN));
    let message = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "leaks", "version": "1" },
    } });
    let response = mcp.post(&message).send().await.ok()?;
    let session = response.headers().get("mcp-session-id")?.to_str().ok()?.to_owned();
    mcp.session = Some(session);
    Some(mcp)
}

fn count(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the node runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

/// One misfortune while a wave is under way.
async fn misfortune(cluster: &Cluster, node: &mut Node, daemon: &DockerDaemon, wave: usize) {
    // At another moment of the wave each time.
    tokio::time::sleep(Duration::from_millis((wave as u64 * 137) % 700)).await;
    match wave % 5 {
        0 => node.crash().await,
        1 => {
            daemon.kill().await;
            daemon.launch().await;
        }
        2 => {
            cluster.kill("replica-1").await;
            cluster.restart("replica-1").await;
        }
        3 => {
            node.signal(Signal::STOP);
            tokio::time::sleep(Duration::from_millis(400)).await;
            node.signal(Signal::CONT);
        }
        _ => {}
    }
}

#[tokio::test]
async fn cycles_with_kills_of_everything_leave_nothing_behind() {
    if !docker_is_there() {
        println!("skipped: there is no Docker daemon with the session image");
        return;
    }
    // By default a quarter of a minute: the node and the daemon are killed once each. All kinds of misfortunes take 30.
    let cycles: usize = std::env::var("HEARTH_LEAK_CYCLES").map_or(2 * WAVE, |text| text.parse().expect("a number"));
    let options = ClusterOptions::default().replicas(2).variable("SANDBOX_AUTH_TOKEN", NODE_TOKEN);
    let Some(cluster) = options.start().await else { return };
    let Some(daemon) = DockerDaemon::start().await else {
        println!("skipped: a Docker daemon that may be killed cannot be started here");
        return;
    };
    let mut node = Node::start(&[
        ("SANDBOX_NODE_ID", "leaks"),
        ("SANDBOX_DRIVER", "docker"),
        ("DOCKER_HOST", &daemon.host()),
        ("SANDBOX_POOL_SIZE", "2"),
        ("SANDBOX_SESSION_IDLE_TTL", "3s"),
        ("SANDBOX_SWEEP_INTERVAL", "1s"),
        ("HEARTH_REDIS_URL", cluster.redis_url()),
        ("HEARTH_NATS_URL", cluster.nats_url()),
    ])
    .await;
    let identity = std::fs::read_to_string(node.path("state/identity")).expect("an identity");
    let label = format!("label=hearth.owner={}", identity.trim());
    let (apis, base) = (cluster.apis(), node.base());
    for (wave, first) in (0..cycles).step_by(WAVE).enumerate() {
        let lives = join_all((first..(first + WAVE).min(cycles)).map(|number| {
            let (apis, base, daemon) = (&apis, &base, &daemon);
            async move {
                if number.is_multiple_of(2) {
                    by_a_run(&apis[number / 2 % 2], daemon, number / 2).await;
                } else {
                    by_a_client(base, number / 2).await;
                }
            }
        }));
        tokio::join!(lives, misfortune(&cluster, &mut node, &daemon, wave));
    }
    eventually("all sessions have gone, and hold no place", async || {
        let page = apis[0].get("/v1/_nodes").await.ok();
        // The row is as of the last beat, the folder as of now.
        (page["nodes"][0]["sessions"] == 0 && count(&node.path("state/sessions")) == 0).then_some(())
    })
    .await;
    assert!(resident_kib(node.pid()) < RESIDENT_KIB, "{} KiB", resident_kib(node.pid()));
    let files = count(&PathBuf::from(format!("/proc/{}/fd", node.pid())));
    assert!(files < OPEN_FILES, "{files} open files");
    node.signal(Signal::TERM);
    assert!(node.exit().await.success(), "{}", node.log());
    for part in ["sessions", "pool", "docker/run", "docker/egress"] {
        assert_eq!(count(&node.path(&format!("state/{part}"))), 0, "{part}");
    }
    for what in [&["ps", "-aq"][..], &["network", "ls", "-q"], &["volume", "ls", "-q"]] {
        let left = daemon.docker(&[what, &["--filter", &label]].concat()).expect("the daemon answers");
        assert_eq!(left.trim(), "", "{what:?}");
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(&node.path("state").display().to_string()), "mounts");
    cluster.stop().await;
}
