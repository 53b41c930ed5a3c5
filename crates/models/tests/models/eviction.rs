//! More programs than may live at once.

use std::num::NonZeroUsize;
use std::time::Duration;

use hearth_models::{CodeBounds, ModelTurn, StepInput, StopReason};
use serde_json::json;

use crate::stage::{Deltas, begin, bounded, coded, context, ok, result};

const CODE: &str = r#"
    function run(input) {
        let sum = Number(input);
        for (let n = 0; n < 4; n++) { console.log("before", n); sum += Agent({ n, sum }).add + Math.floor(Math.random()) }
        return sum;
    }"#;

fn tight(live: usize, computing: usize) -> CodeBounds {
    let (live, computing) = (NonZeroUsize::new(live).unwrap(), NonZeroUsize::new(computing).unwrap());
    CodeBounds { live, computing, ..CodeBounds::default() }
}

async fn calls(turn: &mut Box<dyn ModelTurn>, input: StepInput, deltas: &Deltas) -> bool {
    turn.step(input, deltas).await.unwrap().stop == StopReason::ToolUse
}

fn answer(number: usize) -> StepInput {
    StepInput { results: vec![result(number, ok(json!({ "add": 10 })))], ..StepInput::default() }
}

#[tokio::test]
async fn at_the_vm_bound_waiting_programs_are_evicted_and_still_finish() {
    for (live, computing) in [(1, 1), (2, 1), (3, 2)] {
        let models = bounded(tight(live, computing));
        let mut turns: Vec<_> = (0..8)
            .map(|n| (begin(&models, context(&coded(CODE), &n.to_string())).unwrap(), Deltas::default()))
            .collect();
        for (turn, deltas) in &mut turns {
            assert!(calls(turn, StepInput::default(), deltas).await);
        }
        for number in 0..3 {
            // The later ones first: those that are still in memory, and those that are not.
            for (turn, deltas) in turns.iter_mut().rev() {
                assert!(calls(turn, answer(number), deltas).await);
            }
        }
        for (index, (turn, deltas)) in turns.iter_mut().enumerate() {
            let step = turn.step(answer(3), deltas).await.unwrap();
            assert_eq!((step.text, step.stop), ((index + 40).to_string(), StopReason::EndTurn));
            assert_eq!(
                deltas.thinking(),
                "before 0\nbefore 1\nbefore 2\nbefore 3\n",
                "said once, however often it ran"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_turns_at_once_finish_in_a_few_places() {
    let models = std::sync::Arc::new(bounded(tight(3, 2)));
    let mut all = tokio::task::JoinSet::new();
    for index in 0..60 {
        let models = models.clone();
        all.spawn(async move {
            let mut turn = begin(&models, context(&coded(CODE), &index.to_string())).unwrap();
            let deltas = Deltas::default();
            let mut input = StepInput::default();
            for number in 0..4 {
                assert!(calls(&mut turn, std::mem::take(&mut input), &deltas).await);
                tokio::time::sleep(Duration::from_millis(index % 7)).await;
                input = answer(number);
            }
            (index, turn.step(input, &deltas).await.unwrap().text)
        });
    }
    while let Some(finished) = all.join_next().await {
        let (index, text) = finished.unwrap();
        assert_eq!(text, (index + 40).to_string());
    }
}

#[tokio::test]
async fn a_turn_dropped_while_it_waits_for_a_place_takes_none() {
    let models = bounded(tight(1, 2));
    let spin = "function run() { for (;;); }";
    let mut spinning = begin(&models, context(&coded(spin), "")).unwrap();
    let deltas = Deltas::default();
    let mut spin = Box::pin(spinning.step(StepInput::default(), &deltas));
    let mut waiting = begin(&models, context(&coded("function run() { return 'in' }"), "")).unwrap();
    let mut wait = Box::pin(waiting.step(StepInput::default(), &deltas));
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut spin).await.is_err());
    assert!(tokio::time::timeout(Duration::from_millis(50), &mut wait).await.is_err(), "the only place is taken");
    drop(wait);
    drop(spin);
    let mut next = begin(&models, context(&coded("function run() { return 'in' }"), "")).unwrap();
    assert_eq!(next.step(StepInput::default(), &deltas).await.unwrap().text, "in");
}
