//! `kill -9` at the worst moments.

use futures::future::join_all;
use hearth_tests::{Server, eventually, mock};
use serde_json::json;

#[tokio::test]
async fn t24_a_turn_that_was_running_is_resumed_and_a_repeated_send_returns_its_result() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let path = format!("/v1/_resident/{id}/send");
    let body = json!({ "prompt": mock(json!({ "latency_ms": 1_500, "output": "survived" })) });
    let blocked = api.request("POST", &path).header("idempotency-key", "k").json(&body);
    let (lost, turn) = tokio::join!(api.try_finish(blocked), async {
        let turn = eventually("the turn runs", async || {
            let envelope = api.poll(&id).await;
            (envelope["state"] == "running").then(|| envelope["turn_id"].clone())
        })
        .await;
        server.kill().await;
        turn
    });
    assert!(lost.is_err(), "the connection died with the server");
    server.restart().await;
    let again = api.post_with_key(&path, "k", body).await;
    assert!(again.is_replay(), "{}", again.text);
    let again = again.ok();
    assert_eq!((&again["turn_id"], again["outcome"].as_str()), (&turn, Some("finished")));
    assert_eq!(again["output"], "survived");
    assert_eq!(api.send(&id, "next").await["output"], "next");
    let row = api.residents("").await.into_iter().find(|row| row["child_run_id"] == id.as_str()).unwrap();
    assert_eq!(row["turns"], 3, "nothing was repeated");
    assert_eq!(
        (api.get_run(&id).await["state"].as_str(), row["state"].as_str()),
        (Some("awaiting_input"), Some("awaiting_input"))
    );
    server.stop().await;
}

#[tokio::test]
async fn t24_after_a_crash_nothing_says_running_for_ever() {
    let mut server = Server::start().await;
    let api = server.api();
    let residents = join_all((0..10).map(|_| api.open("mock", "one"))).await;
    for id in &residents {
        api.start(id, &mock(json!({ "latency_ms": 500, "output": id }))).await;
    }
    let body = json!({ "agent": "mock", "prompt": mock(json!({ "latency_ms": 500 })), "wait_ms": 1 });
    let run = api.post("/v1/runs", body).await.with_status(202)["run_id"].as_str().unwrap().to_owned();
    server.crash().await;
    eventually("nobody calls, and every turn has ended", async || {
        let page = api.get("/v1/runs?state=running").await.ok();
        page["runs"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    for id in &residents {
        let envelope = api.poll(id).await;
        assert_eq!((envelope["outcome"].as_str(), envelope["output"].as_str()), (Some("finished"), Some(id.as_str())));
    }
    assert_eq!(api.get_run(&run).await["state"], "completed");
    server.stop().await;
}

#[tokio::test]
async fn queued_prompts_survive_and_keep_their_order() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let mut turns = vec![api.start(&id, &mock(json!({ "latency_ms": 1_000, "output": "0" }))).await];
    for number in 1..6 {
        turns.push(api.start(&id, &number.to_string()).await);
    }
    server.crash().await;
    for (number, turn) in turns.iter().enumerate() {
        let end = api.end_of(&id, turn).await;
        assert_eq!(
            (end["outcome"].as_str(), end["output"].as_str()),
            (Some("finished"), Some(number.to_string().as_str()))
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn a_parent_that_waited_for_its_child_goes_on_with_the_same_child() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let open =
        json!({ "op": "open", "name": "mock", "prompt": mock(json!({ "latency_ms": 1_500, "output": "child" })) });
    let turn = api.start(&id, &mock(json!({ "tool": { "name": "Agent", "arguments": open } }))).await;
    let child = eventually("the child is there", async || {
        let rows = api.residents(&format!("parent_run_id={id}")).await;
        rows.first().map(|row| row["child_run_id"].as_str().unwrap().to_owned())
    })
    .await;
    server.crash().await;
    let end = api.end_of(&id, &turn).await;
    assert_eq!(end["outcome"], "finished", "{end}");
    let output = end["output"].as_str().unwrap();
    assert!(output.contains(&child) && output.contains("child"), "{output}");
    assert_eq!(api.residents(&format!("parent_run_id={id}")).await.len(), 1, "no second child");
    server.stop().await;
}

#[tokio::test]
async fn a_cancel_that_was_acknowledged_holds_after_a_crash() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    for _ in 0..5 {
        let turn = api.start(&id, &mock(json!({ "latency_ms": 2_000 }))).await;
        let reply = api.post(&format!("/v1/_resident/{id}/cancel"), json!({ "turn_id": turn })).await.ok();
        assert_eq!(reply["stopped"], true);
        server.crash().await;
        let end = api.end_of(&id, &turn).await;
        assert_eq!(end["outcome"], "cancelled", "{end}");
    }
    assert_eq!(api.send(&id, "usable").await["output"], "usable");
    server.stop().await;
}

#[tokio::test]
async fn a_close_that_was_acknowledged_holds_after_a_crash() {
    let mut server = Server::start().await;
    let api = server.api();
    let root = api.open("mock", "root").await;
    let child = api.open_below(&root, "mock", "child").await;
    api.start(&child, &mock(json!({ "latency_ms": 60_000 }))).await;
    assert_eq!(api.close(&root).await["closed_descendants"], 1);
    server.crash().await;
    for id in [&root, &child] {
        assert_eq!(api.get_run(id).await["state"], "closed");
        api.post(&format!("/v1/_resident/{id}/send"), json!({ "prompt": "late" })).await.refused(409, "run_ended");
    }
    server.stop().await;
}

#[tokio::test]
async fn everything_acknowledged_is_there_after_kills_at_any_moment() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let mut acknowledged = Vec::new();
    for round in 0..8 {
        let sends = async {
            let mut done = Vec::new();
            for number in 0.. {
                let text = format!("{round}/{number}");
                let request = api.request("POST", &format!("/v1/_resident/{id}/send"));
                match api.try_finish(request.json(&json!({ "prompt": text }))).await {
                    Ok(reply) if reply.status == 200 => {
                        done.push((reply.body["turn_id"].as_str().unwrap().to_owned(), text));
                    }
                    _ => break,
                }
            }
            done
        };
        let (done, ()) = tokio::join!(sends, async {
            tokio::time::sleep(std::time::Duration::from_millis(40 + 37 * round)).await;
            server.kill().await;
        });
        acknowledged.extend(done);
        server.restart().await;
    }
    assert!(acknowledged.len() > 8, "{} turns", acknowledged.len());
    for (turn, text) in &acknowledged {
        let envelope = api.poll_turn(&id, turn).await;
        assert_eq!(
            (envelope["outcome"].as_str(), envelope["output"].as_str()),
            (Some("finished"), Some(text.as_str()))
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn the_epoch_grows_with_every_take_over() {
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let mut epochs = vec![api.get_run(&id).await["epoch"].as_u64().unwrap()];
    for _ in 0..3 {
        server.crash().await;
        api.send(&id, "again").await;
        epochs.push(api.get_run(&id).await["epoch"].as_u64().unwrap());
    }
    assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "{epochs:?}");
    server.stop().await;
}
