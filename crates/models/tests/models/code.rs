//! What a program sees and does.

use std::time::Duration;

use hearth_models::{CodeBounds, ErrorKind, StepInput, StopReason, ToolRequest};
use hearth_types::{Fault, FaultCode, ToolOutput};
use serde_json::json;

use crate::stage::{Deltas, begin, bounded, coded, context, echo, models, ok, play, play_on, run};

#[tokio::test]
async fn what_run_returns_is_the_output() {
    for (code, output) in [
        ("function run(input) { return input + '!' }", "hi ü!"),
        ("async function run(input) { return await input }", "hi ü"),
        ("const run = async (input) => { await null; return [input] }", r#"["hi ü"]"#),
        ("function run() {}", ""),
        ("function run() { return null }", "null"),
        ("function run() { return { b: 1, a: [true, 0.5] } }", r#"{"b":1,"a":[true,0.5]}"#),
        ("function run() { return 1e21 }", "1e+21"),
        ("function run() { return 'a\\ud800b' }", "a\u{fffd}b"),
        ("let n = 0; Promise.resolve().then(() => { n = 5 }); async function run() { await null; return n }", "5"),
    ] {
        let played = run(code, "hi ü").await;
        assert_eq!(played.text(), output, "{code}");
        assert_eq!(played.ending.unwrap().stop, StopReason::EndTurn);
    }
}

#[tokio::test]
async fn an_uncaught_exception_fails_the_turn_with_its_message_and_stack() {
    let code = "function inner() { throw new TypeError('no such thing') }\nfunction run() {\n  inner();\n}";
    let played = run(code, "").await;
    let error = played.error();
    assert_eq!(error.kind, ErrorKind::Agent);
    for part in ["TypeError: no such thing", "at inner (agent.js:1", "at run (agent.js:3"] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    for (code, part) in [
        ("function run() { throw 'just text' }", "just text"),
        ("async function run() { await null; throw new Error('late') }", "late"),
        ("function run() { throw { toString() { throw 1 } } }", "that has no text"),
        ("function run() { throw Symbol('s') }", "that has no text"),
        ("function run() { throw null }", "the program threw null"),
        ("function run( { }", "SyntaxError"),
        ("function start() {}", "defines no function `run(input)`"),
        ("const run = 5", "defines no function `run(input)`"),
        ("function run() { return new Promise(() => {}) }", "nothing will settle"),
        ("function run() { return () => 1 }", "returned a function, which is not JSON"),
        ("function run() { return 1n }", "BigInt"),
        ("function run() { setTimeout(run, 1) }", "setTimeout"),
    ] {
        let played = run(code, "").await;
        assert!(played.error().message.contains(part), "{code}: {}", played.error());
        assert_eq!(played.error().kind, ErrorKind::Agent);
    }
}

#[tokio::test]
async fn every_tool_is_a_function_that_returns_the_results_content() {
    let code = r#"
        async function run() {
            const opened = mcp__sandbox__sandbox_open({ workspace: "w" });
            const exec = await mcp__sandbox__sandbox_exec({ session_id: opened.workspace, command: "ü" });
            const child = Agent({ op: "spawn", prompt: exec.command });
            const other = tool("mcp__files__read", { depth: [child.prompt] });
            const none = tool("clock");
            return { other, none };
        }"#;
    let played = play(&coded(code), "", echo).await;
    assert_eq!(played.text(), r#"{"other":{"depth":["ü"]},"none":{}}"#);
    let names: Vec<&str> = played.calls().iter().map(|call| call.name.as_str()).collect();
    assert_eq!(
        names,
        ["mcp__sandbox__sandbox_open", "mcp__sandbox__sandbox_exec", "Agent", "mcp__files__read", "clock"]
    );
    assert!(played.recorded.iter().all(|recorded| recorded.step.tool_calls.len() == 1), "one call is one step");
    let code = "function run() { return ['poll','kill','write','read','touch','close','close_run','list']
        .map((name) => typeof globalThis['mcp__sandbox__sandbox_' + name]).join() }";
    assert_eq!(run(code, "").await.text(), ["function"; 8].join(","));
    let text = play(&coded("function run() { return Agent({}) }"), "", |_| ok(json!("plain ü"))).await;
    assert_eq!(text.text(), "plain ü");
}

#[tokio::test]
async fn an_error_result_is_thrown_with_its_fields_and_can_be_caught() {
    let fault = Fault::new(FaultCode::QueueFull, "16 prompts wait").with_details(json!({ "waiting": 16 }));
    let code = r#"
        function run() {
            try { Agent({ op: "send" }) } catch (e) {
                return [e instanceof Error, e.name, e.code, e.message, e.retryable, e.retry_after_ms, e.details.waiting];
            }
        }"#;
    let played = play(&coded(code), "", |_| ToolOutput::error(&fault)).await;
    assert_eq!(played.text(), r#"[true,"ToolError","queue_full","16 prompts wait",true,1000,16]"#);
    let uncaught = play(&coded("function run() { Agent({}) }"), "", |_| ToolOutput::error(&fault)).await;
    for part in ["ToolError: 16 prompts wait", "at run (agent.js:1"] {
        assert!(uncaught.error().message.contains(part), "{}", uncaught.error());
    }
    let odd = ToolOutput { content: json!("broken"), is_error: true };
    let code = "function run() { try { Agent({}) } catch (e) { return e.code + e.message } }";
    assert_eq!(play(&coded(code), "", |_| odd.clone()).await.text(), "internalbroken");
}

#[tokio::test]
async fn arguments_that_are_no_object_throw_before_anything_is_called() {
    for arguments in ["5", "'text'", "[1]", "null", "() => 1", "{ a: '\\ud800' }", "{ a: 1n }"] {
        let code = format!("function run() {{ try {{ Agent({arguments}) }} catch (e) {{ return e.name }} }}");
        assert_eq!(run(&code, "").await.text(), "TypeError", "{arguments}");
    }
}

#[tokio::test]
async fn console_output_is_thinking_of_its_step() {
    let code = r#"
        function run() {
            console.log("one", 2, { a: [1] }, null, undefined, Symbol("s"), run);
            Agent({});
            console.warn("two");
            console.error(new RangeError("three"));
            const round = {}; round.round = round;
            console.info(round, "a\ud800");
            return "done";
        }"#;
    let played = play(&coded(code), "", echo).await;
    let first = "one 2 {\"a\":[1]} null undefined Symbol(s) [Function: run]\n";
    assert_eq!(played.recorded[0].step.thinking, first);
    let deltas = played.deltas.thinking();
    let last = played.ending.unwrap().thinking;
    assert_eq!(deltas, format!("{first}{last}"));
    assert!(last.starts_with("warn: two\nerror: RangeError: three\n    at run"), "{last}");
    assert!(last.ends_with("[object Object] a\u{fffd}\n"), "{last}");
}

#[tokio::test]
async fn steered_input_is_refused_aloud() {
    let mut turn = begin(&models(), context(&coded("function run() { return 1 }"), "")).unwrap();
    let input = StepInput { steered: vec!["left".to_owned()], ..StepInput::default() };
    let step = turn.step(input, &Deltas::default()).await.unwrap();
    assert_eq!(step.thinking, "[a program takes no input while it runs; dropped: left]\n");
}

#[tokio::test]
async fn calls_happen_in_the_programs_order_even_in_promise_all() {
    let code = r#"
        async function one(n) { return (await Agent({ n })).n }
        async function run() { return await Promise.all([one(1), one(2), one(3)]) }"#;
    assert_eq!(play(&coded(code), "", echo).await.text(), "[1,2,3]");
}

#[tokio::test]
async fn nothing_shows_the_host() {
    let code = r#"
        function run() {
            const missing = ["WeakRef", "FinalizationRegistry", "std", "os", "require", "process", "fetch", "setTimeout"];
            const found = missing.filter((name) => name in globalThis);
            const host = new Date(0).constructor === Date && Object.getPrototypeOf(Date) === Function.prototype;
            let waited;
            try { Atomics.wait(new Int32Array(new SharedArrayBuffer(8)), 0, 0, 1000) } catch (e) { waited = e.name }
            return [found, host, waited];
        }"#;
    assert_eq!(run(code, "").await.text(), r#"[[],true,"TypeError"]"#);
}

#[tokio::test]
async fn what_a_tool_refused_keeps_its_code_when_the_program_lets_it_pass() {
    let fault = || Fault::new(FaultCode::QuotaExceeded, "no room");
    let refuse = |_: &ToolRequest| ToolOutput::error(&fault());
    for (code, expected) in [
        ("function run() { return Agent({}) }", Some(FaultCode::QuotaExceeded)),
        ("async function run() { await null; return Agent({}) }", Some(FaultCode::QuotaExceeded)),
        ("function run() { try { Agent({}) } catch (e) { throw e } }", Some(FaultCode::QuotaExceeded)),
        ("function run() { const e = new Error('full'); e.code = 'queue_full'; throw e }", Some(FaultCode::QueueFull)),
        ("function run() { try { Agent({}) } catch (e) { throw new Error(e.message) } }", None),
        ("function run() { throw { code: 'no such code' } }", None),
        ("function run() { throw { code: 7 } }", None),
        ("function run() { throw { get code() { throw 1 } } }", None),
        ("function run() { throw 'text' }", None),
    ] {
        let played = play(&coded(code), "", refuse).await;
        assert_eq!(played.error().kind, ErrorKind::Agent, "{code}");
        assert_eq!(played.error().code(), expected, "{code}");
    }
}

#[tokio::test]
async fn promises_without_an_end_are_stopped_and_told_as_what_they_are() {
    let bounds = CodeBounds { memory_bytes: 8 << 20, cpu: Duration::from_millis(700), ..CodeBounds::default() };
    let models = bounded(bounds);
    for code in [
        "const next = () => Promise.resolve().then(next); function run() { return next() }",
        "async function run() { for (;;) await null }",
        "const next = async () => { await null; return next() }; function run() { return next() }",
        "const next = async () => { await null; await next() }; function run() { return next() }",
    ] {
        let played = play_on(&models, context(&coded(code), ""), echo).await;
        let message = &played.error().message;
        let bound = message.contains("computed for") || message.contains("out of memory");
        assert!(bound && !message.starts_with("`run` awaits"), "{code}: {message}");
    }
    let settles_nothing = "function run() { return new Promise(() => {}) }";
    let played = play_on(&models, context(&coded(settles_nothing), ""), echo).await;
    assert!(played.error().message.starts_with("`run` awaits a promise"), "{}", played.error());
}
