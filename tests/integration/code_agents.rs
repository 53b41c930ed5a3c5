//! Code agents: programs that call tools, bounded, and resumed after a crash.

use hearth_tests::{Options, Server, eventually};
use serde_json::{Value, json};

/// What every program here begins with. A refused call may come back or be thrown; both are shown.
const PRELUDE: &str = "
function attempt(call) { try { return call() } catch (error) { return { thrown: String(error), error: error } } }
function text(input) { return typeof input === 'string' ? input : input.prompt }
function slow(ms, output) { return JSON.stringify({ mock: { latency_ms: ms, output: output } }) }
";

fn program(tools: &str, body: &str) -> String {
    format!("/*\ntools: [{tools}]\n*/\n{PRELUDE}\nfunction run(input) {{\n{body}\n}}\n")
}

async fn server(body: &str) -> Server {
    Options::default().agent("program.js", &program("Agent", body)).start().await
}

/// The output of a run of the program, decoded.
async fn output(server: &Server, prompt: &str) -> Value {
    let run = server.api().run("program", prompt).await;
    assert_eq!(run["outcome"], "finished", "{run}");
    let text = run["output"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

#[tokio::test]
async fn every_op_of_the_agent_tool_can_be_called() {
    let server = server(
        "
        const seen = {};
        seen.spawn = Agent({ name: 'mock', prompt: 'spawned' });
        seen.parallel = Agent({ op: 'parallel_spawn', spawns: [
            { name: 'mock', prompt: slow(200, 'first') }, { name: 'mock', prompt: 'second' }] });
        seen.open = Agent({ op: 'open', name: 'mock', prompt: 'opened' });
        const child_run_id = seen.open.child_run_id;
        seen.send = Agent({ op: 'send', child_run_id, prompt: 'sent' });
        seen.running = Agent({ op: 'send', child_run_id, prompt: slow(60000, 'x'), timeout_ms: 1 });
        seen.cancel = Agent({ op: 'cancel', child_run_id });
        seen.poll = Agent({ op: 'poll', child_run_id });
        seen.list = JSON.stringify(Agent({ op: 'list' })).includes(child_run_id);
        seen.close = Agent({ op: 'close', child_run_id });
        console.log('done with', child_run_id);
        return JSON.stringify(seen);
        ",
    )
    .await;
    let seen = output(&server, "go").await;
    assert_eq!(seen["spawn"], "spawned");
    let results = seen["parallel"]["results"].as_array().expect("results");
    assert_eq!((results[0]["output"].as_str(), results[1]["output"].as_str()), (Some("first"), Some("second")));
    assert_eq!(seen["open"]["output"], "opened");
    assert_eq!(seen["send"]["output"], "sent");
    assert_eq!(seen["running"]["state"], "running");
    assert_eq!(seen["cancel"]["outcome"], "cancelled");
    assert_eq!(seen["poll"]["turn_id"], seen["running"]["turn_id"]);
    assert_eq!(seen["list"], true);
    assert_eq!(seen["close"]["state"], "closed");
    server.stop().await;
}

#[tokio::test]
async fn a_refused_call_is_an_error_that_the_program_can_handle() {
    let server = server(
        "
        const refusals = [
            attempt(() => Agent({ op: 'poll', child_run_id: 'run_unknown' })),
            attempt(() => Agent({ op: 'dance' })),
            attempt(() => Agent({ name: 'nobody', prompt: 'x' })),
        ];
        return JSON.stringify(refusals);
        ",
    )
    .await;
    let refusals = output(&server, "go").await;
    for (index, code) in ["not_found", "invalid_argument", "not_found"].iter().enumerate() {
        assert!(refusals[index].to_string().contains(code), "{code}: {refusals}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_tool_above_the_ceiling_is_refused() {
    let server = Options::default()
        .agent("program.js", &program("", "return JSON.stringify(attempt(() => Agent({ name: 'mock', prompt: 'x' })))"))
        .start()
        .await;
    let run = server.api().run("program", "go").await;
    let page = server.api().get("/v1/runs").await.ok();
    assert_eq!(page["runs"].as_array().unwrap().len(), 1, "no child was made");
    assert!(run.to_string().contains("tool_refused") || run["outcome"] == "failed", "{run}");
    server.stop().await;
}

#[tokio::test]
async fn t24_a_program_is_resumed_with_its_recorded_results_time_and_randomness() {
    let mut server = server(
        "
        const said = [];
        for (let n = 0; n < 4; n += 1) {
            const word = n + ':' + Math.random() + ':' + Date.now();
            said.push(Agent({ name: 'mock', prompt: slow(500, word) }));
        }
        return JSON.stringify(said);
        ",
    )
    .await;
    let api = server.api();
    let body = json!({ "agent": "program", "prompt": "go", "wait_ms": 1 });
    let run = api.post("/v1/runs", body).await.with_status(202);
    let (id, turn) = (run["run_id"].as_str().unwrap(), run["turn_id"].as_str().unwrap());
    for ended in [1, 3] {
        eventually("some children have ended", async || {
            let page = api.get(&format!("/v1/runs?parent_run_id={id}&state=completed")).await.ok();
            (page["runs"].as_array().unwrap().len() >= ended).then_some(())
        })
        .await;
        server.crash().await;
    }
    let end = api.end_of(id, turn).await;
    assert_eq!((end["state"].as_str(), end["outcome"].as_str()), (Some("completed"), Some("finished")), "{end}");
    let said: Vec<Value> = serde_json::from_str(end["output"].as_str().unwrap()).unwrap();
    let page = api.get(&format!("/v1/runs?parent_run_id={id}")).await.ok();
    let mut children: Vec<Value> =
        page["runs"].as_array().unwrap().iter().map(|run| run["last_turn"]["output"].clone()).collect();
    children.reverse();
    assert_eq!(children, said, "each child once, with the words that the program still knows");
    server.stop().await;
}

#[tokio::test]
async fn a_program_that_throws_fails_its_turn_with_its_message() {
    let server = server("throw new Error('not today: ' + text(input))").await;
    let run = server.api().run("program", "tea").await;
    assert_eq!((run["state"].as_str(), run["outcome"].as_str()), (Some("failed"), Some("failed")));
    assert!(run["error"]["message"].as_str().unwrap().contains("not today: tea"), "{run}");
    server.stop().await;
}

#[tokio::test]
async fn a_program_that_loops_allocates_or_recurses_for_ever_fails_and_harms_nobody() {
    let server = Options::default()
        .agent("loops.js", &program("", "while (true) {}"))
        .agent("allocates.js", &program("", "const all = []; while (true) all.push('x'.repeat(1000000) + all.length)"))
        .agent("recurses.js", &program("", "function deeper(n) { return deeper(n + 1) + 1 } return deeper(0)"))
        .agent("grows.js", &program("", "let s = 'x'; while (true) s += s"))
        .start()
        .await;
    let api = server.api();
    let bad = ["loops", "allocates", "recurses", "grows"].map(|agent| {
        let api = api.clone();
        async move { (agent, api.run(agent, "go").await) }
    });
    let (runs, fine) = tokio::join!(futures::future::join_all(bad), api.run("mock", "fine"));
    assert_eq!(fine["output"], "fine");
    for (agent, run) in runs {
        assert_eq!(
            (run["state"].as_str(), run["outcome"].as_str()),
            (Some("failed"), Some("failed")),
            "{agent}: {run}"
        );
        assert!(run["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{agent}: {run}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_cancel_stops_a_program_that_loops() {
    let server = server("if (text(input) === 'loop') { while (true) {} } return text(input)").await;
    let api = server.api();
    let id = api.open("program", "one").await;
    let turn = api.start(&id, "loop").await;
    api.post(&format!("/v1/_resident/{id}/cancel"), json!({})).await.ok();
    assert_eq!(api.end_of(&id, &turn).await["outcome"], "cancelled");
    assert_eq!(api.send(&id, "two").await["output"], "two");
    server.stop().await;
}

#[tokio::test]
async fn a_program_reaches_nothing_but_its_tools() {
    let server = server(
        "
        const names = ['require', 'process', 'fetch', 'XMLHttpRequest', 'Deno', 'std', 'os', 'setTimeout'];
        return JSON.stringify(names.filter((name) => typeof globalThis[name] !== 'undefined'));
        ",
    )
    .await;
    assert_eq!(output(&server, "go").await, json!([]));
    server.stop().await;
}

#[tokio::test]
async fn sandbox_tools_can_be_called_by_their_names() {
    let body = "
        const session = mcp__sandbox__sandbox_open({});
        mcp__sandbox__sandbox_write({ session_id: session.session_id, path: 'a.txt', content: 'from a program' });
        const done = mcp__sandbox__sandbox_exec({ session_id: session.session_id, command: 'cat a.txt' });
        return JSON.stringify(done);
    ";
    let server = Options::default()
        .variable("SANDBOX_DRIVER", "local")
        .agent("program.js", &program("mcp__sandbox__*", body))
        .start()
        .await;
    let done = output(&server, "go").await;
    assert_eq!((done["exit_code"].as_i64(), done["output"].as_str()), (Some(0), Some("from a program")), "{done}");
    server.stop().await;
}
