//! Lists: newest first, in pages that stay right while rows are added.

use std::collections::BTreeSet;

use hearth_tests::{Api, Server, mock};
use serde_json::{Value, json};

async fn page(api: &Api, query: &str) -> Value {
    api.get(&format!("/v1/runs?{query}")).await.ok()
}

fn ids(page: &Value) -> Vec<String> {
    page["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn pages_are_newest_first_and_miss_or_repeat_nothing_while_rows_are_added() {
    let server = Server::start().await;
    let api = server.api();
    let mut made = Vec::new();
    for _ in 0..25 {
        made.push(api.run("mock", "x").await["run_id"].as_str().unwrap().to_owned());
    }
    made.reverse();
    assert_eq!(ids(&page(&api, "").await), made, "newest first");
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = page(&api, &format!("limit=4{cursor}")).await;
        assert!(page["as_of"].is_string(), "{page}");
        seen.extend(ids(&page));
        api.run("mock", "added meanwhile").await;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, made);
    server.stop().await;
}

#[tokio::test]
async fn the_default_page_has_fifty_rows() {
    let server = Server::start().await;
    let api = server.api();
    for _ in 0..51 {
        api.run("mock", "x").await;
    }
    let first = page(&api, "").await;
    assert_eq!(ids(&first).len(), 50);
    assert!(first["next_cursor"].is_string());
    let all = page(&api, "limit=500").await;
    assert_eq!((ids(&all).len(), all["next_cursor"].is_null()), (51, true));
    server.stop().await;
}

#[tokio::test]
async fn filters_narrow_runs_and_residents_alike() {
    let server = Server::start().await;
    let api = server.api();
    let done = api.run("mock", "x").await["run_id"].as_str().unwrap().to_owned();
    let root = api.open("mock", "root").await;
    let child = api.open_below(&root, "mock", "child").await;
    let busy = api.open_below(&root, "mock", "busy").await;
    api.start(&busy, &mock(json!({ "latency_ms": 60_000 }))).await;
    let set = |list: &[&String]| list.iter().map(|id| (*id).clone()).collect::<BTreeSet<_>>();
    for (query, expected) in [
        ("state=completed".to_owned(), set(&[&done])),
        ("state=awaiting_input".to_owned(), set(&[&root, &child])),
        ("state=running".to_owned(), set(&[&busy])),
        ("resident=true".to_owned(), set(&[&root, &child, &busy])),
        ("resident=false".to_owned(), set(&[&done])),
        (format!("root_run_id={root}"), set(&[&root, &child, &busy])),
        (format!("parent_run_id={root}"), set(&[&child, &busy])),
        ("agent=mock".to_owned(), set(&[&done, &root, &child, &busy])),
        ("agent=nobody".to_owned(), set(&[])),
        (format!("agent=mock&state=running&parent_run_id={root}"), set(&[&busy])),
    ] {
        assert_eq!(ids(&page(&api, &query).await).into_iter().collect::<BTreeSet<_>>(), expected, "{query}");
        let residents: BTreeSet<String> =
            api.residents(&query).await.iter().map(|row| row["child_run_id"].as_str().unwrap().to_owned()).collect();
        let live: BTreeSet<String> = expected.into_iter().filter(|id| *id != done).collect();
        assert_eq!(residents, live, "residents, {query}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_bad_limit_cursor_or_filter_is_refused() {
    let server = Server::start().await;
    let api = server.api();
    for query in [
        "limit=0",
        "limit=501",
        "limit=-1",
        "limit=x",
        "limit=1e3",
        "cursor=junk",
        "cursor=",
        "state=sleeping",
        "resident=maybe",
        "root_run_id=a%2Fb",
    ] {
        for path in ["/v1/runs", "/v1/_resident"] {
            let reply = api.get(&format!("{path}?{query}")).await;
            assert_eq!(reply.status, 400, "{path}?{query}: {}", reply.text);
            reply.refused(400, "invalid_argument");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn the_replica_that_owns_a_run_is_in_the_list_of_replicas() {
    let server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let owner = api.get_run(&id).await["owner_replica"].clone();
    let replicas = api.get("/v1/_replicas").await.ok();
    let known = replicas["replicas"].as_array().expect("a list");
    let names =
        |replica: &Value| replica.as_object().is_some_and(|fields| fields.values().any(|value| *value == owner));
    assert!(owner.is_string() && known.iter().any(names), "{owner} in {replicas}");
    server.stop().await;
}

#[tokio::test]
async fn pages_of_names_repeat_and_miss_nothing_while_names_are_added() {
    let server = Server::start().await;
    let api = server.api();
    let make = async |name: &str| {
        api.post("/v1/skills", json!({ "name": name, "description": "d", "body": "b" })).await;
    };
    let names = |page: &Value| -> Vec<String> {
        page["skills"].as_array().unwrap().iter().map(|skill| skill["name"].as_str().unwrap().to_owned()).collect()
    };
    for name in ["b", "d", "f"] {
        make(name).await;
    }
    let first = api.get("/v1/skills?limit=2").await.ok();
    assert_eq!(names(&first), ["b", "d"]);
    // One before the place of the cursor, one after.
    make("a").await;
    make("e").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = api.get(&format!("/v1/skills?limit=2&cursor={cursor}")).await.ok();
    assert_eq!((names(&second), second["next_cursor"].is_null()), (vec!["e".to_owned(), "f".to_owned()], true));
    server.stop().await;
}
