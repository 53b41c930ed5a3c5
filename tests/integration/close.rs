//! Close: final, cascades, idempotent.

use hearth_tests::{Server, eventually, mock};
use serde_json::json;

#[tokio::test]
async fn t25_closing_a_parent_closes_the_whole_tree_and_counts_it() {
    let server = Server::start().await;
    let api = server.api();
    let root = api.open("mock", "root").await;
    let child = api.open_below(&root, "mock", "child").await;
    let other = api.open_below(&root, "mock", "other").await;
    let grandchild = api.open_below(&child, "mock", "grandchild").await;
    api.close(&other).await;
    let closed = api.post(&format!("/v1/runs/{root}/close"), json!({ "reason": "done" })).await.ok();
    assert_eq!((closed["run_id"].as_str(), closed["state"].as_str()), (Some(root.as_str()), Some("closed")));
    assert_eq!(closed["closed_descendants"], 2, "the one that was closed before is not counted");
    for id in [&root, &child, &other, &grandchild] {
        assert_eq!(api.get_run(id).await["state"], "closed");
    }
    assert!(api.residents("").await.is_empty());
    let again = api.post(&format!("/v1/runs/{root}/close"), json!({})).await.ok();
    assert_eq!((again["state"].as_str(), &again["closed_descendants"]), (Some("closed"), &json!(0)));
    let body = json!({ "agent": "mock", "prompt": "late", "parent_run_id": root });
    api.post("/v1/_resident", body).await.refused(409, "run_ended");
    server.stop().await;
}

#[tokio::test]
async fn calls_in_flight_of_a_closed_run_get_its_final_state() {
    let server = Server::start().await;
    let api = server.api();
    let root = api.open("mock", "root").await;
    let id = api.open_below(&root, "mock", "child").await;
    let path = format!("/v1/_resident/{id}/send");
    let slow = mock(json!({ "latency_ms": 60_000, "chunks": 600, "output": "x".repeat(600) }));
    let (running, (polled, queued)) = tokio::join!(api.post(&path, json!({ "prompt": slow })), async {
        eventually("the turn runs", async || (api.poll(&id).await["state"] == "running").then_some(())).await;
        let poll = format!("/v1/_resident/{id}?timeout_ms=60000");
        tokio::join!(api.get(&poll), async {
            let queued = api.start(&id, "queued").await;
            api.close(&root).await;
            api.get(&format!("/v1/_resident/{id}?turn_id={queued}")).await
        })
    });
    for (call, reply) in [("the send", running), ("the poll", polled), ("the queued turn", queued)] {
        assert_eq!(reply.status, 200, "{call}: {}", reply.text);
        assert_eq!(reply.body["state"], "closed", "{call}: {}", reply.text);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_run_that_was_completed_or_failed_keeps_its_state() {
    let server = Server::start().await;
    let api = server.api();
    for (prompt, state) in [("fine".to_owned(), "completed"), (mock(json!({ "fail": "no" })), "failed")] {
        let id = api.run("mock", &prompt).await["run_id"].as_str().unwrap().to_owned();
        let closed = api.post(&format!("/v1/runs/{id}/close"), json!({})).await.ok();
        assert_eq!(closed["state"], state, "{closed}");
        assert_eq!(api.get_run(&id).await["state"], state);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_run_that_ends_takes_the_children_that_it_left_open_with_it() {
    let server = Server::start().await;
    let api = server.api();
    let open = json!({ "op": "open", "name": "mock", "prompt": "left open" });
    let run = api.run("mock", &mock(json!({ "tool": { "name": "Agent", "arguments": open } }))).await;
    assert_eq!(run["state"], "completed", "{run}");
    let root = run["run_id"].as_str().unwrap();
    eventually("no child is left", async || {
        api.residents(&format!("root_run_id={root}")).await.is_empty().then_some(())
    })
    .await;
    let page = api.get(&format!("/v1/runs?parent_run_id={root}")).await.ok();
    assert_eq!(page["runs"][0]["state"], "closed", "{page}");
    server.stop().await;
}

#[tokio::test]
async fn a_close_during_open_leaves_nothing_alive() {
    let server = Server::start().await;
    let api = server.api();
    for delay in [0, 1, 2, 4, 8, 16] {
        let root = api.open("mock", "root").await;
        let body = json!({ "agent": "mock", "prompt": mock(json!({ "latency_ms": 20 })), "parent_run_id": root });
        let (opened, closed) = tokio::join!(api.post("/v1/_resident", body), async {
            tokio::time::sleep(std::time::Duration::from_millis(delay)).await;
            api.close(&root).await
        });
        assert_eq!(closed["state"], "closed");
        assert!(matches!(opened.status, 200 | 409), "{}", opened.text);
        assert!(api.residents(&format!("root_run_id={root}")).await.is_empty());
    }
    server.stop().await;
}
