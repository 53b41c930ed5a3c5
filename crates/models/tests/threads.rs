//! Threads of code agents, counted: in a process of its own, one property after the other.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "models/stage.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod stage;

use std::time::Duration;

use hearth_models::{BuiltInModels, CodeBounds, StepInput, StopReason};
use stage::{Deltas, begin, bounded, coded, context, models, result};
use tokio::time::Instant;

fn threads() -> usize {
    let named = |entry: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(entry.ok()?.path().join("comm")).ok().filter(|name| name.trim() == "hearth-code")
    };
    std::fs::read_dir("/proc/self/task").unwrap().filter_map(named).count()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    tokio::time::timeout(Duration::from_secs(30), async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{what}: {} threads", threads()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_threads_of_programs_end() {
    dropping_a_turn_ends_its_thread(&models()).await;
    a_finished_program_has_no_thread(&models()).await;
    a_program_that_cannot_be_stopped_fails_its_turn_and_ends_later().await;
    programs_stay_within_their_number().await;
}

async fn dropping_a_turn_ends_its_thread(models: &BuiltInModels) {
    for code in [
        "function run() { Agent({}) }",
        "function run() { try { Agent({}) } finally { for (;;) { try { Agent({}) } catch { } } } }",
        "async function run() { for (;;) { try { await Agent({}) } catch { } } }",
    ] {
        let mut turn = begin(models, context(&coded(code), "")).unwrap();
        let step = turn.step(StepInput::default(), &Deltas::default()).await.unwrap();
        assert_eq!((step.stop, threads()), (StopReason::ToolUse, 1), "{code}");
        drop(turn);
        until("a waiting program ends with its turn", || threads() == 0).await;
    }
    for code in [
        "function run() { for (;;); }",
        "function run() { for (;;) console.log('chatter') }",
        "async function run() { for (;;) { try { for (;;) await 1 } catch { } } }",
    ] {
        let mut turn = begin(models, context(&coded(code), "")).unwrap();
        let deltas = Deltas::default();
        let step = turn.step(StepInput::default(), &deltas);
        assert!(tokio::time::timeout(Duration::from_millis(50), step).await.is_err(), "{code}");
        drop(turn);
        until("a computing program ends with its step", || threads() == 0).await;
    }
}

async fn a_finished_program_has_no_thread(models: &BuiltInModels) {
    for code in ["function run() { return 1 }", "function run() { throw 1 }", "syntax error"] {
        let mut turn = begin(models, context(&coded(code), "")).unwrap();
        drop(turn.step(StepInput::default(), &Deltas::default()).await);
        until("an ended program has no thread", || threads() == 0).await;
    }
}

async fn a_program_that_cannot_be_stopped_fails_its_turn_and_ends_later() {
    let models = bounded(CodeBounds { unresponsive: Duration::from_millis(300), ..CodeBounds::default() });
    // One search of some three thousand million comparisons, inside one built-in operation.
    let code = "function run() { return ('a'.repeat(2 ** 17)).indexOf('a'.repeat(2 ** 15) + 'b') }";
    let mut turn = begin(&models, context(&coded(code), "")).unwrap();
    let started = Instant::now();
    let error = turn.step(StepInput::default(), &Deltas::default()).await.expect_err("it takes too long");
    assert!(error.message.contains("one built-in operation"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(turn);
    assert_eq!(threads(), 1, "the operation goes on");
    until("the thread ends with the operation", || threads() == 0).await;
}

async fn programs_stay_within_their_number() {
    let live = std::num::NonZeroUsize::new(5).unwrap();
    let models = bounded(CodeBounds { live, ..CodeBounds::default() });
    let code = "function run(input) { return input + Agent({}).n }";
    let mut turns = Vec::new();
    for index in 0..40 {
        let mut turn = begin(&models, context(&coded(code), &index.to_string())).unwrap();
        assert_eq!(turn.step(StepInput::default(), &Deltas::default()).await.unwrap().stop, StopReason::ToolUse);
        turns.push(turn);
        // A thread that has left its place needs a moment to be gone.
        until("no more threads than places", || threads() <= 5).await;
    }
    for (index, turn) in turns.iter_mut().enumerate() {
        let output = hearth_types::ToolOutput::ok(serde_json::json!({ "n": "!" }));
        let input = StepInput { results: vec![result(0, output)], ..StepInput::default() };
        assert_eq!(turn.step(input, &Deltas::default()).await.unwrap().text, format!("{index}!"));
    }
    drop(turns);
    until("all ended", || threads() == 0).await;
}
