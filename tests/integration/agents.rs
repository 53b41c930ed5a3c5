//! Agent files and the catalogue.

use hearth_tests::{Options, Server};
use serde_json::{Value, json};

#[tokio::test]
async fn agents_of_files_and_built_in_ones_are_listed_and_shown() {
    let server = Options::default()
        .agent("chat/medium.md", "---\ndescription: Talks\nprovider: none\nmodel: none\n---\nBe kind.\n")
        .agent("sum.js", "/*\ndescription: Adds\n*/\nfunction run(input) { return '2' }\n")
        .start()
        .await;
    let api = server.api();
    let page = api.get("/v1/agents").await.ok();
    let names: Vec<&str> =
        page["agents"].as_array().unwrap().iter().filter_map(|agent| agent["name"].as_str()).collect();
    for name in ["mock", "dev/exec", "chat/medium", "sum"] {
        assert!(names.contains(&name), "no {name} in {names:?}");
    }
    let agent = api.get("/v1/agents/chat%2Fmedium").await.ok();
    assert_eq!((agent["name"].as_str(), agent["system_prompt"].as_str()), (Some("chat/medium"), Some("Be kind.")));
    assert_eq!(api.get("/v1/agents/dev%2Fexec").await.ok()["name"], "dev/exec");
    api.get("/v1/agents/nobody").await.refused(404, "not_found");
    assert_eq!(api.run("sum", "x").await["output"], "2");
    server.stop().await;
}

#[tokio::test]
async fn a_bad_agent_file_stops_the_start_with_its_name_line_and_reason() {
    for (path, text, place, reason) in [
        ("bad.md", "---\nmodel: x\ncolour: red\n---\n", "bad.md:3", "colour"),
        ("deep/bad.js", "/*\ntools: Agent\n*/\nfunction run() {}\n", "deep/bad.js:2", "tools"),
        ("open.md", "---\nmodel: x\n", "open.md:1", "---"),
        ("mock.md", "---\nmodel: x\n---\n", "mock.md:1", "built-in"),
    ] {
        let (status, log) = Options::default().agent(path, text).start_in_vain().await;
        assert!(!status.success(), "{path} was taken:\n{log}");
        assert!(log.contains(place) && log.contains(reason), "{place} and {reason} are not in:\n{log}");
    }
}

#[tokio::test]
async fn a_run_with_an_unknown_agent_is_refused_and_makes_no_run() {
    let server = Server::start().await;
    let api = server.api();
    for path in ["/v1/runs", "/v1/_resident"] {
        let body = json!({ "agent": "nobody", "prompt": "x" });
        api.post(path, body).await.refused(404, "not_found");
    }
    assert_eq!(api.get("/v1/runs").await.ok()["runs"], Value::Array(Vec::new()));
    server.stop().await;
}
