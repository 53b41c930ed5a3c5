//! The operator's commands against a real server: definitions from files, snapshots as files.

use std::fs;
use std::path::Path;

use hearth_tests::{ADMIN, Server, program};
use serde_json::{Value, json};

/// A command with `--json`: its exit code and its document.
fn hearth(server: &Server, folder: &Path, args: &[&str]) -> (i32, Value) {
    let output = program()
        .current_dir(folder)
        .arg("--json")
        .args(args)
        .env("HEARTH_URL", format!("http://{}", server.address()))
        .env("HEARTH_TOKEN", ADMIN)
        .output()
        .expect("it runs");
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let document = serde_json::from_slice(&text).unwrap_or(Value::Null);
    (output.status.code().expect("a code"), document)
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_and_skills_are_made_changed_and_retired_from_files() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    let run = |args: &[&str]| hearth(&server, folder.path(), args);
    write("echo.js", "/*\ndescription: Says it again\n*/\nfunction run(input) { return input + '!' }\n");
    let (code, made) = run(&["agents", "create", "echo.js", "--name", "team/echo"]);
    assert_eq!((code, &made["name"], &made["origin"]), (0, &json!("team/echo"), &json!("dynamic")), "{made}");
    assert_eq!(server.api().run("team/echo", "hi").await["output"], "hi!");
    assert_eq!(run(&["agents", "create", "echo.js", "--name", "team/echo"]).0, 1, "there is one already");
    let (_, listed) = run(&["agents", "list"]);
    assert!(listed["agents"].as_array().unwrap().iter().any(|agent| agent["name"] == "team/echo"), "{listed}");

    write("other.json", r#"{"description": "Says it otherwise"}"#);
    let (code, changed) = run(&["agents", "change", "team/echo", "other.json"]);
    assert_eq!((code, &changed["description"]), (0, &json!("Says it otherwise")), "{changed}");
    let (code, forked) = run(&["agents", "fork", "team/echo", "other.json"]);
    assert_eq!(code, 0, "{forked}");
    let (code, cloned) = run(&["agents", "clone", "team/echo", "echo-too"]);
    assert_eq!((code, run(&["agents", "show", "echo-too"]).1["code"] == changed["code"]), (0, true), "{cloned}");
    assert_eq!(run(&["agents", "retire", "team/echo"]).0, 0);
    assert_eq!(run(&["agents", "show", "team/echo"]).0, 1);
    write("wrong.md", "---\ncolour: red\n---\n");
    let (code, told) = run(&["agents", "create", "wrong.md"]);
    assert!(code == 2 && told["error"]["message"].as_str().unwrap().contains("wrong.md:2"), "{told}");
    write("held.md", "---\nguardrails: {loop: {repeats: 3}}\n---\n");
    let (code, told) = run(&["agents", "create", "held.md"]);
    assert!(code == 2 && told["error"]["message"].as_str().unwrap().contains("guardrails"), "{told}");

    fs::create_dir(folder.path().join("rust")).unwrap();
    write("rust/SKILL.md", "---\ndescription: Builds Rust\n---\nUse cargo.\n");
    assert_eq!(run(&["skills", "create", "rust/SKILL.md"]).0, 0);
    let (_, shown) = run(&["skills", "show", "rust"]);
    assert_eq!((&shown["body"], &shown["origin"]), (&json!("Use cargo."), &json!("dynamic")), "{shown}");
    write("rust/SKILL.md", "---\ndescription: Builds Rust\n---\nUse cargo nextest.\n");
    assert_eq!(run(&["skills", "change", "rust", "rust/SKILL.md"]).1["body"], "Use cargo nextest.");
    assert_eq!(run(&["skills", "ls"]).1["skills"].as_array().unwrap().len(), 1);
    assert_eq!(run(&["skills", "retire", "rust"]).0, 0);
    assert_eq!(run(&["skills", "retire", "rust"]).0, 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_taken_moved_and_resumed_by_commands() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| hearth(&server, folder.path(), args);
    let id = server.api().open("mock", "one").await;
    let (code, taken) = run(&["snapshot", "create", &id]);
    assert_eq!((code, &taken["runs"]), (0, &json!(1)), "{taken}");
    let (code, exported) = run(&["snapshot", "export", taken["snapshot_id"].as_str().unwrap(), "one.snapshot"]);
    assert_eq!((code, &exported["bytes"]), (0, &taken["size_bytes"]), "{exported}");
    let (code, brought) = run(&["snapshot", "import", "one.snapshot"]);
    assert_eq!((code, &brought["imported"]), (0, &json!(true)), "{brought}");
    assert_eq!(run(&["snapshot", "ls"]).1["snapshots"].as_array().unwrap().len(), 2);
    let (code, resumed) = run(&["snapshot", "resume", brought["snapshot_id"].as_str().unwrap()]);
    assert_eq!(code, 0, "{resumed}");
    let new = resumed["run_id"].as_str().unwrap();
    assert_eq!(server.api().send(new, "two").await["output"], "two");
    fs::write(folder.path().join("cut.snapshot"), "{}").unwrap();
    assert_eq!(run(&["snapshot", "import", "cut.snapshot"]).0, 2);
    assert_eq!(run(&["snapshot", "import", "absent.snapshot"]).0, 2);
    assert_eq!(run(&["snapshot", "remove", brought["snapshot_id"].as_str().unwrap()]).0, 0);
    assert_eq!(run(&["snapshot", "resume", brought["snapshot_id"].as_str().unwrap()]).0, 1);
    server.stop().await;
}
