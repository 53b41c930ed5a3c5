use std::collections::BTreeMap;

use hearth_models::{ErrorKind, ToolRequest};
use hearth_types::{Fault, FaultCode, ToolOutput};
use serde_json::{Value, json};

use crate::stage::{Played, context, journaled, models, named, play, play_on};

/// A sandbox whose commands are `exit N`, `sleep`, or print themselves.
#[derive(Default)]
struct Sandbox {
    opened: usize,
    closed: bool,
    /// Sessions that are gone.
    lost: Vec<String>,
    files: BTreeMap<String, String>,
}

impl Sandbox {
    fn answer(&mut self, request: &ToolRequest) -> ToolOutput {
        let tool = request.name.strip_prefix("mcp__sandbox__").unwrap();
        let text = |field: &str| request.arguments[field].as_str().unwrap_or_default().to_owned();
        if self.lost.contains(&text("session_id")) {
            return ToolOutput::error(&Fault::new(FaultCode::SessionLost, "the container is gone; open again"));
        }
        ToolOutput::ok(match tool {
            "sandbox_open" => {
                self.opened += 1;
                json!({ "session_id": format!("sbx_{}", self.opened), "warm": false })
            }
            "sandbox_write" => {
                self.files.insert(text("path"), text("content"));
                json!({ "bytes_written": text("content").len() })
            }
            "sandbox_exec" => {
                let command = text("command");
                let code = command.strip_prefix("exit ").map_or(0, |code| code.parse().unwrap());
                let timed_out = command == "sleep";
                let exit_code = if timed_out { json!(143) } else { json!(code) };
                json!({
                    "exec_id": "exec_1", "output": command, "exit_code": exit_code, "timed_out": timed_out,
                    "oom_killed": false, "truncated": false, "output_bytes": 1, "duration_ms": 7,
                })
            }
            "sandbox_read" => match self.files.get(&text("path")) {
                Some(content) => json!({
                    "content": content, "encoding": "utf8", "size": content.len(), "truncated": false,
                }),
                None => return ToolOutput::error(&Fault::new(FaultCode::NotFound, "there is no such file")),
            },
            "sandbox_close" => {
                self.closed = true;
                json!({})
            }
            other => panic!("{other}"),
        })
    }

    async fn play(&mut self, prompt: Value) -> Played {
        play(&named("dev/exec"), &prompt.to_string(), |request| self.answer(request)).await
    }
}

fn output(played: &Played) -> Value {
    serde_json::from_str(played.text()).unwrap()
}

fn tools(played: &Played) -> Vec<&str> {
    played.calls().iter().map(|call| call.name.strip_prefix("mcp__sandbox__sandbox_").unwrap()).collect()
}

#[tokio::test]
async fn files_are_written_then_commands_run_then_files_read() {
    let mut sandbox = Sandbox::default();
    let played = sandbox
        .play(json!({
            "files": [{ "path": "a", "content": "1" }, { "path": "b", "content": "2" }],
            "commands": ["make", "make test"], "read": ["b"], "workspace": "w", "timeout_seconds": 60,
        }))
        .await;
    assert_eq!(tools(&played), ["open", "write", "write", "exec", "exec", "read"]);
    assert_eq!(played.calls()[0].arguments, json!({ "workspace": "w" }));
    assert_eq!(played.calls()[3].arguments, json!({ "session_id": "sbx_1", "command": "make", "timeout_seconds": 60 }));
    let result = |command: &str| {
        json!({
            "command": command, "exit_code": 0, "output": command, "timed_out": false, "truncated": false,
            "duration_ms": 7,
        })
    };
    assert_eq!(
        output(&played),
        json!({ "session_id": "sbx_1", "results": [result("make"), result("make test")], "read": { "b": "2" } })
    );
    assert_eq!(played.deltas.texts().concat(), played.text());
}

#[tokio::test]
async fn it_stops_at_the_first_command_that_fails_and_still_reads() {
    for failing in ["exit 3", "sleep"] {
        let mut sandbox = Sandbox::default();
        let file = json!([{ "path": "log", "content": "x" }]);
        let played = sandbox.play(json!({ "commands": ["a", failing, "b"], "files": file, "read": ["log"] })).await;
        let output = output(&played);
        assert_eq!(output["results"].as_array().unwrap().len(), 2, "{failing}");
        assert_eq!(output["read"]["log"], "x");
        let played = Sandbox::default().play(json!({ "commands": ["a", failing, "b"], "continue": true })).await;
        assert_eq!(self::output(&played)["results"].as_array().unwrap().len(), 3, "{failing}");
    }
}

#[tokio::test]
async fn the_session_is_kept_unless_it_is_to_be_closed() {
    for (prompt, closed) in [
        (json!({}), false),
        (json!({ "keep_open": true }), false),
        (json!({ "keep_open": false }), true),
        (json!({ "close": true }), true),
        (json!({ "close": true, "commands": ["exit 1"] }), true),
    ] {
        let mut sandbox = Sandbox::default();
        let played = sandbox.play(prompt.clone()).await;
        assert_eq!(sandbox.closed, closed, "{prompt}");
        assert_eq!(output(&played)["session_id"], "sbx_1");
    }
}

#[tokio::test]
async fn a_named_session_is_used_and_opened_again_once_when_it_is_gone() {
    let mut sandbox = Sandbox::default();
    let played = sandbox.play(json!({ "session_id": "sbx_9", "commands": ["a"] })).await;
    assert_eq!((tools(&played), output(&played)["session_id"].as_str()), (vec!["exec"], Some("sbx_9")));

    let mut sandbox = Sandbox { lost: vec!["sbx_9".to_owned()], ..Sandbox::default() };
    let prompt = json!({ "session_id": "sbx_9", "workspace": "w", "files": [{ "path": "a", "content": "" }], "commands": ["a"] });
    let played = sandbox.play(prompt).await;
    assert_eq!(tools(&played), ["write", "open", "write", "exec"]);
    assert_eq!(played.calls()[1].arguments, json!({ "workspace": "w" }));
    assert_eq!(output(&played)["session_id"], "sbx_1");
    assert!(played.deltas.thinking().contains("sbx_9 is gone"), "the change of session is said");

    let mut sandbox = Sandbox { lost: vec!["sbx_9".to_owned(), "sbx_1".to_owned()], ..Sandbox::default() };
    let played = sandbox.play(json!({ "session_id": "sbx_9", "commands": ["a"] })).await;
    assert_eq!((tools(&played), sandbox.opened), (vec!["exec", "open", "exec"], 1));
    assert!(played.error().message.contains("the container is gone"));
}

#[tokio::test]
async fn a_session_that_is_lost_half_way_fails_the_turn() {
    let mut sandbox = Sandbox::default();
    let prompt = json!({ "commands": ["a", "b"], "close": true }).to_string();
    let played = play(&named("dev/exec"), &prompt, |request| {
        let output = sandbox.answer(request);
        if request.arguments["command"] == "a" {
            sandbox.lost.push("sbx_1".to_owned());
        }
        output
    })
    .await;
    assert_eq!(tools(&played), ["open", "exec", "exec"], "what `a` left behind is gone: `b` is not run without it");
    let fault = played.error().source.as_ref().unwrap().downcast_ref::<Fault>().unwrap();
    assert_eq!(fault.code, FaultCode::SessionLost);
}

#[tokio::test]
async fn a_tools_error_fails_the_turn_with_its_message() {
    let mut sandbox = Sandbox::default();
    let played = sandbox.play(json!({ "commands": ["a"], "read": ["none"], "close": true })).await;
    assert_eq!(played.error().message, "there is no such file");
    assert!(sandbox.closed, "it closes all the same");
    let refuse = |_: &ToolRequest| ToolOutput::error(&Fault::new(FaultCode::ToolRefused, "the ceiling forbids it"));
    let played = play(&named("dev/exec"), r#"{"close": true}"#, refuse).await;
    assert_eq!((tools(&played), played.error().message.as_str()), (vec!["open"], "the ceiling forbids it"));
}

#[tokio::test]
async fn cut_and_binary_files_are_said() {
    let answer = |request: &ToolRequest| match request.name.as_str() {
        "mcp__sandbox__sandbox_read" => ToolOutput::ok(json!({
            "content": "AA==", "encoding": "base64", "size": 9_999_999, "truncated": true,
        })),
        _ => ToolOutput::ok(json!({ "session_id": "sbx_1" })),
    };
    let output = output(&play(&named("dev/exec"), r#"{"read": ["big"]}"#, answer).await);
    assert_eq!((&output["read_truncated"], &output["read_base64"]), (&json!(["big"]), &json!(["big"])));
}

#[tokio::test]
async fn many_files_are_written_a_few_at_a_time() {
    let files: Vec<Value> = (0..40).map(|n| json!({ "path": format!("f{n}"), "content": n.to_string() })).collect();
    let mut sandbox = Sandbox::default();
    let played = sandbox.play(json!({ "files": files })).await;
    let sizes: Vec<usize> = played.recorded.iter().map(|recorded| recorded.step.tool_calls.len()).collect();
    assert_eq!((sizes, sandbox.files.len()), (vec![1, 16, 16, 8], 40));
}

#[tokio::test]
async fn a_turn_goes_on_from_any_recorded_step() {
    let prompt = json!({
        "session_id": "sbx_9", "files": [{ "path": "a", "content": "1" }], "commands": ["x", "exit 4", "y"],
        "continue": true, "read": ["a"], "close": true,
    });
    let lost = || Sandbox { lost: vec!["sbx_9".to_owned()], ..Sandbox::default() };
    let whole = lost().play(prompt.clone()).await;
    assert!(whole.recorded.len() > 6);
    for kept in 0..=whole.recorded.len() {
        let mut sandbox = lost();
        for call in whole.calls().iter().take(kept) {
            sandbox.answer(call);
        }
        let mut resumed = context(&named("dev/exec"), &prompt.to_string());
        resumed.recorded = journaled(&whole.recorded[..kept]);
        let played = play_on(&models(), resumed, |request| sandbox.answer(request)).await;
        assert_eq!((played.text(), played.calls()), (whole.text(), whole.calls()), "after {kept} steps");
    }
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_is_refused_with_the_field_and_an_example() {
    for (prompt, says) in [
        ("ls -l", ["the prompt: it is not JSON", "one JSON object"]),
        ("[1]", ["the prompt: it is JSON, but not an object", "one JSON object"]),
        (r#"{"command": "ls"}"#, ["unknown field `command`", "commands"]),
        (r#"{"commands": "ls"}"#, ["`commands`", "an array of at most 128 strings"]),
        (r#"{"commands": [1]}"#, ["`commands[0]`", "an array of at most 128 strings"]),
        (r#"{"files": [{"path": "x"}]}"#, ["`files[0]`", "`content`"]),
        (r#"{"files": [{"path": "x", "content": ""}, {"path": "x", "content": ""}]}"#, ["`files`", "`x` twice"]),
        (r#"{"timeout_seconds": 0}"#, ["`timeout_seconds`: it is 0", "1 to 3600"]),
        (r#"{"timeout_seconds": 3601}"#, ["`timeout_seconds`: it is 3601", "1 to 3600"]),
        (r#"{"continue": "yes"}"#, ["`continue`", "true or false"]),
    ] {
        let played = play(&named("dev/exec"), prompt, |_| panic!("no call")).await;
        let error = played.error();
        assert_eq!(error.kind, ErrorKind::Invalid, "{prompt}");
        assert!(says.iter().all(|part| error.message.contains(part)), "{prompt}: {error}");
        assert!(error.message.contains(r#"Example: {"files""#), "{prompt}: {error}");
    }
    let many = json!({ "commands": vec!["a"; 129] }).to_string();
    let played = play(&named("dev/exec"), &many, |_| panic!("no call")).await;
    assert!(played.error().message.contains("`commands`: it is 129 long"), "{}", played.error());
}
