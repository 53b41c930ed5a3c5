//! Snapshots: run trees that are kept, moved as files, and gone on with.

use hearth_tests::{Api, Options, Reply, Server, eventually, mock};
use serde_json::{Value, json};

async fn take(api: &Api, run: &str) -> Value {
    api.post(&format!("/v1/runs/{run}/snapshot"), json!({})).await.ok()
}

async fn export(api: &Api, snapshot: &Value) -> String {
    let reply = api.get(&format!("/v1/snapshots/{}/export", snapshot["snapshot_id"].as_str().unwrap())).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    assert_eq!(reply.header("content-type"), Some("application/x-hearth-snapshot"));
    assert_eq!(reply.text.len() as u64, snapshot["size_bytes"].as_u64().unwrap());
    reply.text
}

async fn import(api: &Api, file: impl Into<String>) -> Reply {
    api.finish(api.request("POST", "/v1/snapshots/import").body(file.into())).await
}

async fn resume(api: &Api, snapshot: &Value) -> Value {
    let path = format!("/v1/snapshots/{}/resume", snapshot["snapshot_id"].as_str().unwrap());
    api.post(&path, json!({})).await.ok()
}

async fn said(api: &Api, run: &str) -> Vec<(Value, Value, Value)> {
    let session = api.get_run(run).await["session_id"].as_str().unwrap().to_owned();
    let page = api.get(&format!("/v1/sessions/{session}/transcript?limit=500")).await.ok();
    let messages = page["messages"].as_array().unwrap().clone();
    messages.into_iter().map(|said| (said["role"].clone(), said["content"].clone(), said["turn_id"].clone())).collect()
}

/// The new id of a run that was taken.
fn now(resumed: &Value, old: &str) -> String {
    let runs = resumed["runs"].as_array().unwrap();
    let run = runs.iter().find(|run| run["from"] == old).unwrap_or_else(|| panic!("{old} is not in {resumed}"));
    run["run_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_tree_goes_on_as_new_runs_with_its_conversation_and_state_and_the_old_one_stays() {
    let mut server = Server::start().await;
    let api = server.api();
    let root = api.open("mock", "root").await;
    let child = api.open_below(&root, "mock", "child").await;
    let second = api.send(&child, &format!("know {root}")).await["turn_id"].as_str().unwrap().to_owned();
    let ended = api.open_below(&root, "mock", "ended").await;
    api.close(&ended).await;
    let key = format!("/v1/_resident/{child}/send");
    api.post_with_key(&key, "a-key", json!({ "prompt": "with a key" })).await.ok();

    let snapshot = take(&api, &root).await;
    assert_eq!((&snapshot["runs"], &snapshot["left_out"]), (&json!(2), &json!([])), "{snapshot}");
    let before = (said(&api, &root).await, said(&api, &child).await);
    api.send(&child, "after the snapshot").await;
    server.crash().await;
    let listed = api.get("/v1/snapshots").await.ok()["snapshots"].clone();
    assert_eq!(listed, json!([snapshot]));

    let resumed = resume(&api, &snapshot).await;
    let (new_root, new_child) = (now(&resumed, &root), now(&resumed, &child));
    assert_eq!(resumed["run_id"], new_root.as_str(), "{resumed}");
    assert!(new_root != root && new_child != child);
    let row = api.get_run(&new_child).await;
    assert_eq!((&row["parent_run_id"], &row["root_run_id"]), (&json!(new_root), &json!(new_root)), "{row}");
    assert_eq!((&row["state"], &row["turns"]), (&json!("awaiting_input"), &json!(3)), "{row}");
    assert_eq!(said(&api, &new_root).await, before.0);
    // What was said names the new runs, and is the same besides.
    let told = said(&api, &new_child).await;
    assert_eq!(json!(told).to_string(), json!(before.1).to_string().replace(&root, &new_root));
    assert_eq!(api.poll_turn(&new_child, &second).await["output"], format!("know {new_root}").as_str());
    // Keys stay with the run that they were used on.
    let again = api.post_with_key(&format!("/v1/_resident/{new_child}/send"), "a-key", json!({ "prompt": "x" })).await;
    assert!(!again.is_replay() && again.ok()["output"] == "x");
    assert_eq!(api.send(&new_root, "on").await["output"], "on");

    let mut events = api.stream(&new_child, None).await;
    let first = events.next().await.expect("an event");
    assert_eq!(first.name, "resync", "what was before is folded away: {first:?}");
    drop(events);
    server.crash().await;
    assert_eq!(api.send(&new_child, "and on").await["output"], "and on");
    assert_eq!(api.close(&new_root).await["closed_descendants"], 1);
    assert_eq!(api.send(&child, "still here").await["output"], "still here");

    // A resident of a tree is the root of its own once it goes on.
    let alone = resume(&api, &take(&api, &child).await).await;
    let row = api.get_run(alone["run_id"].as_str().unwrap()).await;
    assert_eq!((&row["parent_run_id"], &row["root_run_id"]), (&Value::Null, &alone["run_id"]), "{row}");
    let path = format!("/v1/snapshots/{}", snapshot["snapshot_id"].as_str().unwrap());
    api.finish(api.request("DELETE", &path)).await.ok();
    api.finish(api.request("DELETE", &path)).await.refused(404, "not_found");
    assert_eq!(api.get("/v1/snapshots").await.ok()["snapshots"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_turn_in_flight_goes_on_from_its_last_step_and_finds_its_child_again() {
    const PROGRAM: &str = "/*\ndescription: Asks a child\ntools: [Agent]\n*/\nfunction run(input) {\n\
        const first = Agent({ name: \"mock\", prompt: \"first\" });\n\
        const child = Agent({ op: \"open\", name: \"mock\", prompt: input });\n\
        const sent = Agent({ op: \"send\", child_run_id: child.child_run_id, prompt: input });\n\
        return first + \" \" + child.output + \" \" + sent.output;\n}\n";
    let server = Options::default().agent("asks.js", PROGRAM).start().await;
    let api = server.api();
    let slow = mock(json!({ "latency_ms": 1_500, "output": "slow" }));
    let body = json!({ "agent": "asks", "prompt": slow, "timeout_ms": 1 });
    let root = api.post("/v1/_resident", body).await.ok()["child_run_id"].as_str().unwrap().to_owned();
    let below = |root: String| {
        let api = api.clone();
        async move { api.residents(&format!("parent_run_id={root}")).await }
    };
    let child = eventually("the child is mid-turn", async || {
        below(root.clone()).await.first().map(|row| row["child_run_id"].as_str().unwrap().to_owned())
    })
    .await;
    let in_open = take(&api, &root).await;
    eventually("the send is under way", async || (below(root.clone()).await[0]["turns"] == 2).then_some(())).await;
    let in_send = take(&api, &root).await;
    api.close(&root).await;
    assert_eq!(api.get_run(&child).await["state"], "closed");
    for snapshot in [in_open, in_send] {
        assert_eq!(snapshot["runs"], 2, "{snapshot}");
        let resumed = resume(&api, &snapshot).await;
        let new_root = now(&resumed, &root);
        let turn = api.poll(&new_root).await["turn_id"].as_str().unwrap().to_owned();
        let end = api.end_of(&new_root, &turn).await;
        assert_eq!((&end["outcome"], &end["output"]), (&json!("finished"), &json!("first slow slow")), "{end}");
        let rows = below(new_root.clone()).await;
        assert_eq!(rows.len(), 1, "one child, and no other beside it: {rows:?}");
        assert_eq!(
            (rows[0]["child_run_id"].as_str().unwrap(), &rows[0]["turns"]),
            (&*now(&resumed, &child), &json!(2))
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_file_goes_on_elsewhere_and_one_that_was_cut_or_changed_is_refused_with_its_place() {
    let (here, there) = (Server::start().await, Server::start().await);
    let (from, to) = (here.api(), there.api());
    let root = from.open("mock", "root").await;
    let child = from.open_below(&root, "mock", "child").await;
    for number in 0..20 {
        from.send(&child, &format!("turn {number}")).await;
    }
    let snapshot = take(&from, &root).await;
    let file = export(&from, &snapshot).await;
    let lines: Vec<&str> = file.lines().collect();
    assert!(lines.len() > 4, "{}", lines.len());
    let first_half = &file[..file.len() / 2];
    let without = |number: usize| {
        let kept: Vec<&str> = lines.iter().enumerate().filter(|(at, _)| *at != number).map(|(_, line)| *line).collect();
        kept.join("\n")
    };
    for (wrong, record) in [
        (String::new(), 1),
        ("this is no snapshot".to_owned(), 1),
        (file.replace("\"hearth_snapshot\":1", "\"hearth_snapshot\":7"), 1),
        (first_half.to_owned(), 0),
        (without(lines.len() - 1), lines.len()),
        (without(2), 3),
        (file.replace("turn 7", "turn 8"), lines.len()),
        (format!("{file}{}\n", lines[1]), lines.len()),
    ] {
        let error = import(&to, wrong).await.refused(400, "invalid_argument");
        let place = error["details"]["record"].as_u64().unwrap_or_else(|| panic!("no place in {error}"));
        assert!(record == 0 || place == record as u64, "record {record} was expected: {error}");
        assert!(error["message"].as_str().unwrap().contains(&format!("record {place}")), "{error}");
    }
    assert_eq!(to.get("/v1/snapshots").await.ok()["snapshots"], json!([]), "nothing is left of a refused file");

    let brought = import(&to, file.clone()).await.ok();
    assert_eq!((&brought["imported"], &brought["sha256"]), (&json!(true), &snapshot["sha256"]), "{brought}");
    let resumed = resume(&to, &brought).await;
    let new_child = now(&resumed, &child);
    let told = said(&to, &new_child).await;
    assert_eq!(told, said(&from, &child).await);
    assert_eq!(to.send(&new_child, "here").await["output"], "here");
    assert_eq!(export(&to, &brought).await, file, "it can be moved on");
    here.stop().await;
    there.stop().await;
}

#[tokio::test]
async fn snapshots_belong_to_a_tenant_and_are_taken_and_resumed_once_per_key() {
    const ANN: &str = "token-of-ann-0123456789abcdef";
    const BOB: &str = "token-of-bob-0123456789abcdef";
    const OPS: &str = "token-of-ops-0123456789abcdef";
    const EVE: &str = "token-of-eve-0123456789abcdef";
    let options = Options::default()
        .token(ANN, "acme", "ann", "member")
        .token(BOB, "acme", "bob", "member")
        .token(OPS, "acme", "ops", "operator")
        .token(EVE, "other", "eve", "operator");
    let server = options.start().await;
    let admin = server.api();
    let (ann, bob) = (admin.with_token(ANN), admin.with_token(BOB));
    let (ops, eve) = (admin.with_token(OPS), admin.with_token(EVE));
    let run = ann.open("mock", "secret").await;
    let path = format!("/v1/runs/{run}/snapshot");
    let first = ann.post_with_key(&path, "k", json!({})).await;
    let again = ann.post_with_key(&path, "k", json!({})).await;
    assert!(!first.is_replay() && again.is_replay());
    let snapshot = first.ok();
    assert_eq!(again.ok(), snapshot);
    ann.post_with_key(&path, "k", json!({ "workspaces": true })).await.refused(409, "conflict");
    let id = snapshot["snapshot_id"].as_str().unwrap();

    let verbs = |id: &str| {
        [
            ("GET", format!("/v1/snapshots/{id}/export")),
            ("POST", format!("/v1/snapshots/{id}/resume")),
            ("DELETE", format!("/v1/snapshots/{id}")),
        ]
    };
    for ((method, foreign), (_, unknown)) in verbs(id).into_iter().zip(verbs("snap_unknown")) {
        let (foreign, unknown) =
            (eve.finish(eve.request(method, &foreign)).await, eve.finish(eve.request(method, &unknown)).await);
        assert_eq!(foreign.text, unknown.text, "{method}");
        foreign.refused(404, "not_found");
    }
    for (method, path) in verbs(id) {
        bob.finish(bob.request(method, &path)).await.refused(403, "permission_denied");
    }
    eve.post(&path, json!({})).await.refused(404, "not_found");
    bob.post(&path, json!({})).await.refused(403, "permission_denied");
    for (api, seen) in [(&ann, 1), (&bob, 0), (&ops, 1), (&eve, 0)] {
        assert_eq!(api.get("/v1/snapshots").await.ok()["snapshots"].as_array().unwrap().len(), seen);
    }
    let page = admin.get("/v1/snapshots?tenant=acme").await.ok();
    assert_eq!(page["snapshots"][0]["snapshot_id"], id, "{page}");

    let resumes = format!("/v1/snapshots/{id}/resume");
    let first = ann.post_with_key(&resumes, "r", json!({})).await;
    let again = ann.post_with_key(&resumes, "r", json!({})).await;
    assert!(!first.is_replay() && again.is_replay());
    let resumed = first.ok();
    assert_eq!(again.ok(), resumed);
    let other = ops.post(&resumes, json!({})).await.ok();
    assert_ne!(other["run_id"], resumed["run_id"]);
    assert_eq!(ann.get_run(other["run_id"].as_str().unwrap()).await["tenant_id"], "acme", "its subject's still");
    let by_admin = admin.post(&resumes, json!({})).await.ok();
    assert_eq!(ann.get_run(by_admin["run_id"].as_str().unwrap()).await["tenant_id"], "acme");

    // What comes in as a file is the importer's, whatever it says of itself.
    let file = export(&ops, &snapshot).await;
    import(&ann, file.clone()).await.refused(403, "permission_denied");
    let keyed = || eve.request("POST", "/v1/snapshots/import").header("idempotency-key", "i");
    let brought = eve.finish(keyed().body(file.clone())).await;
    let again = eve.finish(keyed().body(file)).await;
    assert!(!brought.is_replay() && again.is_replay());
    let brought = brought.ok();
    assert_eq!((&brought["tenant_id"], &brought["subject"]), (&json!("other"), &json!("eve")), "{brought}");
    let there = resume(&eve, &brought).await;
    assert_eq!(eve.send(there["run_id"].as_str().unwrap(), "mine").await["output"], "mine");
    ann.get(&format!("/v1/runs/{}", there["run_id"].as_str().unwrap())).await.refused(404, "not_found");

    for (path, body, field) in [
        (&path, json!({ "workspace": true }), "workspace"),
        (&path, json!({ "workspaces": "yes" }), "workspaces"),
        (&resumes, json!({ "agent": "mock" }), "agent"),
    ] {
        let refused = ann.post(path, body).await;
        assert_eq!(refused.body["error"]["details"]["field"], field, "{}", refused.text);
        refused.refused(400, "invalid_argument");
    }
    ann.close(&run).await;
    ann.post(&path, json!({})).await.refused(409, "run_ended");
    server.stop().await;
}

#[tokio::test]
async fn a_definition_that_comes_in_is_held_to_the_ceiling_of_its_name() {
    let code = |front: &str| format!("/*\n{front}\n*/\nfunction run(input) {{ return input }}\n");
    let here = Options::default().agent("echo.js", &code("description: Wide\ntools: [Agent]")).start().await;
    let there = Options::default().agent("echo.js", &code("description: Narrow")).start().await;
    let run = here.api().open("echo", "x").await;
    let file = export(&here.api(), &take(&here.api(), &run).await).await;
    import(&there.api(), file).await.refused(422, "tool_refused");
    here.stop().await;
    there.stop().await;
}

#[tokio::test]
async fn workspaces_go_along_if_they_are_asked_for_and_one_that_is_there_stays() {
    let options = || Options::default().variable("SANDBOX_DRIVER", "local");
    let (here, there) = (options().start().await, options().start().await);
    let (from, to) = (here.api(), there.api());
    let commands =
        |commands: &[&str]| json!({ "workspace": "build", "commands": commands, "keep_open": true }).to_string();
    let run = from.open("dev/exec", &commands(&["echo kept > f"])).await;
    let bare = take(&from, &run).await;
    assert_eq!(bare["workspaces"], json!([]));
    let path = format!("/v1/runs/{run}/snapshot");
    let snapshot = from.post(&path, json!({ "workspaces": true })).await.ok();
    assert_eq!(snapshot["workspaces"], json!(["build"]), "{snapshot}");
    let brought = import(&to, export(&from, &snapshot).await).await.ok();
    for (restored, expected) in [(true, "kept"), (false, "changed")] {
        let resumed = resume(&to, &brought).await;
        assert_eq!(resumed["workspaces"], json!([{ "name": "build", "restored": restored }]), "{resumed}");
        let id = resumed["run_id"].as_str().unwrap();
        let answer = to.send(id, &commands(&["cat f", "echo changed > f"])).await;
        let told: Value = serde_json::from_str(answer["output"].as_str().unwrap()).unwrap();
        assert_eq!(told["results"][0]["output"], format!("{expected}\n"), "{answer}");
        to.close(id).await;
    }
    here.stop().await;
    there.stop().await;
}
