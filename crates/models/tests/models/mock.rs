use std::time::Duration;

use hearth_models::{ErrorKind, StepInput};
use hearth_types::{Fault, FaultCode, ToolOutput};
use serde_json::json;
use tokio::time::Instant;

use crate::stage::{Deltas, Played, begin, coded, context, echo, journaled, models, named, ok, play, play_on};

async fn mock(prompt: &str) -> Played {
    play(&named("mock"), prompt, echo).await
}

#[tokio::test]
async fn any_other_prompt_is_output_as_it_is() {
    for prompt in ["", "hello", "{", "[1]", r#"{"mock": {}, "more": 1}"#, r#"{"mocks": {}}"#, "{\"mock\": {}} x", "ü\n"]
    {
        assert_eq!(mock(prompt).await.text(), prompt);
    }
    let prompt = r#" {"mock": {}} "#;
    assert_eq!(mock(prompt).await.text(), prompt, "absent output is the prompt");
}

#[tokio::test(start_paused = true)]
async fn the_pieces_come_evenly_and_the_last_at_the_end() {
    let mut turn = begin(
        &models(),
        context(&named("mock"), r#"{"mock": {"latency_ms": 900, "output": "abcdefgü", "chunks": 3}}"#),
    )
    .unwrap();
    let (deltas, start) = (Deltas::default(), Instant::now());
    let mut step = std::pin::pin!(turn.step(StepInput::default(), &deltas));
    for (ms, seen) in [(299, ""), (301, "abc"), (599, "abc"), (601, "abcdef"), (899, "abcdef")] {
        let until = start + Duration::from_millis(ms);
        assert!(tokio::time::timeout_at(until, &mut step).await.is_err());
        assert_eq!(deltas.texts().concat(), seen, "after {ms} ms");
    }
    let step = step.await.unwrap();
    assert_eq!(start.elapsed().as_millis(), 900);
    assert_eq!((step.text.as_str(), deltas.texts()), ("abcdefgü", vec!["abc".into(), "def".into(), "gü".into()]));
}

#[tokio::test]
async fn without_latency_or_chunks_there_is_one_piece_at_once() {
    let played = mock(r#"{"mock": {"output": "hello"}}"#).await;
    assert_eq!((played.text(), played.deltas.texts()), ("hello", vec!["hello".to_owned()]));
    let usage = played.ending.unwrap().usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (8, 2));
}

#[tokio::test]
async fn filler_has_exactly_the_size_and_no_cut_character() {
    for bytes in [0, 1, 44, 1_000, 16 * 1024 * 1024] {
        let played = mock(&json!({ "mock": { "output_bytes": bytes } }).to_string()).await;
        assert_eq!(played.text().len(), bytes);
        let again = mock(&json!({ "mock": { "output_bytes": bytes } }).to_string()).await;
        assert_eq!(played.text(), again.text());
    }
    let played = mock(r#"{"mock": {"output": "aü", "output_bytes": 5, "chunks": 5}}"#).await;
    assert_eq!((played.text(), played.deltas.texts().concat()), ("aüa.", "aüa.".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_failing_turn_fails_after_its_latency_with_its_message() {
    let start = Instant::now();
    let played = mock(r#"{"mock": {"latency_ms": 250, "fail": "no luck"}}"#).await;
    assert_eq!((played.error().message.as_str(), start.elapsed().as_millis()), ("no luck", 250));
    assert_eq!(played.deltas.texts(), [""; 0]);
    let played = mock(r#"{"mock": {"fail": "no luck", "output": "half of it", "chunks": 2}}"#).await;
    assert_eq!((played.error().message.as_str(), played.deltas.texts().concat()), ("no luck", "half of it".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_called_first_and_its_result_is_the_output() {
    let prompt =
        r#"{"mock": {"latency_ms": 100, "chunks": 2, "tool": {"name": "echo", "arguments": {"a": [1, "ü"]}}}}"#;
    let start = Instant::now();
    let played = mock(prompt).await;
    let call = played.calls()[0];
    assert_eq!((call.name.as_str(), &call.arguments), ("echo", &json!({ "a": [1, "ü"] })));
    assert_eq!((played.text(), start.elapsed().as_millis()), (r#"{"a":[1,"ü"]}"#, 100));
    assert_eq!(played.deltas.texts().len(), 2);

    let text = play(&named("mock"), r#"{"mock": {"tool": {"name": "t"}}}"#, |_| ok(json!("plain"))).await;
    assert_eq!(text.text(), "plain");
    let refusal = ToolOutput::error(&Fault::new(FaultCode::ToolRefused, "not you"));
    let text = play(&named("mock"), r#"{"mock": {"tool": {"name": "t"}}}"#, |_| refusal.clone()).await;
    assert!(text.text().contains("tool_refused") && text.text().contains("not you"), "{}", text.text());
}

#[tokio::test]
async fn a_resumed_turn_uses_the_recorded_result() {
    let prompt = r#"{"mock": {"tool": {"name": "echo", "arguments": {"a": 1}}}}"#;
    let played = mock(prompt).await;
    let mut resumed = context(&named("mock"), prompt);
    resumed.recorded = journaled(&played.recorded);
    let resumed = play_on(&models(), resumed, |_| panic!("not again")).await;
    assert_eq!(resumed.text(), played.text());
}

#[tokio::test]
async fn steered_input_is_seen() {
    let mut turn = begin(&models(), context(&named("mock"), "hello")).unwrap();
    let deltas = Deltas::default();
    let input = StepInput { steered: vec!["look left".to_owned()], ..StepInput::default() };
    let step = turn.step(input, &deltas).await.unwrap();
    assert_eq!((step.text.as_str(), step.thinking.as_str()), ("hello", "steered: look left\n"));
    assert_eq!(deltas.thinking(), step.thinking);
}

#[tokio::test]
async fn input_that_was_steered_before_a_crash_is_seen_after_it() {
    let agents = [
        (named("mock"), r#"{"mock": {"tool": {"name": "echo"}}}"#),
        (named("dev/exec"), "{}"),
        (coded("function run() { Agent({}) }"), ""),
    ];
    for (agent, prompt) in agents {
        let mut resumed = context(&agent, prompt);
        resumed.recorded = play(&agent, prompt, |_| ok(json!({ "session_id": "sbx_1" }))).await.recorded;
        resumed.recorded[0].steered = vec!["look left".to_owned()];
        let thinking = play_on(&models(), resumed, echo).await.ending.unwrap().thinking;
        assert!(thinking.contains("look left"), "{}: {thinking}", agent.name);
    }
}

#[tokio::test]
async fn a_bad_script_is_refused_with_the_field_and_what_it_may_hold() {
    for (script, says) in [
        (r#"{"latency": 5}"#, ["unknown field `latency`", "latency_ms"]),
        (r#"{"latency_ms": "soon"}"#, ["`mock.latency_ms`", "0 to 86400000"]),
        (r#"{"latency_ms": -1}"#, ["`mock.latency_ms`", "0 to 86400000"]),
        (r#"{"latency_ms": 86400001}"#, ["`mock.latency_ms`: it is 86400001", "0 to 86400000"]),
        (r#"{"chunks": 0}"#, ["`mock.chunks`: it is 0", "1 to 10000"]),
        (r#"{"output_bytes": 16777217}"#, ["`mock.output_bytes`", "16777216"]),
        (r#"{"output": 5}"#, ["`mock.output`", "a string"]),
        (r#"{"fail": true}"#, ["`mock.fail`", "a string"]),
        (r#"{"tool": {}}"#, ["`mock.tool", "`name`"]),
        (r#"{"tool": {"name": "x", "arguments": 3}}"#, ["`mock.tool.arguments`", "`arguments`, an object"]),
        (r#"{"tool": {"name": "x", "args": {}}}"#, ["unknown field `args`", "`arguments`"]),
        (r#""text""#, ["`mock`", "Example"]),
    ] {
        let played = mock(&format!(r#"{{"mock": {script}}}"#)).await;
        let error = played.error();
        assert_eq!(error.kind, ErrorKind::Invalid, "{script}");
        assert!(says.iter().all(|part| error.message.contains(part)), "{script}: {error}");
    }
}
