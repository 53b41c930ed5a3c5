//! Trees of runs that are spread over replicas, and what their turns do outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use hearth_tests::{Api, ClusterOptions, Persistent, eventually, mock, within};
use serde_json::{Value, json};

use super::{owner, owner_other_than, start_at};

fn spread() -> ClusterOptions {
    ClusterOptions::default().variable("HEARTH_PASSIVATE_AFTER_MS", 200)
}

#[tokio::test]
async fn t25_a_tree_over_three_replicas_closes_while_one_of_them_dies() {
    let Some(cluster) = spread().nodes(1).start().await else { return };
    let apis = cluster.apis();
    let root = apis[0].open("mock", "root").await;
    let child = apis[1].open_below(&root, "mock", "child").await;
    let work = json!({ "commands": ["true"], "keep_open": true }).to_string();
    let grandchild = apis[2].open_below(&child, "dev/exec", &work).await;
    let sandboxes = || async { apis[1].get("/v1/_sandboxes").await.ok()["sandboxes"].as_array().unwrap().len() };
    assert_eq!(sandboxes().await, 1);
    let sleeping = json!({ "commands": ["sleep 60"], "timeout_seconds": 90, "keep_open": true }).to_string();
    start_at(&apis[0], &root, 60_000, "").await;
    start_at(&apis[1], &child, 60_000, "").await;
    eventually("the grandchild is in no memory", async || owner(&apis[2], &grandchild).await.is_none().then_some(()))
        .await;
    apis[2].start(&grandchild, &sleeping).await;
    for (id, replica) in [(&root, "replica-0"), (&child, "replica-1"), (&grandchild, "replica-2")] {
        assert_eq!(owner(&apis[0], id).await.as_deref(), Some(replica));
    }
    let client = Persistent::new(vec![apis[0].clone(), apis[2].clone()]);
    let path = format!("/v1/_resident/{root}/close");
    let nothing = json!({});
    let (closed, ()) = tokio::join!(client.post(&path, "close", &nothing), cluster.kill("replica-1"));
    assert_eq!(
        (closed["state"].as_str(), closed["closed_descendants"].as_u64()),
        (Some("closed"), Some(2)),
        "{closed}"
    );
    for id in [&root, &child, &grandchild] {
        assert_eq!(apis[2].get_run(id).await["state"], "closed");
    }
    within(Duration::from_secs(10), "the sandbox is gone", async || {
        let page = apis[2].get("/v1/_sandboxes").await.ok();
        page["sandboxes"].as_array().unwrap().is_empty().then_some(())
    })
    .await;
    let again = apis[0].open("mock", "root").await;
    join_all((0..8).map(|_| apis[2].open_below(&again, "mock", "one of eight"))).await;
    cluster.restart("replica-1").await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_parent_and_its_child_both_lose_their_replicas_and_the_call_returns_the_same_child() {
    let Some(cluster) = spread().start().await else { return };
    let apis = cluster.apis();
    let parent = apis[0].open("mock", "parent").await;
    let spawn =
        json!({ "op": "open", "name": "mock", "prompt": mock(json!({ "latency_ms": 4_000, "output": "made" })) });
    let prompt = mock(json!({ "tool": { "name": "Agent", "arguments": spawn } }));
    let turn = apis[1].start(&parent, &prompt).await;
    let child = eventually("the child is there", async || {
        let rows = apis[1].residents(&format!("parent_run_id={parent}")).await;
        rows.first().map(|row| row["child_run_id"].as_str().unwrap().to_owned())
    })
    .await;
    let first = owner(&apis[2], &parent).await.expect("an owner");
    cluster.kill(&first).await;
    let witness = if first == "replica-2" { &apis[1] } else { &apis[2] };
    owner_other_than(witness, &parent, Some(&first)).await;
    let end = witness.end_of(&parent, &turn).await;
    assert_eq!(end["outcome"], "finished", "{end}");
    let output = end["output"].as_str().unwrap();
    assert!(output.contains(&child) && output.contains("made"), "{output}");
    assert_eq!(witness.residents(&format!("parent_run_id={parent}")).await.len(), 1, "no second child");
    cluster.restart(&first).await;
    cluster.stop().await;
}

/// What one command of a `dev/exec` turn put out.
fn output_of(envelope: &Value) -> String {
    let told: Value = serde_json::from_str(envelope["output"].as_str().unwrap_or_default()).unwrap_or_default();
    assert_eq!(told["results"][0]["exit_code"], 0, "{envelope}");
    told["results"][0]["output"].as_str().unwrap_or_default().to_owned()
}

async fn counted(api: &Api, id: &str) -> String {
    let count = json!({ "commands": ["wc -l < effects"], "keep_open": true }).to_string();
    output_of(&api.send(id, &count).await).trim().to_owned()
}

#[tokio::test]
async fn t21_a_command_of_three_leases_has_its_effect_once_under_load_and_when_its_owner_dies() {
    let options = ClusterOptions::default().nodes(1).variable("HEARTH_REPLICA_LEASE_MS", 1_500);
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    let nothing = json!({ "commands": ["true"], "keep_open": true }).to_string();
    let id = apis[0].open("dev/exec", &nothing).await;
    let slow = json!({ "commands": ["echo effect >> effects; sleep 4.5; echo done"], "keep_open": true }).to_string();
    let over = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..2)
        .map(|_| {
            let over = over.clone();
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop()
                }
            })
        })
        .collect();
    let answer = apis[1].send(&id, &slow).await;
    over.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(output_of(&answer).trim(), "done");
    assert_eq!(counted(&apis[2], &id).await, "1");
    // The same while its owner is killed: the one that takes over finds the command running.
    let turn = apis[1].start(&id, &slow).await;
    eventually("the command runs", async || {
        let run = apis[1].get_run(&id).await;
        (run["state"] == "running").then_some(())
    })
    .await;
    let first = owner(&apis[1], &id).await.expect("an owner");
    cluster.kill(&first).await;
    let witness = if first == "replica-2" { &apis[1] } else { &apis[2] };
    let end = witness.end_of(&id, &turn).await;
    assert_eq!(output_of(&end).trim(), "done", "{end}");
    assert_eq!(counted(witness, &id).await, "2", "one more");
    cluster.restart(&first).await;
    cluster.stop().await;
}

#[tokio::test]
async fn t44_more_blocked_parents_than_slots_for_steps_do_not_starve_their_children() {
    let options = ClusterOptions::default().replicas(2).variable("HEARTH_MAX_CONCURRENT_STEPS", 2);
    let Some(cluster) = options.start().await else { return };
    let apis = cluster.apis();
    let spawn =
        json!({ "op": "spawn", "name": "mock", "prompt": mock(json!({ "latency_ms": 50, "output": "child" })) });
    let waits = json!({ "op": "spawn", "name": "mock",
                        "prompt": mock(json!({ "tool": { "name": "Agent", "arguments": spawn } })) });
    let prompt = mock(json!({ "tool": { "name": "Agent", "arguments": waits } }));
    let answers = join_all((0..24).map(|n| apis[n % 2].run("mock", &prompt))).await;
    for answer in answers {
        assert_eq!(answer["state"], "completed", "{answer}");
        assert!(answer["output"].as_str().unwrap().contains("child"), "{answer}");
    }
    cluster.stop().await;
}
