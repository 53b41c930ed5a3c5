//! Sandbox tools in a run, through the built-in agent that runs commands.

use hearth_tests::{Api, Options, Server, eventually, mock};
use serde_json::{Value, json};

/// Local sessions: these tests are about runs, and want no daemon.
async fn server() -> Server {
    Options::default().variable("SANDBOX_DRIVER", "local").start().await
}

fn commands(body: Value) -> String {
    body.to_string()
}

/// The output of a turn of `dev/exec`, decoded.
fn decoded(envelope: &Value) -> Value {
    let text = envelope["output"].as_str().unwrap_or_default();
    serde_json::from_str(text).unwrap_or_else(|_| panic!("not JSON: {envelope}"))
}

async fn sessions(api: &Api) -> usize {
    api.get("/v1/_sandboxes").await.ok()["sandboxes"].as_array().expect("a list").len()
}

#[tokio::test]
async fn commands_run_files_are_written_and_read_and_the_session_ends_with_the_run() {
    let server = server().await;
    let api = server.api();
    let prompt = commands(json!({
        "files": [{ "path": "greet.sh", "content": "echo hello $1\n" }],
        "commands": ["sh greet.sh world", "pwd > where; exit 0"],
        "read": ["where"],
    }));
    let run = api.run("dev/exec", &prompt).await;
    assert_eq!((run["state"].as_str(), run["outcome"].as_str()), (Some("completed"), Some("finished")), "{run}");
    let output = decoded(&run);
    assert!(output["session_id"].as_str().is_some_and(|id| id.starts_with("sbx_")), "{output}");
    let results = output["results"].as_array().unwrap();
    assert_eq!((results[0]["exit_code"].as_i64(), results[0]["output"].as_str()), (Some(0), Some("hello world\n")));
    assert_eq!(results[0]["command"], "sh greet.sh world");
    for field in ["timed_out", "truncated", "duration_ms"] {
        assert!(results[0].get(field).is_some(), "no `{field}` in {output}");
    }
    assert!(output["read"]["where"].as_str().is_some_and(|path| !path.is_empty()), "{output}");
    eventually("the session ends with its run", async || (sessions(&api).await == 0).then_some(())).await;
    server.stop().await;
}

#[tokio::test]
async fn it_stops_at_the_first_command_that_fails_unless_told_to_go_on() {
    let server = server().await;
    let api = server.api();
    let list = ["exit 3", "echo second"];
    let output = decoded(&api.run("dev/exec", &commands(json!({ "commands": list }))).await);
    assert_eq!(output["results"].as_array().unwrap().len(), 1, "{output}");
    assert_eq!(output["results"][0]["exit_code"], 3);
    let output = decoded(&api.run("dev/exec", &commands(json!({ "commands": list, "continue": true }))).await);
    assert_eq!(output["results"][1]["output"], "second\n");
    server.stop().await;
}

#[tokio::test]
async fn a_resident_keeps_its_session_between_turns_and_a_child_shares_it() {
    let server = server().await;
    let api = server.api();
    let root = api.open("dev/exec", &commands(json!({ "commands": ["echo kept > file"] }))).await;
    let first = decoded(&api.poll(&root).await);
    let second = decoded(&api.send(&root, &commands(json!({ "commands": ["cat file"] }))).await);
    assert_eq!(
        (&second["session_id"], second["results"][0]["output"].as_str()),
        (&first["session_id"], Some("kept\n"))
    );
    let child = api.open_below(&root, "dev/exec", &commands(json!({ "commands": ["cat file"] }))).await;
    let shared = decoded(&api.poll(&child).await);
    assert_eq!(
        (&shared["session_id"], shared["results"][0]["output"].as_str()),
        (&first["session_id"], Some("kept\n"))
    );
    let row = api.residents("").await.into_iter().find(|row| row["child_run_id"] == root.as_str()).unwrap();
    assert_eq!(row["sandbox_session_id"], first["session_id"]);
    assert_eq!(sessions(&api).await, 1);
    api.close(&root).await;
    assert_eq!(sessions(&api).await, 0, "gone when the close is answered");
    server.stop().await;
}

#[tokio::test]
async fn a_resident_keeps_the_session_of_the_workspace_that_it_named_once() {
    let server = server().await;
    let api = server.api();
    let first = commands(json!({ "workspace": "project", "commands": ["echo kept > file"] }));
    let id = api.open("dev/exec", &first).await;
    let opened = decoded(&api.poll(&id).await);
    let later = decoded(&api.send(&id, &commands(json!({ "commands": ["cat file"] }))).await);
    assert_eq!((&later["session_id"], later["results"][0]["output"].as_str()), (&opened["session_id"], Some("kept\n")));
    server.stop().await;
}

#[tokio::test]
async fn a_workspace_outlives_its_runs() {
    let server = server().await;
    let api = server.api();
    let write = commands(json!({ "workspace": "project", "commands": ["echo durable > file"] }));
    decoded(&api.run("dev/exec", &write).await);
    let read = commands(json!({ "workspace": "project", "read": ["file"], "commands": [] }));
    assert_eq!(decoded(&api.run("dev/exec", &read).await)["read"]["file"], "durable\n");
    server.stop().await;
}

#[tokio::test]
async fn t4_a_command_ends_when_it_ends_and_standard_input_is_empty() {
    let server = server().await;
    let api = server.api();
    let prompt = commands(json!({ "commands": ["sleep 300 & echo ok", "cat"] }));
    let results = decoded(&api.run("dev/exec", &prompt).await)["results"].clone();
    assert_eq!((results[0]["exit_code"].as_i64(), results[0]["output"].as_str()), (Some(0), Some("ok\n")));
    assert_eq!((results[1]["exit_code"].as_i64(), results[1]["output"].as_str()), (Some(0), Some("")));
    assert!(results[0]["duration_ms"].as_u64().unwrap() < 2_000, "{results}");
    server.stop().await;
}

#[tokio::test]
async fn t5_a_time_out_ends_the_whole_process_tree_and_returns_the_partial_output() {
    let server = server().await;
    let api = server.api();
    let stubborn = "echo before; trap '' TERM; (setsid sleep 998877 &); sleep 998877";
    let prompt = commands(json!({ "commands": [stubborn], "timeout_seconds": 1 }));
    let id = api.open("dev/exec", &prompt).await;
    let result = decoded(&api.poll(&id).await)["results"][0].clone();
    assert_eq!((result["timed_out"].as_bool(), result["output"].as_str()), (Some(true), Some("before\n")), "{result}");
    assert!(result["duration_ms"].as_u64().unwrap() < 6_000, "{result}");
    let left = decoded(&api.send(&id, &commands(json!({ "commands": ["pgrep -f 'sleep 99887[7]' | wc -l"] }))).await);
    assert_eq!(left["results"][0]["output"].as_str().map(str::trim), Some("0"), "{left}");
    server.stop().await;
}

#[tokio::test]
async fn a_command_in_flight_survives_the_replica_and_runs_once() {
    let mut server = server().await;
    let api = server.api();
    let id = api.open("dev/exec", &commands(json!({ "workspace": "w", "commands": ["true"] }))).await;
    let path = format!("/v1/_resident/{id}/send");
    let slow =
        commands(json!({ "workspace": "w", "commands": ["echo start >> log; sleep 2; echo end >> log; cat log"] }));
    let body = json!({ "prompt": slow });
    let call = api.request("POST", &path).header("idempotency-key", "k").json(&body);
    let (lost, ()) = tokio::join!(api.try_finish(call), async {
        let log = server.data().join("workspaces");
        eventually("the command has begun", async || holds_log(&log).then_some(())).await;
        server.kill().await;
    });
    assert!(lost.is_err());
    server.restart().await;
    let end = api.post_with_key(&path, "k", body).await.ok();
    let result = decoded(&end)["results"][0].clone();
    assert_eq!((result["exit_code"].as_i64(), result["output"].as_str()), (Some(0), Some("start\nend\n")), "{end}");
    server.stop().await;
}

/// Whether a file `log` is somewhere below.
fn holds_log(folder: &std::path::Path) -> bool {
    std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .any(|entry| entry.file_name() == "log" || (entry.path().is_dir() && holds_log(&entry.path())))
}

#[tokio::test]
async fn a_cancel_kills_the_command_and_the_session_stays_usable() {
    let server = server().await;
    let api = server.api();
    let id = api.open("dev/exec", &commands(json!({ "commands": ["true"] }))).await;
    let turn = api
        .start(
            &id,
            &commands(json!({ "files": [{ "path": "mark", "content": "begun\n" }], "commands": ["sleep 887766"] })),
        )
        .await;
    eventually("the command runs", async || {
        let page = api.get("/v1/_sandboxes").await.ok();
        (page["sandboxes"][0]["running"].as_u64() > Some(0)).then_some(())
    })
    .await;
    api.post(&format!("/v1/_resident/{id}/cancel"), json!({})).await.ok();
    assert_eq!(api.end_of(&id, &turn).await["outcome"], "cancelled");
    let next = decoded(&api.send(&id, &commands(json!({ "commands": ["cat mark"] }))).await);
    assert_eq!(next["results"][0]["output"], "begun\n", "{next}");
    eventually("the command is dead", async || {
        let page = api.get("/v1/_sandboxes").await.ok();
        (page["sandboxes"][0]["running"] == 0).then_some(())
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn output_past_its_cap_is_cut_counted_and_said() {
    let server = server().await;
    let api = server.api();
    let run = api.run("dev/exec", &commands(json!({ "commands": ["yes | head -c 20000000; exit 3"] }))).await;
    let result = decoded(&run)["results"][0].clone();
    assert_eq!((result["truncated"].as_bool(), result["exit_code"].as_i64()), (Some(true), Some(3)));
    assert!(result["output"].as_str().unwrap().len() <= 1024 * 1024 + 200);
    server.stop().await;
}

#[tokio::test]
async fn t9_paths_that_lead_out_are_refused_with_a_typed_error() {
    let server = server().await;
    let api = server.api();
    let id = api.open("dev/exec", &commands(json!({ "commands": ["ln -s / up"] }))).await;
    let session = decoded(&api.poll(&id).await)["session_id"].clone();
    for (tool, arguments) in [
        ("sandbox_write", json!({ "path": "up/tmp/p", "content": "x" })),
        ("sandbox_write", json!({ "path": "../p", "content": "x" })),
        ("sandbox_read", json!({ "path": "../../etc/shadow" })),
        ("sandbox_read", json!({ "path": "up/etc/shadow" })),
    ] {
        let mut arguments = arguments;
        arguments["session_id"] = session.clone();
        let call = json!({ "tool": { "name": format!("mcp__sandbox__{tool}"), "arguments": arguments } });
        let child = api.open_below(&id, "mock", &mock(call)).await;
        let envelope = api.poll(&child).await;
        assert_eq!(envelope["outcome"], "finished", "{envelope}");
        let output: Value = serde_json::from_str(envelope["output"].as_str().unwrap()).expect("a typed error");
        assert!(output["error"]["code"].is_string(), "{tool} {arguments}: {output}");
        api.close(&child).await;
    }
    server.stop().await;
}

#[tokio::test]
async fn the_operator_closes_sessions_by_id_and_by_run() {
    let server = server().await;
    let api = server.api();
    let open = || async { api.open("dev/exec", &commands(json!({ "commands": ["true"] }))).await };
    let (first, second) = (open().await, open().await);
    let session = decoded(&api.poll(&first).await)["session_id"].as_str().unwrap().to_owned();
    for _ in 0..2 {
        let closed = api.post(&format!("/v1/_sandboxes/{session}/close"), json!({})).await.ok();
        assert_eq!(closed["state"], "closed", "closed once, and closed for whoever repeats it");
    }
    api.post("/v1/_sandboxes/sbx_unknown/close", json!({})).await.refused(404, "not_found");
    assert_eq!(sessions(&api).await, 1);
    let closed = api.post("/v1/_sandboxes/close_run", json!({ "root_run_id": second })).await.ok();
    assert_eq!(closed["closed"], 1);
    assert_eq!(sessions(&api).await, 0);
    api.post("/v1/_sandboxes/close_run", json!({ "root_run_id": "" })).await.refused(400, "invalid_argument");
    let again = decoded(&api.send(&second, &commands(json!({ "commands": ["echo back"] }))).await);
    assert_eq!(again["results"][0]["output"], "back\n", "a session is opened again: {again}");
    server.stop().await;
}
