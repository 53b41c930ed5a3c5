//! What an earlier release wrote.

use hearth_tests::Options;
use serde_json::json;

/// The ids that the keys `open-root` and `open-child` gave.
const ROOT: &str = "run_b03683764054be2d3a0cdb7ba1a03619";
const CHILD: &str = "run_888ba3649d64f0b2728a2d4484937639";

#[tokio::test]
async fn the_journal_of_release_0_1_0_is_opened_and_its_turns_go_on() {
    let server = Options::default().journal("testdata/journal-0.1.0.db").start().await;
    let api = server.api();
    let ends = [(ROOT, "last-root", "root goes on"), (CHILD, "last-child", "grandchild")];
    for (id, key, output) in ends {
        let envelope = api.get(&format!("/v1/_resident/{id}?timeout_ms=30000")).await.ok();
        assert_eq!(
            (envelope["outcome"].as_str(), envelope["state"].as_str()),
            (Some("finished"), Some("awaiting_input"))
        );
        assert!(envelope["output"].as_str().unwrap().contains(output), "{envelope}");
        let path = format!("/v1/runs/{id}/input");
        api.post_with_key(&path, key, json!({ "text": "another body" })).await.refused(409, "conflict");
        assert_eq!(api.send(id, "and on").await["output"], "and on");
    }
    let path = format!("/v1/_resident/{CHILD}/send");
    let repeated = api.post_with_key(&path, "send-child", json!({ "prompt": "from 0.1" })).await;
    assert!(repeated.is_replay(), "{}", repeated.text);
    assert_eq!(repeated.ok()["output"], "from 0.1");
    let transcript = api.get("/v1/sessions/sess_of_0_1/transcript").await.ok();
    assert_eq!(transcript["messages"][1]["content"], "done", "{transcript}");
    let seen = api.stream(CHILD, None).await.until(|event| event.data["output"] == "and on").await;
    assert_eq!(seen.first().and_then(|event| event.id), Some(1), "from its first event on");
    assert_eq!(api.close(ROOT).await["closed_descendants"], 1);
    server.stop().await;
}
