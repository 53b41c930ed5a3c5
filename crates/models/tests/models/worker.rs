//! Programs in a process of their own.

use std::path::PathBuf;
use std::time::Duration;

use hearth_models::{BuiltInModels, BuiltInOptions, CodeBounds, ErrorKind, StepInput, StopReason, serve_code_worker};
use serde_json::json;

use crate::stage::{Deltas, IN_WORKER, begin, coded, context, echo, ok, play_on, result, worker};

#[test]
#[ignore = "it is the worker process of the other tests"]
fn the_worker_process() {
    serve_code_worker().unwrap();
    std::process::exit(0);
}

/// Every test of programs, once more.
#[test]
fn programs_in_a_worker_keep_every_promise_of_programs_on_threads() {
    for tests in ["code::", "replay::", "bounds::", "eviction::"] {
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args([tests, "--test-threads", "2"])
            .env(IN_WORKER, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && !said.contains("running 0 tests"), "{tests} {said}");
    }
}

fn in_worker(bounds: CodeBounds) -> BuiltInModels {
    BuiltInModels::new(BuiltInOptions { code: bounds, code_worker: Some(worker()), ..BuiltInOptions::default() })
}

/// The workers of programs that have `mark` in their environment.
fn workers(mark: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let marked = |pid: &u32| {
        let environment = std::fs::read(PathBuf::from(format!("/proc/{pid}/environ"))).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&format!("MARK={mark}"))
    };
    pids.filter(marked).collect()
}

fn marked(mark: &str, bounds: CodeBounds) -> BuiltInModels {
    let mut worker = worker();
    worker.environment.push(("MARK".into(), mark.into()));
    BuiltInModels::new(BuiltInOptions { code: bounds, code_worker: Some(worker), ..BuiltInOptions::default() })
}

fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    tokio::time::timeout(Duration::from_secs(30), async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn programs_whose_worker_died_while_they_waited_run_again_and_finish() {
    let models = marked("waiting", CodeBounds::default());
    let code = "function run(input) { console.log('once'); return input + Agent({}).n + Agent({}).n }";
    let answer =
        |number| StepInput { results: vec![result(number, ok(json!({ "n": number })))], ..StepInput::default() };
    let mut turns = Vec::new();
    for index in 0..3 {
        let mut turn = begin(&models, context(&coded(code), &index.to_string())).unwrap();
        let deltas = Deltas::default();
        turn.step(StepInput::default(), &deltas).await.unwrap();
        turns.push((turn, deltas));
    }
    for number in 0..2 {
        let alive = workers("waiting");
        // Later a program may have one alone: it was on its way to the worker that died.
        assert!(alive.len() == 1 || number > 0, "they share one");
        alive.into_iter().for_each(kill);
        until("it is dead", || workers("waiting").is_empty()).await;
        for (index, (turn, deltas)) in turns.iter_mut().enumerate() {
            let step = turn.step(answer(number), deltas).await.unwrap();
            match step.stop {
                StopReason::ToolUse => assert_eq!(number, 0),
                _ => assert_eq!((number, step.text), (1, format!("{index}01"))),
            }
            assert_eq!(deltas.thinking(), "once\n");
        }
    }
}

#[tokio::test]
async fn a_program_whose_worker_dies_under_it_is_tried_once_more_alone() {
    let models = marked("computing", CodeBounds { cpu: Duration::from_secs(60), ..CodeBounds::default() });
    let code = "function run() { console.log('again?'); for (;;); }";
    let mut turn = begin(&models, context(&coded(code), "")).unwrap();
    let deltas = Deltas::default();
    let mut step = Box::pin(turn.step(StepInput::default(), &deltas));
    let killer = async {
        let mut killed = Vec::new();
        for _ in 0..2 {
            until("a worker", || workers("computing").iter().any(|pid| !killed.contains(pid))).await;
            until("it computes", || deltas.thinking() == "again?\n").await;
            let pid = workers("computing").into_iter().find(|pid| !killed.contains(pid)).unwrap();
            kill(pid);
            killed.push(pid);
        }
    };
    let (stepped, ()) = tokio::join!(&mut step, killer);
    let error = stepped.unwrap_err();
    assert!(error.kind == ErrorKind::Agent && error.message.contains("makes the interpreter crash"), "{error}");
    assert_eq!(deltas.thinking(), "again?\n", "what was said is not said twice");
}

#[tokio::test]
async fn a_program_that_crashes_the_interpreter_fails_its_turn_alone() {
    let crashing = r#"function run() { const o = {}; for (let i = 0; ; i++) o["k" + i] = 1 }"#;
    let steady = "function run() { return 'steady' + Agent({ n: 1 }).n }";
    let mut crashed = 0;
    for spare in 0..10 {
        let models = in_worker(CodeBounds { memory_bytes: 700_000 + spare * 50_021, ..CodeBounds::default() });
        let mut bystander = begin(&models, context(&coded(steady), "")).unwrap();
        bystander.step(StepInput::default(), &Deltas::default()).await.unwrap();
        let error = play_on(&models, context(&coded(crashing), ""), echo).await.ending.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Agent, "{error}");
        crashed += usize::from(error.message.contains("crash"));
        let input = StepInput { results: vec![result(0, ok(json!({ "n": 1 })))], ..StepInput::default() };
        assert_eq!(bystander.step(input, &Deltas::default()).await.unwrap().text, "steady1");
    }
    assert!(crashed > 0, "this interpreter no longer crashes here: find another program, or be glad");
}

#[tokio::test]
async fn a_worker_goes_with_its_models_and_with_a_program_that_cannot_be_stopped() {
    let models = marked("goes", CodeBounds { unresponsive: Duration::from_millis(300), ..CodeBounds::default() });
    let endless = "function run() { Array.prototype.reverse.call({ length: 2 ** 53 - 1 }) }";
    let error = play_on(&models, context(&coded(endless), ""), echo).await.ending.unwrap_err();
    assert!(error.message.contains("one built-in operation"), "{error}");
    until("the worker is killed", || workers("goes").is_empty()).await;
    let played = play_on(&models, context(&coded("function run() { return 'on' }"), ""), echo).await;
    assert_eq!((played.text(), workers("goes").len()), ("on", 1));
    drop(models);
    until("the worker is gone", || workers("goes").is_empty()).await;
}
