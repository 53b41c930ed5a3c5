//! Sandbox nodes of a cluster: listed, drained, killed, and where workspaces are.

use std::time::Duration;

use hearth_tests::{Api, Cluster, ClusterOptions, NODE_TOKEN, Node, Proxy, eventually, mock};
use rustix::process::Signal;
use serde_json::{Value, json};

const ANN: &str = "token-of-ann-0123456789abcdef";

fn options() -> ClusterOptions {
    ClusterOptions::default().replicas(2).variable("SANDBOX_DRIVER", "local")
}

async fn nodes(api: &Api) -> Vec<Value> {
    api.get("/v1/_nodes").await.ok()["nodes"].as_array().expect("a list").clone()
}

/// A tool call by the run: its result, or the body of its refusal.
async fn tool(api: &Api, run: &str, tool: &str, arguments: Value) -> Value {
    let call = json!({ "tool": { "name": format!("mcp__sandbox__{tool}"), "arguments": arguments } });
    let envelope = api.send(run, &mock(call)).await;
    let output = envelope["output"].as_str().unwrap_or_default();
    serde_json::from_str(output).unwrap_or_else(|_| panic!("not JSON: {envelope}"))
}

/// A session of the run's own on this node, and the name of its workspace: each name is another draw.
async fn own_session_on(api: &Api, run: &str, node: &str) -> (Value, String) {
    for n in 0..50 {
        let workspace = format!("apart-{n}");
        let opened = tool(api, run, "sandbox_open", json!({ "own": true, "workspace": workspace })).await;
        if opened["node"] == node {
            return (opened["session_id"].clone(), workspace);
        }
        tool(api, run, "sandbox_close", json!({ "session_id": opened["session_id"] })).await;
    }
    panic!("no session comes to {node}")
}

/// A node of its own beside those that the cluster began with, with storage of its own.
async fn join(cluster: &Cluster, id: &str) -> Node {
    let stores = [("HEARTH_REDIS_URL", cluster.redis_url()), ("HEARTH_NATS_URL", cluster.nats_url())];
    join_with(cluster, id, &[&[("SANDBOX_AUTH_TOKEN", NODE_TOKEN)][..], &stores].concat()).await
}

async fn join_with(cluster: &Cluster, id: &str, variables: &[(&str, &str)]) -> Node {
    let mut node = Node::new(&[&[("SANDBOX_NODE_ID", id)], variables].concat());
    node.launch();
    node.ready().await;
    eventually("the node is listed", async || {
        nodes(&cluster.api(0)).await.iter().any(|row| row["node_id"] == id).then_some(())
    })
    .await;
    node
}

#[tokio::test]
async fn nodes_are_listed_by_any_replica_with_what_they_have_and_use() {
    // A lease that does not run out while a node stands still.
    let options = options().nodes(2).variable("HEARTH_REPLICA_LEASE_MS", 30_000);
    let Some(cluster) = options.start().await else { return };
    for api in cluster.apis() {
        let page = api.get("/v1/_nodes").await.ok();
        assert!(page["next_cursor"].is_null() && page["as_of"].is_string() && page.get("partial").is_none(), "{page}");
        let rows = page["nodes"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{page}");
        for row in rows {
            assert_eq!((&row["draining"], &row["levels"]), (&json!(false), &json!(["L1"])), "{row}");
            assert!(row["max_sessions"].as_u64().is_some_and(|max| max > 0), "{row}");
            for field in ["cpus", "memory_bytes", "memory_used_bytes", "disk_bytes", "disk_used_bytes"] {
                assert!(row["usage"][field].as_u64().is_some_and(|used| used > 0), "no `{field}` in {row}");
            }
        }
        assert_eq!(rows[0]["store"], rows[1]["store"], "they share the folder of workspaces");
    }
    let api = cluster.api(0);
    let first = api.get("/v1/_nodes?limit=1").await.ok();
    let cursor = first["next_cursor"].as_str().expect("a second page").to_owned();
    let second = api.get(&format!("/v1/_nodes?limit=1&cursor={cursor}")).await.ok();
    assert_ne!(first["nodes"][0]["node_id"], second["nodes"][0]["node_id"]);
    assert!(second["next_cursor"].is_null());
    api.get("/v1/_nodes?limit=0").await.refused(400, "invalid_argument");
    let run = api.open("mock", "a").await;
    let opened = tool(&api, &run, "sandbox_open", json!({})).await;
    eventually("its session is counted", async || {
        let rows = nodes(&cluster.api(1)).await;
        rows.iter().any(|row| row["node_id"] == opened["node"] && row["sessions"] == 1).then_some(())
    })
    .await;
    let busy = json!({ "session_id": opened["session_id"], "command": "sleep 60", "background": true });
    tool(&api, &run, "sandbox_exec", busy).await;
    let usage = eventually("what it uses is measured once somebody looks", async || {
        let page = cluster.api(1).get("/v1/_sandboxes").await.ok();
        Some(page["sandboxes"][0]["usage"].clone()).filter(Value::is_object)
    })
    .await;
    assert!(usage["memory_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{usage}");
    assert!(usage["processes"].as_u64().is_some_and(|processes| processes > 1), "{usage}");
    assert!(usage["cpu_seconds"].is_number(), "{usage}");
    // A node that stands still, and has not lost its lease yet, keeps no list waiting.
    let silent = opened["node"].as_str().unwrap();
    cluster.pause(silent);
    let page = cluster.api(1).get("/v1/_sandboxes").await.ok();
    assert_eq!((&page["partial"], &page["sandboxes"]), (&json!(true), &json!([])), "{page}");
    cluster.resume(silent);
    cluster.stop().await;
}

#[tokio::test]
async fn a_drained_node_keeps_its_sessions_takes_no_new_ones_and_ends_well() {
    let Some(cluster) = options().nodes(2).token(ANN, "acme", "ann", "member").start().await else { return };
    let (api, other) = (cluster.api(0), cluster.api(1));
    let run = api.open("mock", "a").await;
    let opened = tool(&api, &run, "sandbox_open", json!({})).await;
    let (id, node) = (opened["session_id"].clone(), opened["node"].as_str().unwrap().to_owned());
    let path = format!("/v1/_nodes/{node}/drain");
    api.with_token(ANN).post(&path, json!({})).await.refused(403, "permission_denied");
    api.post("/v1/_nodes/node-9/drain", json!({})).await.refused(404, "not_found");
    api.post(&path, json!({ "force": true })).await.refused(400, "invalid_argument");
    for _ in 0..2 {
        let row = other.post(&path, json!({})).await.ok();
        assert_eq!((&row["node_id"], &row["draining"]), (&json!(node), &json!(true)), "{row}");
    }
    // Its own session goes on, for the tree that has it, also by an open again.
    let ran = tool(&other, &run, "sandbox_exec", json!({ "session_id": id, "command": "echo on" })).await;
    assert_eq!(ran["output"], "on\n", "{ran}");
    assert_eq!(tool(&api, &run, "sandbox_open", json!({})).await["session_id"], id);
    for _ in 0..4 {
        let fresh = api.open("mock", "b").await;
        let elsewhere = tool(&api, &fresh, "sandbox_open", json!({})).await;
        assert!(elsewhere["node"].is_string() && elsewhere["node"] != node.as_str(), "{elsewhere}");
        api.close(&fresh).await;
    }
    // The node tells so itself, with its next beat.
    let draining = |row: &Value| row["node_id"] == node.as_str() && row["draining"] == true;
    eventually("its row says so", async || nodes(&api).await.iter().any(draining).then_some(())).await;
    api.close(&run).await;
    assert_eq!(cluster.ended(&node).await, 0);
    eventually("it has taken its leave", async || (nodes(&other).await.len() == 1).then_some(())).await;
    cluster.stop().await;
}

#[tokio::test]
async fn sessions_of_a_dead_node_are_lost_and_their_workspace_opens_on_another_of_its_storage() {
    let Some(cluster) = options().nodes(2).start().await else { return };
    let (api, other) = (cluster.api(0), cluster.api(1));
    let run = api.open("mock", "a").await;
    let opened = tool(&api, &run, "sandbox_open", json!({ "workspace": "build" })).await;
    let (id, node) = (opened["session_id"].clone(), opened["node"].as_str().unwrap().to_owned());
    tool(&api, &run, "sandbox_write", json!({ "session_id": id, "path": "kept", "content": "durable" })).await;
    // Sessions that no slot of the tree is bound to, as many as it takes for one to be on that node.
    let (own, apart) = own_session_on(&api, &run, &node).await;
    cluster.kill(&node).await;
    eventually("its lease has run out", async || (nodes(&api).await.len() == 1).then_some(())).await;
    // The one replica knows the session, the other one never heard of it.
    for api in [&api, &other] {
        let refused = tool(api, &run, "sandbox_exec", json!({ "session_id": id, "command": "true" })).await;
        assert_eq!(refused["error"]["code"], "session_lost", "{refused}");
        assert_eq!(refused["error"]["details"]["workspace"], "build", "{refused}");
        let refused = tool(api, &run, "sandbox_exec", json!({ "session_id": own, "command": "true" })).await;
        assert_eq!(refused["error"]["code"], "session_lost", "{refused}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains(&apart) && refused["error"]["details"]["workspace"] == apart, "{refused}");
    }
    // It is no other tree's to know of.
    let stranger = api.open("mock", "b").await;
    let unknown = tool(&other, &stranger, "sandbox_exec", json!({ "session_id": own, "command": "true" })).await;
    assert_eq!(unknown["error"]["code"], "not_found", "{unknown}");
    let again = tool(&other, &run, "sandbox_open", json!({ "workspace": "build" })).await;
    assert!(again["node"].is_string() && again["node"] != node.as_str(), "{again}");
    let read = tool(&api, &run, "sandbox_read", json!({ "session_id": again["session_id"], "path": "kept" })).await;
    assert_eq!(read["content"], "durable", "{read}");
    // What the dead node left behind is its own to clear away.
    cluster.restart(&node).await;
    api.close(&run).await;
    eventually("no session is left", async || {
        let page = api.get("/v1/_sandboxes").await.ok();
        page["sandboxes"].as_array().expect("a list").is_empty().then_some(())
    })
    .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_workspace_stays_where_it_is_and_none_passes_for_it() {
    let Some(cluster) = options().variable("SANDBOX_AUTH_TOKEN", NODE_TOKEN).start().await else { return };
    let (api, names) = (cluster.api(0), ["a", "b", "c", "d", "e", "f"]);
    let mut first = join(&cluster, "first").await;
    let run = api.open("mock", "a").await;
    let open = async |api: &Api, run: &str, name: &str| {
        tool(api, run, "sandbox_open", json!({ "workspace": name, "own": true })).await
    };
    for name in names {
        assert_eq!(open(&api, &run, name).await["node"], "first", "there is no other");
    }
    let _second = join(&cluster, "second").await;
    for name in names {
        assert_eq!(open(&cluster.api(1), &run, name).await["node"], "first", "a node that joins moves nothing");
    }
    // A registry that has lost everything is told of all homes before anybody relies on it.
    cluster.kill("redis").await;
    cluster.restart("redis").await;
    let fresh = cluster.join("replica-late", &[("SANDBOX_AUTH_TOKEN", NODE_TOKEN)]).await;
    for name in names {
        let opened = eventually("nodes are known again", async || {
            let opened = open(&fresh, &run, name).await;
            (opened["error"]["code"] != "unavailable").then_some(opened)
        })
        .await;
        assert_eq!(opened["node"], "first", "{opened}");
    }
    first.signal(Signal::KILL);
    first.exit().await;
    eventually("its lease has run out", async || (nodes(&api).await.len() == 1).then_some(())).await;
    let refused = open(&api, &run, "a").await;
    assert_eq!(refused["error"]["code"], "unavailable", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("first"), "it says where it is: {refused}");
    assert_eq!(open(&api, &run, "new").await["node"], "second");
    first.launch();
    first.ready().await;
    eventually("it is back, and the workspace with it", async || {
        (open(&api, &run, "a").await["node"] == "first").then_some(())
    })
    .await;
    cluster.stop().await;
}

/// Nodes that share a storage all see its workspaces; each is the one's that has opened it.
#[tokio::test]
async fn a_workspace_on_a_shared_storage_is_listed_once_and_removed_where_it_is() {
    let Some(cluster) = options().nodes(2).start().await else { return };
    let (api, other) = (cluster.api(0), cluster.api(1));
    let run = api.open("mock", "a").await;
    for name in ["one", "two", "three", "four"] {
        let opened = tool(&api, &run, "sandbox_open", json!({ "workspace": name, "own": true })).await;
        tool(&api, &run, "sandbox_write", json!({ "session_id": opened["session_id"], "path": "f", "content": "x" }))
            .await;
        let listed = other.get("/v1/workspaces").await.ok();
        let rows = listed["workspaces"].as_array().expect("a list");
        let of_it: Vec<&Value> = rows.iter().filter(|row| row["name"] == name).collect();
        assert_eq!((of_it.len(), &of_it[0]["node"]), (1, &opened["node"]), "{listed}");
        assert_eq!(of_it[0]["sessions"][0]["session_id"], opened["session_id"], "{listed}");
        let remove = format!("/v1/workspaces/{name}");
        other.finish(other.request("DELETE", &remove)).await.refused(409, "conflict");
        assert_eq!(export(&other, name).await.status, 200);
        tool(&api, &run, "sandbox_close", json!({ "session_id": opened["session_id"] })).await;
        other.finish(other.request("DELETE", &remove)).await.ok();
        other.finish(other.request("DELETE", &remove)).await.refused(404, "not_found");
    }
    cluster.stop().await;
}

async fn export(api: &Api, name: &str) -> hearth_tests::Reply {
    api.finish(api.request("GET", &format!("/v1/workspaces/{name}/export"))).await
}

/// Workspaces of a node, by way of replicas.
#[tokio::test]
async fn workspaces_of_a_node_are_listed_exported_imported_and_removed_by_any_replica() {
    let options = options().variable("SANDBOX_AUTH_TOKEN", NODE_TOKEN);
    let Some(cluster) = options.start().await else { return };
    let (api, other) = (cluster.api(0), cluster.api(1));
    api.get("/v1/workspaces/build").await.refused(404, "not_found");
    let _node = join(&cluster, "only").await;
    let run = api.open("mock", "a").await;
    let opened = tool(&api, &run, "sandbox_open", json!({ "workspace": "build" })).await;
    let line = "echo kept > file; mkdir -p a/b; head -c 3000000 /dev/urandom > a/b/c; sha256sum < a/b/c";
    let sum = tool(&api, &run, "sandbox_exec", json!({ "session_id": opened["session_id"], "command": line })).await;
    let row = other.get("/v1/workspaces/build").await.ok();
    assert_eq!((&row["node"], &row["sessions"][0]["root_run_id"]), (&json!("only"), &json!(run)), "{row}");
    let path = "/v1/workspaces/build";
    let held = other.finish(other.request("DELETE", path)).await.refused(409, "conflict");
    assert_eq!(held["details"]["session_id"], opened["session_id"], "{held}");
    api.close(&run).await;

    let response = other.request("GET", "/v1/workspaces/build/export").send().await.unwrap();
    assert_eq!(response.status(), 200);
    let tar = response.bytes().await.unwrap().to_vec();
    assert!(tar.len() > 3_000_000);
    let import = async |api: &Api, name: &str, tar: Vec<u8>| {
        api.finish(api.request("PUT", &format!("/v1/workspaces/{name}/import")).body(tar)).await
    };
    import(&other, "torn", tar[..2_000_000].to_vec()).await.refused(400, "invalid_argument");
    other.get("/v1/workspaces/torn").await.refused(404, "not_found");
    let imported = import(&api, "copy", tar).await.ok();
    assert_eq!((&imported["name"], &imported["node"]), (&json!("copy"), &json!("only")), "{imported}");

    let reader = other.open("mock", "b").await;
    let again = tool(&other, &reader, "sandbox_open", json!({ "workspace": "copy" })).await;
    let line = "cat file; sha256sum < a/b/c";
    let read =
        tool(&other, &reader, "sandbox_exec", json!({ "session_id": again["session_id"], "command": line })).await;
    assert_eq!(read["output"].as_str(), Some(format!("kept\n{}", sum["output"].as_str().unwrap()).as_str()), "{read}");
    other.close(&reader).await;

    let page = api.get("/v1/workspaces").await.ok();
    assert_eq!(page["workspaces"].as_array().map(Vec::len), Some(2), "{page}");
    for name in ["build", "copy"] {
        let path = format!("/v1/workspaces/{name}");
        eventually("its sessions are gone and it is removed", async || {
            (api.finish(api.request("DELETE", &path)).await.status == 200).then_some(())
        })
        .await;
        api.finish(api.request("DELETE", &path)).await.refused(404, "not_found");
        export(&other, name).await.refused(404, "not_found");
    }
    cluster.stop().await;
}

/// A name that was removed is free again, wherever it was.
#[tokio::test]
async fn a_workspace_that_was_removed_may_come_to_be_on_another_node() {
    let Some(cluster) = options().variable("SANDBOX_AUTH_TOKEN", NODE_TOKEN).start().await else { return };
    let api = cluster.api(0);
    let mut first = join(&cluster, "first").await;
    let run = api.open("mock", "a").await;
    let open = async || tool(&api, &run, "sandbox_open", json!({ "workspace": "build", "own": true })).await;
    let opened = open().await;
    assert_eq!(opened["node"], "first");
    let _second = join(&cluster, "second").await;
    tool(&api, &run, "sandbox_close", json!({ "session_id": opened["session_id"] })).await;
    api.finish(api.request("DELETE", "/v1/workspaces/build")).await.ok();
    first.signal(Signal::KILL);
    first.exit().await;
    eventually("its lease has run out", async || (nodes(&api).await.len() == 1).then_some(())).await;
    assert_eq!(open().await["node"], "second");
    cluster.stop().await;
}

/// A node that cannot reach the cluster has ended its durable sessions before another takes their workspaces.
#[tokio::test]
async fn a_node_that_is_cut_off_ends_its_durable_sessions_before_its_lease_ends() {
    let lost = Lost { durable: "sleep 88.31", other: "sleep 88.32" };
    lost.when(async |_, way| way.hold(), async |_, way| way.open()).await;
}

/// One that stands still cannot end them: they end by themselves.
#[tokio::test]
async fn a_node_that_stands_still_has_lost_its_durable_sessions_by_then() {
    let lost = Lost { durable: "sleep 88.33", other: "sleep 88.34" };
    let stop = async |node: &mut Node, _: &Proxy| node.signal(Signal::STOP);
    lost.when(stop, async |node, _| node.signal(Signal::CONT)).await;
}

#[tokio::test]
async fn a_node_that_was_killed_has_lost_its_durable_sessions_by_then() {
    let lost = Lost { durable: "sleep 88.35", other: "sleep 88.36" };
    let kill = async |node: &mut Node, _: &Proxy| {
        node.signal(Signal::KILL);
        node.exit().await;
    };
    let start = async |node: &mut Node, _: &Proxy| {
        node.launch();
        node.ready().await;
    };
    lost.when(kill, start).await;
}

/// Commands that run nowhere else, one in a session with a workspace on a storage of two nodes, one in another.
struct Lost {
    durable: &'static str,
    other: &'static str,
}

impl Lost {
    async fn when(self, lose: impl AsyncFn(&mut Node, &Proxy), find: impl AsyncFn(&mut Node, &Proxy)) {
        let lease = ("HEARTH_REPLICA_LEASE_MS", "6000");
        let options = options().variable(lease.0, lease.1).variable("SANDBOX_AUTH_TOKEN", NODE_TOKEN);
        let Some(cluster) = options.start().await else { return };
        let (api, way) = (cluster.api(0), Proxy::to(cluster.redis_url()).await);
        let redis = format!("redis://{}", way.address());
        let shared = tempfile::tempdir().unwrap();
        let root = shared.path().display().to_string();
        let settings = |redis| {
            [
                ("SANDBOX_WORKSPACE_ROOT", root.as_str()),
                ("HEARTH_REDIS_URL", redis),
                ("SANDBOX_AUTH_TOKEN", NODE_TOKEN),
                ("HEARTH_NATS_URL", cluster.nats_url()),
                lease,
            ]
        };
        let mut first = join_with(&cluster, "first", &settings(&redis)).await;
        let run = api.open("mock", "a").await;
        let open = async || tool(&api, &run, "sandbox_open", json!({ "workspace": "build", "own": true })).await;
        let opened = open().await;
        assert_eq!(opened["node"], "first", "{opened}");
        let kept = tool(&api, &run, "sandbox_open", json!({ "own": true })).await;
        for (session, command) in [(&opened, self.durable), (&kept, self.other)] {
            let args = json!({ "session_id": session["session_id"], "command": command, "background": true, "timeout_seconds": 600 });
            tool(&api, &run, "sandbox_exec", args).await;
        }
        let _second = join_with(&cluster, "second", &settings(cluster.redis_url())).await;
        // The first learns of it with its next beat.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(runs_somewhere(self.durable));
        lose(&mut first, &way).await;
        let taken = eventually("the workspace opens on the other node", async || {
            let opened = open().await;
            (opened["node"] == "second").then_some(opened)
        })
        .await;
        assert!(
            !runs_somewhere(self.durable),
            "what had the workspace before is dead by then: {taken}\n{}",
            first.log()
        );
        assert!(runs_somewhere(self.other), "a session without a workspace goes on");
        find(&mut first, &way).await;
        eventually("it is back", async || (nodes(&api).await.len() == 2).then_some(())).await;
        assert_eq!(open().await["node"], "second", "the workspace has moved");
        cluster.stop().await;
    }
}

/// Whether a process of this machine runs `sleep` for just so long.
fn runs_somewhere(command: &str) -> bool {
    let word = command.trim_start_matches("sleep ");
    let processes = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
}

/// T13, in containers.
#[tokio::test]
async fn t13_fifty_opens_at_once_through_three_replicas_get_what_they_ask_for() {
    let options =
        ClusterOptions::default().nodes(1).variable("SANDBOX_DRIVER", "docker").variable("SANDBOX_POOL_SIZE", 10);
    if !docker_is_there() {
        println!("skipped: there is no Docker daemon with the session image");
        return;
    }
    let Some(cluster) = options.variable("SANDBOX_MAX_SESSIONS", 64).start().await else { return };
    let apis = cluster.apis();
    // By one tree, from everywhere: its shared session. An `own` each: fifty.
    let run = apis[0].open("mock", "a").await;
    let session = tool(&apis[0], &run, "sandbox_open", json!({})).await["session_id"].clone();
    let trees = futures::future::join_all((0..25).map(|n| apis[n % 3].open("mock", "a"))).await;
    let opens = trees.iter().enumerate().flat_map(|(n, tree)| {
        let (api, tree) = (&apis[(n + 1) % 3], tree.as_str());
        [json!({}), json!({ "own": true })].map(|args| async move { tool(api, tree, "sandbox_open", args).await })
    });
    let opened = futures::future::join_all(opens).await;
    let mut ids: Vec<&str> =
        opened.iter().map(|opened| opened["session_id"].as_str().unwrap_or_else(|| panic!("{opened}"))).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 50, "fifty different containers");
    let containers = containers();
    assert!(ids.iter().all(|id| containers.contains(&format!("hearth-{id}"))), "{containers:?}");
    let shared = trees.iter().enumerate().map(|(n, tree)| {
        let api = &apis[n % 3];
        async move { tool(api, tree, "sandbox_open", json!({})).await }
    });
    for (first, again) in opened.iter().step_by(2).zip(futures::future::join_all(shared).await) {
        assert_eq!((&first["session_id"], &again["warm"]), (&again["session_id"], &json!(true)), "a tree shares one");
    }
    assert_eq!(tool(&apis[2], &run, "sandbox_open", json!({})).await["session_id"], session);
    cluster.stop().await;
    // It took its sessions down, too.
    let after = self::containers();
    assert!(!ids.iter().any(|id| after.contains(&format!("hearth-{id}"))), "{after:?}");
}

pub(super) fn docker(args: &[&str]) -> Option<String> {
    let output = std::process::Command::new("docker").args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(super) fn docker_is_there() -> bool {
    docker(&["image", "inspect", "hearth-session:latest"]).is_some()
}

fn containers() -> Vec<String> {
    let names = docker(&["ps", "-a", "--format", "{{.Names}}"]).expect("the daemon answers");
    names.lines().map(str::to_owned).collect()
}
