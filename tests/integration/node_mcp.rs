//! The tools of a node over MCP, for any client.

use hearth_tests::{Mcp, NODE_TOKEN, Node, eventually};
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const TOOLS: [&str; 10] = [
    "sandbox_open",
    "sandbox_exec",
    "sandbox_poll",
    "sandbox_kill",
    "sandbox_write",
    "sandbox_read",
    "sandbox_touch",
    "sandbox_close",
    "sandbox_close_run",
    "sandbox_list",
];

/// Every tool that names a session, aimed at one.
fn aimed(session: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("sandbox_exec", json!({ "session_id": session, "command": "true" })),
        ("sandbox_poll", json!({ "session_id": session, "exec_id": "e1" })),
        ("sandbox_kill", json!({ "session_id": session, "exec_id": "e1" })),
        ("sandbox_write", json!({ "session_id": session, "path": "f", "content": "x" })),
        ("sandbox_read", json!({ "session_id": session, "path": "f" })),
        ("sandbox_touch", json!({ "session_id": session })),
        ("sandbox_close", json!({ "session_id": session })),
    ]
}

#[tokio::test]
async fn a_node_with_nothing_but_a_token_serves_all_ten_tools() {
    let node = Node::start(&[]).await;
    let mcp = node.mcp().connected().await;
    let listed = mcp.ask("tools/list", json!({})).await;
    let listed = listed["result"]["tools"].as_array().expect("tools").clone();
    assert_eq!(listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect::<Vec<_>>(), TOOLS);
    for tool in &listed {
        assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
    }

    let opened = mcp.call("sandbox_open", json!({ "workspace": "build" })).await.ok();
    for field in ["session_id", "workspace_path", "network", "isolation", "runtime", "limits", "expires_at", "node"] {
        assert!(!opened[field].is_null(), "no `{field}` in {opened}");
    }
    assert_eq!((&opened["persistent"], &opened["warm"]), (&json!(true), &json!(false)));
    let id = opened["session_id"].as_str().unwrap();
    let ran =
        mcp.call("sandbox_exec", json!({ "session_id": id, "command": "echo hi; exit 3", "exec_id": "e1" })).await.ok();
    assert_eq!((&ran["output"], &ran["exit_code"], &ran["timed_out"]), (&json!("hi\n"), &json!(3), &json!(false)));
    let again = mcp.call("sandbox_poll", json!({ "session_id": id, "exec_id": "e1" })).await.ok();
    assert_eq!(again["exit_code"], 3);
    let late = json!({ "session_id": id, "command": "sleep 500", "exec_id": "e2", "background": true });
    assert!(mcp.call("sandbox_exec", late).await.ok()["exit_code"].is_null());
    let killed = mcp.call("sandbox_kill", json!({ "session_id": id, "exec_id": "e2" })).await.ok();
    assert!(killed["exit_code"].as_i64().is_some_and(|code| code > 128), "{killed}");
    let text = json!({ "session_id": id, "path": "a/b", "content": "aGk=", "encoding": "base64" });
    assert_eq!(mcp.call("sandbox_write", text).await.ok()["bytes_written"], 2);
    let read = mcp.call("sandbox_read", json!({ "session_id": id, "path": "a/b" })).await.ok();
    assert_eq!((&read["content"], &read["size"], &read["truncated"]), (&json!("hi"), &json!(2), &json!(false)));
    assert!(mcp.call("sandbox_touch", json!({ "session_id": id })).await.ok()["idle_expires_at"].is_string());
    assert_eq!(mcp.sessions().await, [id]);
    mcp.call("sandbox_close", json!({ "session_id": id })).await.ok();
    mcp.call("sandbox_close", json!({ "session_id": id })).await.ok();
    assert_eq!(mcp.call("sandbox_close_run", json!({ "root_run_id": "run_x" })).await.ok()["closed"], 0);
    assert!(mcp.sessions().await.is_empty());
}

#[tokio::test]
async fn bad_arguments_are_refused_by_name_and_unknown_tools_by_the_protocol() {
    let node = Node::start(&[]).await;
    let mcp = node.mcp().connected().await;
    let id = mcp.open(json!({})).await;
    for (tool, arguments, field) in [
        ("sandbox_open", json!({ "memory": 5 }), "memory"),
        ("sandbox_open", json!({ "workspace": "../up" }), "workspace"),
        ("sandbox_exec", json!({ "session_id": id }), "command"),
        ("sandbox_exec", json!({ "session_id": id, "command": "true", "timeout_seconds": 3601 }), "timeout_seconds"),
        ("sandbox_exec", json!({ "session_id": id, "command": "true", "shell": "zsh" }), "shell"),
        ("sandbox_read", json!({ "session_id": id, "path": 7 }), "path"),
        ("sandbox_close_run", json!({ "root_run_id": "" }), "root_run_id"),
        ("sandbox_list", json!({ "tenant": "acme" }), "tenant"),
    ] {
        let body = mcp.call(tool, arguments).await.refusal();
        assert_eq!(body["error"]["code"], "invalid_argument", "{tool}: {body}");
        assert!(body["error"]["message"].as_str().unwrap().contains(field), "{body} lacks {field}");
        assert!(body["error"]["retryable"].is_boolean(), "{body}");
    }
    let unknown = mcp.ask("tools/call", json!({ "name": "sandbox_fly", "arguments": {} })).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    let garbage = mcp.request(reqwest::Method::POST).header("content-type", "application/json").body("{").send();
    assert_eq!(garbage.await.unwrap().status(), 400);
    let large = "x".repeat(17 * 1024 * 1024);
    let large =
        mcp.post(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": { "x": large } })).send().await;
    assert!(large.is_err() || large.is_ok_and(|answer| answer.status() == 413));
    assert_eq!(mcp.exec(&id, "echo alive").await["output"], "alive\n");
}

#[tokio::test]
async fn t16_tenants_of_one_shared_token_see_and_close_their_own_only() {
    let node = Node::start(&[]).await;
    let ann = node.mcp().header("x-loom-tenant", "acme").header("x-loom-root-run", "run_a").connected().await;
    let bob = node.mcp().header("x-loom-tenant", "other").connected().await;
    let token = node.mcp().connected().await;
    let id = ann.open(json!({})).await;
    ann.call("sandbox_write", json!({ "session_id": id, "path": "f", "content": "mine" })).await.ok();
    for stranger in [&bob, &token] {
        for (tool, arguments) in aimed(&id) {
            let refusal = stranger.call(tool, arguments).await.refusal();
            let unknown =
                stranger.call(tool, aimed("sbx_unknown").into_iter().find(|(t, _)| *t == tool).unwrap().1).await;
            assert_eq!(refusal["error"]["code"], "not_found", "{tool}: {refusal}");
            assert_eq!(refusal, unknown.refusal(), "{tool} answers as for an unknown id");
        }
        assert!(stranger.sessions().await.is_empty());
        assert_eq!(stranger.call("sandbox_close_run", json!({ "root_run_id": "run_a" })).await.ok()["closed"], 0);
    }
    let other_run = node.mcp().header("x-loom-tenant", "acme").header("x-loom-root-run", "run_b").connected().await;
    assert_eq!(other_run.call("sandbox_close_run", json!({ "root_run_id": "run_a" })).await.code(), "not_found");
    assert!(other_run.sessions().await.is_empty(), "inside a run one's own tree only");
    let read = ann.call("sandbox_read", json!({ "session_id": id, "path": "f" })).await.ok();
    assert_eq!(read["content"], "mine", "nothing was closed or changed");
    assert_eq!(ann.call("sandbox_close_run", json!({ "root_run_id": "run_a" })).await.ok()["closed"], 1);
    assert_eq!(ann.call("sandbox_close_run", json!({ "root_run_id": "run_a" })).await.ok()["closed"], 0);
}

#[tokio::test]
async fn t37_a_client_is_bound_to_its_tenant_and_an_empty_tenant_is_refused() {
    let entry = |token: &str, tenant: &str| {
        let digest = hex::encode(Sha256::digest(token));
        format!("[[token]]\nsha256 = \"{digest}\"\ntenant = \"{tenant}\"\n")
    };
    let mut node = Node::new(&[("SANDBOX_AUTH_TOKEN", NODE_TOKEN), ("SANDBOX_TOKENS_FILE", "tokens.toml")]);
    std::fs::write(node.path("tokens.toml"), entry("ann", "acme") + &entry("bob", "other")).unwrap();
    node.launch();
    node.ready().await;
    let client = |token: &str| Mcp::new(&node.base(), Some(token));
    let ann = client("ann").connected().await;
    let id = ann.open(json!({})).await;
    // The same tenant by another way is the same principal.
    assert_eq!(node.mcp().header("x-loom-tenant", "acme").connected().await.sessions().await, [id.as_str()]);
    let bob = client("bob").connected().await;
    for (tool, arguments) in aimed(&id) {
        assert_eq!(bob.call(tool, arguments).await.code(), "not_found", "{tool}");
    }
    let posing = client("bob").header("x-loom-tenant", "acme");
    assert_eq!(posing.initialize().await.status(), 403);
    let mut borrowed = client("bob");
    borrowed.session.clone_from(&ann.session);
    assert_eq!(borrowed.send("tools/list", json!({})).await.status(), 404, "another's MCP session");
    for method in [reqwest::Method::GET, reqwest::Method::DELETE] {
        assert_eq!(borrowed.request(method).send().await.unwrap().status(), 404);
    }
    assert_eq!(node.mcp().header("x-loom-tenant", "").initialize().await.status(), 400);
    for stranger in [Mcp::new(&node.base(), None), client("eve")] {
        let answer = stranger.initialize().await;
        assert_eq!(answer.status(), 401);
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["error"]["code"], "unauthenticated");
    }
    assert_eq!(ann.exec(&id, "echo alive").await["output"], "alive\n");
    let http = reqwest::Client::new();
    let metrics = |token: &'static str| http.get(format!("{}/metrics", node.base())).bearer_auth(token).send();
    assert_eq!(metrics("ann").await.unwrap().status(), 403);
    assert_eq!(metrics("eve").await.unwrap().status(), 401);
    let page = metrics(NODE_TOKEN).await.unwrap().text().await.unwrap();
    assert!(page.contains("hearth_sandbox_sessions 1") && page.contains("hearth_mcp_calls_total"), "{page}");
    for probe in ["/livez", "/readyz"] {
        assert_eq!(http.get(format!("{}{probe}", node.base())).send().await.unwrap().status(), 200);
    }
}

#[tokio::test]
async fn a_run_tree_shares_one_session_and_own_gives_another() {
    let node = Node::start(&[]).await;
    let client = || node.mcp().header("x-loom-tenant", "acme").header("x-loom-root-run", "run_a");
    let (parent, child) = (client().connected().await, client().connected().await);
    let id = parent.open(json!({})).await;
    let again = child.call("sandbox_open", json!({})).await.ok();
    assert_eq!((again["session_id"].as_str(), &again["warm"]), (Some(id.as_str()), &json!(true)));
    let own = child.open(json!({ "own": true })).await;
    assert_ne!(own, id);
    assert_eq!(parent.call("sandbox_close_run", json!({ "root_run_id": "run_a" })).await.ok()["closed"], 2);
}

#[tokio::test]
async fn t2_a_client_that_goes_away_during_open_or_close_leaves_neither_half_done() {
    let node = Node::start(&[]).await;
    let client = || node.mcp().header("x-loom-root-run", "run_a");
    let mcp = client().connected().await;
    for _ in 0..5 {
        drop_early(&mcp, "sandbox_open", json!({})).await;
        let id = eventually("the open goes on", async || mcp.sessions().await.pop()).await;
        // The open again is the same session: nothing was left half-open beside it.
        assert_eq!(mcp.open(json!({})).await, id);
        mcp.exec(&id, "(trap '' TERM; setsid sleep 997755.17 >/dev/null 2>&1 &); echo up").await;
        drop_early(&mcp, "sandbox_close", json!({ "session_id": id })).await;
        eventually("the close goes on", async || mcp.sessions().await.is_empty().then_some(())).await;
    }
    // A session that is being closed is in no list any more.
    eventually("no process outlives its session", async || (!runs_somewhere("997755.17")).then_some(())).await;
}

/// An open without a run is found by no other open.
#[tokio::test]
async fn t2_an_open_whose_answer_cannot_be_delivered_is_closed_again() {
    // A session that is there at once would be told before the client has gone.
    if docker(&["image", "inspect", "hearth-session:latest"]).is_none() {
        println!("skipped: there is no Docker daemon with the session image");
        return;
    }
    let node = Node::start(&[("SANDBOX_DRIVER", "docker"), ("SANDBOX_POOL_SIZE", "0")]).await;
    let mcp = node.mcp().connected().await;
    let kept = mcp.open(json!({})).await;
    let tree = node.mcp().header("x-loom-root-run", "run_a").connected().await;
    for _ in 0..3 {
        drop_early(&mcp, "sandbox_open", json!({})).await;
        drop_early(&tree, "sandbox_open", json!({ "own": true })).await;
    }
    drop_early(&tree, "sandbox_open", json!({})).await;
    eventually("the opens go on", async || (records(&node) == 8).then_some(())).await;
    eventually("only what can be found again is left", async || (records(&node) == 2).then_some(())).await;
    assert_eq!(mcp.exec(&kept, "echo alive").await["output"], "alive\n");
    let again = tree.call("sandbox_open", json!({})).await.ok();
    assert_eq!((tree.sessions().await, &again["warm"]), (vec![text(&again["session_id"])], &json!(true)));
    for (mcp, id) in [(&mcp, kept), (&tree, text(&again["session_id"]))] {
        mcp.call("sandbox_close", json!({ "session_id": id })).await.ok();
    }
}

/// The protocol lets a client go on with a stream that it lost; what it opened is still there then.
#[tokio::test]
async fn an_open_whose_client_comes_back_for_the_answer_stays() {
    let node = Node::start(&[]).await;
    let mcp = node.mcp().connected().await;
    let params = json!({ "name": "sandbox_open", "arguments": {} });
    let message = json!({ "jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params });
    let mut lost = mcp.post(&message).send().await.expect("the node answers");
    let mut begun = String::new();
    while !begun.contains("\n\n") {
        begun.push_str(std::str::from_utf8(&lost.chunk().await.unwrap().expect("the stream goes on")).unwrap());
    }
    let event = begun.lines().find_map(|line| line.strip_prefix("id:")).expect("an event's id").trim().to_owned();
    drop(lost);
    eventually("the open goes on", async || (records(&node) == 1).then_some(())).await;
    let resumed = mcp.request(reqwest::Method::GET).header("last-event-id", event).send().await.unwrap();
    assert_eq!(resumed.status(), 200);
    // Past the time in which it would have been given up.
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    let ids = mcp.sessions().await;
    assert_eq!(ids.len(), 1);
    assert_eq!(mcp.exec(&ids[0], "echo alive").await["output"], "alive\n");
}

/// The sessions that a node has written down.
fn records(node: &Node) -> usize {
    let entries = std::fs::read_dir(node.path("state/sessions")).expect("a state folder").filter_map(Result::ok);
    entries.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "json")).count()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

/// Whether a process of this machine has the word on its command line.
fn runs_somewhere(word: &str) -> bool {
    let processes = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines.into_iter().any(|line| line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes()))
}

/// Sends a call and drops the connection as soon as it was sent.
async fn drop_early(mcp: &Mcp, tool: &str, arguments: Value) {
    let params = json!({ "name": tool, "arguments": arguments });
    let message = json!({ "jsonrpc": "2.0", "id": 4_711, "method": "tools/call", "params": params });
    // The head of the answer comes at once; its body, with the result, is never read.
    drop(mcp.post(&message).send().await.expect("the node answers"));
}

#[tokio::test]
async fn sessions_that_a_node_left_can_be_ended_without_it() {
    let mut node = Node::start(&[]).await;
    let mcp = node.mcp().connected().await;
    let id = mcp.open(json!({})).await;
    let args = json!({ "session_id": id, "command": "sleep 997755.18", "background": true });
    mcp.call("sandbox_exec", args).await.ok();
    eventually("the command runs", async || runs_somewhere("997755.18").then_some(())).await;
    node.signal(rustix::process::Signal::KILL);
    node.exit().await;
    assert!(runs_somewhere("997755.18"), "sessions outlive their node");
    node = node.arg("--close-sessions");
    node.launch();
    assert!(node.exit().await.success(), "{}", node.log());
    assert!(!runs_somewhere("997755.18"));
    assert_eq!(std::fs::read_dir(node.path("state/sessions")).unwrap().count(), 0);
}

#[tokio::test]
async fn t1_sessions_and_commands_outlive_a_node_that_is_killed() {
    let mut node = Node::start(&[]).await;
    let before = node.mcp().header("x-loom-root-run", "run_a").connected().await;
    let id = before.open(json!({})).await;
    let late = json!({ "session_id": id, "command": "sleep 2; echo done", "exec_id": "e1", "background": true });
    before.call("sandbox_exec", late).await.ok();
    node.crash().await;
    assert_eq!(before.send("tools/list", json!({})).await.status(), 404, "its MCP session went with the process");
    let after = node.mcp().header("x-loom-root-run", "run_a").connected().await;
    assert_eq!(after.sessions().await, [id.as_str()]);
    let ended =
        after.call("sandbox_poll", json!({ "session_id": id, "exec_id": "e1", "timeout_ms": 20_000 })).await.ok();
    assert_eq!((&ended["output"], &ended["exit_code"]), (&json!("done\n"), &json!(0)));
    after.call("sandbox_close", json!({ "session_id": id })).await.ok();
    node.signal(Signal::TERM);
    assert_eq!(node.exit().await.code(), Some(0));
}

#[tokio::test]
async fn mcp_sessions_end_when_idle_or_deleted_and_their_number_is_bounded() {
    let node = Node::start(&[("SANDBOX_MCP_SESSION_IDLE_MS", "1500"), ("SANDBOX_MCP_MAX_SESSIONS", "3")]).await;
    let mcp = node.mcp().connected().await;
    let sandbox = mcp.open(json!({})).await;
    // A command that takes longer than the idle time holds its session.
    assert_eq!(mcp.exec(&sandbox, "sleep 3; echo done").await["output"], "done\n");
    let gone = async || (mcp.send("ping", json!({})).await.status() == 404).then_some(());
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    eventually("it is idle and ends", async || {
        tokio::time::sleep(std::time::Duration::from_millis(2_000)).await;
        gone().await
    })
    .await;
    let deleted = node.mcp().connected().await;
    assert_eq!(deleted.sessions().await, [sandbox], "a sandbox session does not end with an MCP session");
    assert!(deleted.request(reqwest::Method::DELETE).send().await.unwrap().status().is_success());
    assert_eq!(deleted.send("tools/list", json!({})).await.status(), 404);

    // Held by a stream each, so that none gives way.
    let mut held = Vec::new();
    for _ in 0..3 {
        let mcp = node.mcp().connected().await;
        let stream = mcp.request(reqwest::Method::GET).send().await.unwrap();
        assert_eq!(stream.status(), 200);
        held.push((mcp, stream));
    }
    let refused = node.mcp().initialize().await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    held.pop();
    eventually("a place is free again", async || (node.mcp().initialize().await.status() == 200).then_some(())).await;
}

#[tokio::test]
async fn secrets_reach_commands_and_nothing_else() {
    let secret = "s3cret-value-5417";
    let node = Node::start(&[("SANDBOX_ALLOW_ENV_INJECTION", "1"), ("HEARTH_LOG_FILTER", "trace")]).await;
    let mcp = node.mcp().header("x-loom-sandbox-env-gh-token", secret).connected().await;
    let id = mcp.open(json!({})).await;
    let seen = mcp.exec(&id, "printf %s \"$GH_TOKEN\" | sha256sum | cut -c1-64").await;
    assert_eq!(seen["output"].as_str().unwrap().trim(), hex::encode(Sha256::digest(secret)));
    let without = node.mcp().connected().await;
    assert_eq!(without.exec(&id, "echo [$GH_TOKEN]").await["output"], "[]\n", "it is the call's, not the session's");
    for name in ["path", "ld-preload", "bash-env"] {
        let mcp = node.mcp().header(&format!("x-loom-sandbox-env-{name}"), secret).connected().await;
        let body = mcp.call("sandbox_exec", json!({ "session_id": id, "command": "true" })).await.refusal();
        assert_eq!(body["error"]["code"], "tool_refused", "{body}");
        assert!(!body.to_string().contains(secret));
    }
    let clash = json!({ "session_id": id, "command": "true", "env": { "GH_TOKEN": "x" } });
    assert!(!mcp.call("sandbox_exec", clash).await.refusal().to_string().contains(secret));
    assert!(!node.log().contains(secret), "a secret is in the log");
    for entry in walk(&node.path("state")) {
        let text = std::fs::read(&entry).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&text).contains(secret), "a secret is in {}", entry.display());
    }

    let strict = Node::start(&[]).await;
    let mcp = strict.mcp().header("x-loom-sandbox-env-gh-token", secret).connected().await;
    assert_eq!(mcp.call("sandbox_open", json!({})).await.code(), "tool_refused", "it is not dropped without a word");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries
        .flat_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path()),
            Ok(kind) if kind.is_file() => vec![entry.path()],
            _ => Vec::new(),
        })
        .collect()
}

#[tokio::test]
async fn a_node_without_a_token_starts_only_when_told_to_and_only_on_loopback() {
    for (variables, argument, told) in [
        (&[][..], None, "SANDBOX_AUTH_TOKEN"),
        (&[("SANDBOX_LISTEN_ADDR", "0.0.0.0:0")], Some("--no-auth"), "loopback"),
        (&[("SANDBOX_AUTH_TOKEN", "t")], Some("--no-auth"), "--no-auth"),
        (&[("SANDBOX_AUTH_TOKEN", "t"), ("SANDBOX_TOKENS_FILE", "absent.toml")], None, "absent.toml"),
    ] {
        let mut node = Node::new(variables);
        if let Some(argument) = argument {
            node = node.arg(argument);
        }
        node.launch();
        assert_eq!(node.exit().await.code(), Some(2), "{told}");
        assert!(node.log().contains(told), "{} lacks {told}", node.log());
    }
    let mut node = Node::new(&[]).arg("--no-auth");
    node.launch();
    node.ready().await;
    let open = Mcp::new(&node.base(), None).connected().await;
    assert!(open.sessions().await.is_empty());
    assert_eq!(Mcp::new(&node.base(), None).header("origin", "http://evil.example").initialize().await.status(), 403);
    assert_eq!(Mcp::new(&node.base(), None).header("host", "rebound.example").initialize().await.status(), 403);
}

#[tokio::test]
async fn a_node_starts_from_a_file_of_settings() {
    let mut node = Node::new(&[]).arg("--config").arg("hearth.toml");
    let text = format!("[sandbox]\nauth_token = \"{NODE_TOKEN}\"\nnode_id = \"from-file\"\n");
    std::fs::write(node.path("hearth.toml"), text).unwrap();
    node.launch();
    node.ready().await;
    let mcp = node.mcp().connected().await;
    assert_eq!(mcp.call("sandbox_open", json!({})).await.ok()["node"], "from-file");
}

/// What the engine's own command says; nothing where it fails.
fn docker(arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new("docker").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether this machine has an engine and the session image; it says so where not.
fn containers_are_there() -> bool {
    let there = docker(&["image", "inspect", "hearth-session:latest"]).is_some();
    if !there {
        let required = std::env::var_os("HEARTH_REQUIRE_SERVICES").is_some_and(|value| value == "1");
        assert!(!required, "a Docker daemon with the session image is required, and not there");
        println!("skipped: there is no Docker daemon with the image hearth-session:latest");
    }
    there
}

#[tokio::test]
async fn the_engine_tells_no_secret_and_a_container_that_is_removed_is_a_lost_session() {
    if !containers_are_there() {
        return;
    }
    let secret = "s3cret-value-9031";
    let node = Node::start(&[("SANDBOX_DRIVER", "docker"), ("SANDBOX_ALLOW_ENV_INJECTION", "1")]).await;
    let mcp = node.mcp().header("x-loom-root-run", "run_a").header("x-loom-sandbox-env-gh-token", secret);
    let mcp = mcp.connected().await;
    let id = mcp.open(json!({})).await;
    let late = json!({ "session_id": id, "command": "sleep 500", "exec_id": "e1", "background": true });
    mcp.call("sandbox_exec", late).await.ok();
    assert_eq!(mcp.exec(&id, "echo ${#GH_TOKEN}").await["output"], format!("{}\n", secret.len()));
    let name = format!("hearth-{id}");
    for told in [&["inspect", &name][..], &["top", &name], &["diff", &name]] {
        let told = docker(told).unwrap_or_else(|| panic!("docker {told:?}"));
        assert!(!told.contains(secret), "{told}");
    }
    let labels = docker(&["inspect", "--format", "{{json .Config.Labels}}", &name]).expect("labels");
    let labels: Value = serde_json::from_str(&labels).expect("JSON");
    assert_eq!((&labels["hearth.session"], &labels["hearth.root_run"]), (&json!(id), &json!("run_a")), "{labels}");
    docker(&["rm", "--force", &name]).expect("the container is removed");
    let lost = mcp.call("sandbox_exec", json!({ "session_id": id, "command": "true" })).await;
    assert_eq!(lost.code(), "session_lost");
    let next = mcp.open(json!({})).await;
    assert_ne!(next, id);
    assert_eq!(mcp.exec(&next, "echo again").await["output"], "again\n");
    assert_eq!(mcp.call("sandbox_close_run", json!({ "root_run_id": "run_a" })).await.ok()["closed"], 1);
    let left = docker(&["ps", "--all", "--quiet", "--filter", &format!("name=hearth-{next}")]).expect("a list");
    assert!(left.is_empty(), "a container is left: {left}");
}
