//! Sandbox nodes of a cluster: listed, drained, killed, and where workspaces are.

use hearth_tests::{Api, Cluster, ClusterOptions, NODE_TOKEN, Node, eventually, mock};
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

/// A node of its own beside those that the cluster began with, with storage of its own.
async fn join(cluster: &Cluster, id: &str) -> Node {
    let mut node = Node::new(&[
        ("SANDBOX_AUTH_TOKEN", NODE_TOKEN),
        ("SANDBOX_NODE_ID", id),
        ("HEARTH_REDIS_URL", cluster.redis_url()),
        ("HEARTH_NATS_URL", cluster.nats_url()),
    ]);
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
    assert!(nodes(&api).await.iter().any(|row| row["node_id"] == node.as_str() && row["draining"] == true));
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
    cluster.kill(&node).await;
    eventually("its lease has run out", async || (nodes(&api).await.len() == 1).then_some(())).await;
    // The one replica knows the session, the other one never heard of it.
    for api in [&api, &other] {
        let refused = tool(api, &run, "sandbox_exec", json!({ "session_id": id, "command": "true" })).await;
        assert_eq!(refused["error"]["code"], "session_lost", "{refused}");
    }
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
    first.signal(rustix::process::Signal::KILL);
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
