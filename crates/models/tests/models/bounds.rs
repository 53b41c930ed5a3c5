//! Programs that ask for too much.

use std::time::Duration;

use hearth_models::{CodeBounds, ErrorKind};
use serde_json::json;

use crate::stage::{Played, bounded, coded, context, echo, ok, play, play_on, run};

async fn within(bounds: CodeBounds, code: &str) -> Played {
    play_on(&bounded(bounds), context(&coded(code), ""), echo).await
}

fn short() -> CodeBounds {
    CodeBounds { cpu: Duration::from_millis(100), ..CodeBounds::default() }
}

#[tokio::test]
async fn an_endless_loop_is_stopped_at_its_bound() {
    for code in [
        "function run() { for (;;); }",
        "for (;;); function run() {}",
        "function run() { for (;;) { try { for (;;); } catch { } finally { continue } } }",
        "function run() { try { for (;;); } catch { return 'survived' } }",
        "async function run() { for (;;) await null }",
        "function run() { const t = { then(done) { done(t) } }; return Promise.resolve(t) }",
        "function run() { (async () => { for (;;) await null })(); return 'done' }",
        "function run() { return /^(a+)+$/.test('a'.repeat(60) + 'b') }",
        "function run() { throw { toString() { for (;;); } } }",
        "function run() { return { toJSON() { for (;;); } } }",
        "function run() { Array.prototype.forEach.call({ length: 2 ** 53 - 1 }, () => 1) }",
        "function run() { Agent({}); for (;;); }",
        "function run() { Agent({ toJSON() { for (;;); } }) }",
        "Error.prepareStackTrace = () => { for (;;); }; function run() { null.x }",
    ] {
        let played = within(short(), code).await;
        let error = played.error();
        assert!(error.kind == ErrorKind::Agent && error.message.contains("computed for 100ms"), "{code}: {error}");
    }
}

#[tokio::test]
async fn the_processor_time_counts_between_two_calls() {
    let code = "function run() { for (let n = 0; n < 8; n++) { const until = 3e5; for (let i = 0; i < until; i++); Agent({}) } return 'ok' }";
    let bounds = CodeBounds { cpu: Duration::from_secs(2), ..CodeBounds::default() };
    assert_eq!(within(bounds, code).await.text(), "ok");
}

#[tokio::test]
async fn endless_allocation_fails_within_the_memory_bound() {
    for code in [
        "function run() { const all = []; for (;;) all.push('x'.repeat(1000) + all.length) }",
        "globalThis.all = []; async function run() { for (;;) { all.push({ n: all.length }); await null } }",
        "function run() { let text = 'x'; for (;;) { text += text; text.charCodeAt(0) } }",
        "function run() { return new Array(4294967295).fill(0) }",
        "function run() { const map = new Map(); for (let n = 0; ; n++) map.set(n, [n]) }",
        "function run() { return 'x'.repeat(2 ** 29) }",
        "function run() { return new Uint8Array(2 ** 30).length }",
    ] {
        let played = within(CodeBounds { memory_bytes: 16 << 20, ..CodeBounds::default() }, code).await;
        let error = played.error();
        assert_eq!(error.kind, ErrorKind::Agent, "{code}: {error}");
        assert!(error.message.contains("out of memory") && error.message.contains("16 MiB"), "{code}: {error}");
    }
}

/// Where memory is full, the exception that stops a program cannot be made without the ballast: the
/// interpreter would run on, or abort the process inside an async function.
#[tokio::test]
async fn a_program_that_catches_the_end_of_its_memory_is_stopped() {
    for code in [
        "globalThis.all = []; function run() { for (;;) try { for (;;) all.push([all.length]) } catch { } }",
        "globalThis.all = []; async function f(i) { all.push(new Array(10).fill(i)) }
         async function run() { for (;;) { try { for (;;) f(all.length) } catch { } try { await 1 } catch { } } }",
        "globalThis.all = []; async function run() { for (;;) { try { for (;;) all.push((async () => all.length)()) } catch { } } }",
    ] {
        for spare in 0..12 {
            let bounds = CodeBounds { memory_bytes: (2 << 20) + spare * 2_477, ..short() };
            let played = within(bounds, code).await;
            assert_eq!(played.error().kind, ErrorKind::Agent, "{code}");
        }
    }
}

#[tokio::test]
async fn any_memory_bound_ends_in_an_output_or_an_error() {
    let code = r#"
        class Thing { #n; constructor(n) { this.#n = n } get n() { return this.#n } }
        async function* count() { for (let n = 0; n < 200; n++) yield new Thing(n) }
        async function run() {
            const seen = new Map(); let text = "";
            for await (const thing of count()) { seen.set(thing.n, JSON.parse(`{"n":[${thing.n}]}`)); text += thing.n }
            console.log(text.replace(/1+/g, (m) => m.length), new Date().toISOString());
            try { Agent({ big: text.repeat(20) }) } catch (e) { seen.set(-1, e) }
            return [...seen.keys()].sort().length + [1, 2, 3].map((x) => x ** 2).join();
        }"#;
    let (mut finished, mut failed) = (0, 0);
    for memory_bytes in (64 << 10..1_400 << 10).step_by(9_973) {
        match within(CodeBounds { memory_bytes, ..CodeBounds::default() }, code).await.ending {
            Ok(step) => {
                assert_eq!(step.text, "2001,4,9");
                finished += 1;
            }
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Agent, "{error}");
                failed += 1;
            }
        }
    }
    assert!(finished > 5 && failed > 5, "{finished} finished, {failed} failed");
}

#[tokio::test]
async fn deep_recursion_gives_a_clean_error() {
    for code in [
        "function run() { return run() }",
        "async function run() { return await run() }",
        "function run() { let a = []; for (let n = 0; n < 100000; n++) a = [a]; return a }",
        "function run() { return JSON.parse('['.repeat(100000)) }",
        "function run() { return eval('['.repeat(100000)) }",
        "function run() { let a = []; for (let n = 0; n < 100000; n++) a = [a]; return String(a.flat(Infinity)) }",
        "function run() { let p = {}; for (let n = 0; n < 20000; n++) p = new Proxy(p, {}); return p.x }",
        "function run() { let a = {}; for (let n = 0; n < 9000; n++) a = { a }; Agent(a) }",
    ] {
        let played = run(code, "").await;
        let message = &played.error().message;
        assert!(message.contains("384 KiB of stack"), "{code}: {message}");
    }
    let caught =
        "function down() { try { return down() } catch (e) { return e.name } } function run() { return down() }";
    assert_eq!(run(caught, "").await.text(), "RangeError");
    // Near the end of the stack, in every kind of function.
    let edge = "async function a() {} function* g() { yield 1 }
        function down() { try { down(1, 2, 3) } catch { } a(); a(1); (async () => { throw 1 })().catch(() => 1); [...g()] }
        function run() { down(); return 'ok' }";
    let played = run(edge, "").await;
    assert!(played.ending.is_ok() || played.error().message.contains("stack"), "{:?}", played.ending);
    let nested = "function run() { let a = {}; for (let n = 0; n < 200; n++) a = { a }; try { Agent(a) } catch (e) { return e.message } }";
    assert!(run(nested, "").await.text().contains("recursion limit"), "deeper than the journal takes");
}

#[tokio::test]
async fn sizes_are_bounded_and_the_error_says_by_what() {
    let bounds = || CodeBounds {
        argument_bytes: 100,
        result_bytes: 100,
        output_bytes: 100,
        log_bytes: 100,
        record_bytes: 250,
        calls: 4,
        ..CodeBounds::default()
    };
    let long = "'ü'.repeat(60)";
    let played = within(bounds(), &format!("function run() {{ return {long} }}")).await;
    assert!(played.error().message.contains("120 bytes; at most 100"), "{}", played.error());
    let played = within(bounds(), &format!("function run() {{ Agent({{ a: {long} }}) }}")).await;
    assert!(played.error().message.contains("128 bytes of JSON; at most 100"), "{}", played.error());

    let code = "function run() { try { return Agent({}) } catch (e) { return e.code } }";
    for content in [json!("x".repeat(101)), json!({ "x": "x".repeat(101) })] {
        let played = play_on(&bounded(bounds()), context(&coded(code), ""), |_| ok(content.clone())).await;
        assert_eq!(played.text(), "payload_too_large");
    }
    let code = "function run() { for (;;) Agent({ a: 'x'.repeat(50) }) }";
    let played = within(CodeBounds { calls: 1_000, ..bounds() }, code).await;
    assert!(played.error().message.contains("more than 250 bytes"), "{}", played.error());
    let played = within(bounds(), "function run() { for (;;) { try { Agent({}) } catch { } } }").await;
    assert!(played.error().message.contains("made 4 calls"), "{}", played.error());
    assert_eq!(played.recorded.len(), 4);

    let code = "function run() { for (let n = 0; n < 50; n++) console.log('line ü', n); Agent({}); console.log('on') }";
    let played = within(bounds(), code).await;
    let thinking = &played.recorded[0].step.thinking;
    assert!(thinking.starts_with("line ü 0\nline ü 1\n") && thinking.len() < 200, "{thinking}");
    assert!(thinking.ends_with("\n[console output past 100 bytes is dropped]\n"), "{thinking}");
    assert_eq!(played.ending.unwrap().thinking, "on\n", "each step has its own bound");
}

#[tokio::test]
async fn big_arguments_results_and_outputs_pass() {
    let code = "function run(input) { const all = Agent({ content: input }).content; return all + all.length }";
    let input = "ü".repeat(1 << 20);
    let played = play(&coded(code), &input, echo).await;
    assert_eq!(played.text(), format!("{input}{}", 1 << 20));
}
