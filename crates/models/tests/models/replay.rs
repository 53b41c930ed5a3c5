//! Programs that run again on their record.

use hearth_models::{ErrorKind, ToolRequest};
use hearth_types::{Fault, FaultCode, RunId, ToolOutput};
use serde_json::json;

use crate::stage::{STARTED_AT, coded, context, echo, journaled, models, ok, play, play_on, run};

/// Uses the results, the times and the random numbers, and every number that floating point is bad at.
const PROGRAM: &str = r#"
    async function run(input) {
        const seen = [input, Date.now(), Math.random(), new Date().toISOString(), performance.now()];
        console.log("started");
        for (let n = 0; n < 5; n++) {
            const x = Math.random() * 10 ** (n * 40 - 80);
            const answer = await Agent({ n, x, third: 1 / 3, sum: 0.1 + 0.2, at: Date.now() });
            console.log("call", n);
            seen.push(answer, Math.random(), Date.now(), performance.now());
        }
        try { tool("refused", {}) } catch (e) { seen.push(e.message) }
        return seen;
    }"#;

fn tools(request: &ToolRequest) -> ToolOutput {
    match request.name.as_str() {
        "refused" => ToolOutput::error(&Fault::new(FaultCode::ToolRefused, "not this one")),
        _ => ok(json!({ "echo": request.arguments, "tenth": 0.1, "big": 1.7976931348623157e308, "small": 5e-324 })),
    }
}

#[tokio::test]
async fn a_resumed_program_sees_the_recorded_results_times_and_random_numbers() {
    let whole = play(&coded(PROGRAM), "in", tools).await;
    assert_eq!(whole.recorded.len(), 6);
    for kept in 0..=whole.recorded.len() {
        let mut resumed = context(&coded(PROGRAM), "in");
        resumed.recorded = journaled(&whole.recorded[..kept]);
        let mut made = 0;
        let played = play_on(&models(), resumed, |request| {
            made += 1;
            tools(request)
        })
        .await;
        assert_eq!((played.text(), made), (whole.text(), 6 - kept), "after {kept} steps");
        assert_eq!(played.calls(), whole.calls());
        let expected: String = whole.recorded[kept..].iter().map(|recorded| recorded.step.thinking.as_str()).collect();
        assert_eq!(played.deltas.thinking(), expected, "console output comes once");
    }
}

#[tokio::test]
async fn the_time_is_that_of_the_journal() {
    let code = "function run() { const a = Date.now(); Agent({}); const b = Date.now(); Agent({});
        return [a, b, Date.now(), +new Date(), performance.timeOrigin, Date()] }";
    let played = play(&coded(code), "", echo).await;
    let at = STARTED_AT.as_millis();
    let (last, shown) = (at + 2_000, "Sun Nov 30 2025 14:00:02 GMT+0000 (UTC)");
    assert_eq!(played.text(), json!([at, at + 1_000, last, last, at, shown]).to_string());
}

#[tokio::test]
async fn random_numbers_differ_between_runs_and_turns_but_not_between_replays() {
    let code = "function run() { return [Math.random(), Math.random()] }";
    let once = run(code, "").await.text().to_owned();
    assert_eq!(run(code, "").await.text(), once);
    let mut other = context(&coded(code), "");
    other.run_id = RunId::derive(&["another run"]);
    assert_ne!(play_on(&models(), other, echo).await.text(), once);
}

/// Local times are UTC. Runs itself again in another time zone: the interpreter reads the process's.
#[tokio::test]
async fn dates_do_not_depend_on_the_time_zone_of_the_host() {
    if std::env::var_os("TZ").is_none_or(|zone| zone != "America/St_Johns") {
        let again = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "replay::dates_do_not_depend_on_the_time_zone_of_the_host"])
            .env("TZ", "America/St_Johns")
            .output()
            .unwrap();
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
    }
    let code = r#"
        function run() {
            const d = new Date(2024, 5, 15, 13, 30, 5, 7);
            const parsed = ["2024-06-15", "2024-06-15T13:30", "2024-06-15T13:30:00+02:00", "2024-06-15T13:30Z",
                "June 15, 2024 13:30", "15 Jun 2024 13:30 GMT+0200", "Sat Jun 15 2024 13:30:00 GMT+0000 (UTC)", "rubbish"]
                .map((text) => new Date(text).toJSON());
            const set = new Date(d); set.setHours(1, 2); set.setMonth(0);
            return [d.toISOString(), d.getTimezoneOffset(), d.getHours(), d.getDay(), String(d), d.toLocaleString(),
                d.toDateString(), set.toISOString(), parsed, new Date(NaN).toString(), Date.parse("2024-06-15T00:00"),
                new Date(d).getTime() === d.getTime(), Date.length, typeof Date(), d instanceof Date];
        }"#;
    let expected = json!([
        "2024-06-15T13:30:05.007Z",
        0,
        13,
        6,
        "Sat Jun 15 2024 13:30:05 GMT+0000 (UTC)",
        "6/15/2024, 1:30:05 PM",
        "Sat Jun 15 2024",
        "2024-01-15T01:02:05.007Z",
        [
            "2024-06-15T00:00:00.000Z",
            "2024-06-15T13:30:00.000Z",
            "2024-06-15T11:30:00.000Z",
            "2024-06-15T13:30:00.000Z",
            "2024-06-15T13:30:00.000Z",
            "2024-06-15T11:30:00.000Z",
            "2024-06-15T13:30:00.000Z",
            null
        ],
        "Invalid Date",
        1_718_409_600_000_i64,
        true,
        7,
        "string",
        true
    ]);
    assert_eq!(run(code, "").await.text(), expected.to_string());
}

/// Plays `first`, then resumes its record with `second`.
async fn resumed_as(first: &str, second: &str) -> String {
    let whole = play(&coded(first), "", echo).await;
    let mut resumed = context(&coded(second), "");
    resumed.recorded = journaled(&whole.recorded);
    let played = play_on(&models(), resumed, |request| panic!("{request:?}")).await;
    assert_eq!(played.error().kind, ErrorKind::Agent);
    played.error().message.clone()
}

#[tokio::test]
async fn a_diverging_program_fails_with_the_call_that_differs() {
    let first = "function run() { Agent({ a: 1 }); Agent({ b: { c: 2 } }) }";
    let message = resumed_as(first, "function run() { Agent({ a: 1 }); Agent({ b: { c: 3 } }) }").await;
    let expected = r#"diverged: call 2 was Agent({"b":{"c":2}}), now is Agent({"b":{"c":3}})"#;
    assert!(message.starts_with(expected), "{message}");
    let message = resumed_as(first, "function run() { tool('Agents', { a: 1 }) }").await;
    assert!(message.starts_with(r#"diverged: call 1 was Agent({"a":1}), now is Agents({"a":1})"#), "{message}");
}

#[tokio::test]
async fn a_program_cannot_catch_its_divergence() {
    let first = "function run() { Agent({ a: 1 }) }";
    let second = "function run() { for (;;) { try { Agent({ a: 2 }) } catch { } finally { continue } } }";
    assert!(resumed_as(first, second).await.starts_with("diverged: call 1"));
    let second = "async function run() { try { await Agent({ a: 2 }) } catch { return 'fine' } }";
    assert!(resumed_as(first, second).await.starts_with("diverged: call 1"));
}

#[tokio::test]
async fn a_program_that_ends_before_its_record_has_diverged() {
    let first = "function run() { Agent({ a: 1 }); Agent({ a: 2 }) }";
    let message = resumed_as(first, "function run() { Agent({ a: 1 }) }").await;
    assert!(message.contains(r#"call 2 was Agent({"a":2}), now the program ended after 1 calls"#), "{message}");
    let message = resumed_as(first, "function run() { Agent({ a: 1 }); throw new Error('odd') }").await;
    assert!(message.contains("now the program failed after 1 calls: Error: odd"), "{message}");
}

#[tokio::test]
async fn the_order_of_an_arguments_keys_is_not_a_difference() {
    let first = "function run() { return Agent({ a: 1, b: 2 }) }";
    let whole = play(&coded(first), "", echo).await;
    let mut resumed = context(&coded("function run() { return Agent({ b: 2, a: 1 }) }"), "");
    resumed.recorded = journaled(&whole.recorded);
    assert_eq!(play_on(&models(), resumed, echo).await.text(), whole.text());
}
