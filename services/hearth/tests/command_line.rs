//! The program from outside: exit codes, and what goes to stdout and stderr.

#![allow(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};

const PARKED: &str = r#"{"run_id":"run_1","child_run_id":"run_1","state":"awaiting_input","turn_id":"turn_1",
    "outcome":"finished","output":"built","truncated":false}"#;
const FAILED: &str = r#"{"run_id":"run_1","state":"awaiting_input","turn_id":"turn_1","outcome":"failed",
    "output":"half","truncated":false,"error":{"code":"internal","message":"boom"}}"#;

fn hearth(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
    command.args(args).env("HEARTH_URL", url).env("HEARTH_TOKEN", "secret").env_remove("NO_COLOR");
    command.stdin(Stdio::null());
    command
}

fn run(url: &str, args: &[&str]) -> (i32, String, String) {
    ended(&hearth(url, args).output().expect("it runs"))
}

fn ended(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    (output.status.code().expect("a code"), text(&output.stdout), text(&output.stderr))
}

/// A server that gives each connection the same answer, and the URL of it. It ends with the test.
fn serving(status: &'static str, body: String) -> String {
    listening(status, body).0
}

/// The same, and the bodies that it is sent.
fn listening(status: &'static str, body: String) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if let Some(asked) = body_of(&mut stream) {
                sender.send(asked).ok();
                let length = body.len();
                let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).ok();
            }
        }
    });
    (url, bodies)
}

fn body_of(stream: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    let mut piece = [0; 4_096];
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let field = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = field.map_or(0, |length| length.parse().expect("a length"));
            if body.len() >= length {
                return Some(body.to_owned());
            }
        }
        match stream.read(&mut piece).ok()? {
            0 => return None,
            read => text.push_str(std::str::from_utf8(&piece[..read]).expect("text")),
        }
    }
}

fn fault(code: &str) -> String {
    format!(r#"{{"error":{{"code":"{code}","message":"the message","retryable":false}}}}"#)
}

#[test]
fn a_finished_turn_is_shown_and_exits_with_0() {
    let url = serving("200 OK", PARKED.to_owned());
    let (code, out, err) = run(&url, &["send", "run_1", "build"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("outcome  finished") && out.ends_with("\nbuilt\n"), "{out}");
    assert!(!out.contains('\u{1b}'), "colour goes to terminals only: {out}");
    let (code, out, _) = run(&url, &["--json", "send", "run_1", "build"]);
    let document: serde_json::Value = serde_json::from_str(&out).expect("one document");
    assert_eq!((code, document["output"].as_str()), (0, Some("built")));
}

#[test]
fn a_failed_turn_exits_with_1_and_is_still_shown() {
    let url = serving("200 OK", FAILED.to_owned());
    let (code, out, _) = run(&url, &["send", "run_1", "build"]);
    assert_eq!(code, 1);
    assert!(out.contains("internal: boom") && out.ends_with("\nhalf\n"), "{out}");
}

#[test]
fn a_fault_is_told_on_stderr_with_its_code_and_what_to_do() {
    let url = serving("404 Not Found", fault("not_found"));
    let (code, out, err) = run(&url, &["show", "run_1"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(err.starts_with("error: not_found: the message\n") && err.contains("hearth ls"), "{err}");
    let (_, out, err) = run(&url, &["show", "run_1", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&err).expect("one document");
    assert_eq!((out.as_str(), document["error"]["code"].as_str()), ("", Some("not_found")));
}

#[test]
fn wrong_arguments_exit_with_2_wherever_they_are_found_out() {
    let url = serving("400 Bad Request", fault("invalid_argument"));
    assert_eq!(run(&url, &["ls", "--limit", "900"]).0, 2);
    for args in
        [&["send", "run_1"][..], &["frobnicate"], &["ls", "--state", "asleep"], &["poll", "r", "--timeout", "x"]]
    {
        assert_eq!(run("http://127.0.0.1:1", args).0, 2, "{args:?}");
    }
    assert_eq!(run("https://127.0.0.1:1", &["ls"]).0, 2);
    assert_eq!(run("http://127.0.0.1:1", &["run", "mock", "--file", "/nowhere/at/all"]).0, 2);
}

#[test]
fn a_server_that_is_not_there_exits_with_3_and_says_how_to_start_one() {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let (code, out, err) = run(&format!("http://127.0.0.1:{port}"), &["ls", "--patience", "100ms"]);
    assert_eq!((code, out.as_str()), (3, ""));
    assert!(err.contains("hearth dev"), "{err}");
}

#[test]
fn a_prompt_can_come_from_stdin_and_from_a_file() {
    let (url, bodies) = listening("200 OK", PARKED.to_owned());
    let mut child = hearth(&url, &["send", "run_1", "-"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it runs");
    child.stdin.take().expect("a pipe").write_all(b"from stdin").expect("written");
    assert_eq!(child.wait().expect("a status").code(), Some(0));
    assert_eq!(bodies.recv().expect("a body"), r#"{"prompt":"from stdin"}"#);
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "from a file").expect("written");
    let path = file.path().to_str().expect("a path");
    assert_eq!(run(&url, &["send", "run_1", "--file", path]).0, 0);
    assert_eq!(bodies.recv().expect("a body"), r#"{"prompt":"from a file"}"#);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let rows = vec![r#"{"run_id":"run_1","agent":"mock","state":"running"}"#; 20_000].join(",");
    let url =
        serving("200 OK", format!(r#"{{"runs":[{rows}],"next_cursor":null,"as_of":"2025-11-30T14:00:00.000Z"}}"#));
    let mut child = hearth(&url, &["ls"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut first = [0; 3];
    child.stdout.take().expect("a pipe").read_exact(&mut first).expect("a beginning");
    let (code, _, err) = ended(&child.wait_with_output().expect("it ends"));
    assert_eq!((&first, code, err.as_str()), (b"RUN", 0, ""));
}

#[test]
fn a_completion_script_names_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, out, _) = run("http://127.0.0.1:1", &["completion", shell]);
        assert!(code == 0 && out.contains("transcript"), "{shell}");
    }
}
