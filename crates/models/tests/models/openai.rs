//! The provider, against a server that says what the test wants.

use std::time::Duration;

use hearth_models::{
    ApiKey, BuiltInModels, BuiltInOptions, Delta, DeltaSink, Error, ErrorKind, Message, MessageRole, Model, ModelTurn,
    OpenAi, OpenAiOptions, RecordedStep, Step, StepInput, StopReason, ToolRequest, ToolSchema, TurnContext,
};
use hearth_types::{AgentDefinition, Fault, FaultCode, ToolOutput, Usage};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::stage::{Deltas, context, named, ok, result};

/// A request as the server saw it.
struct Seen {
    head: String,
    body: Value,
    socket: TcpStream,
}

impl Seen {
    async fn send(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).await.unwrap();
    }

    async fn head(&mut self, status: &str, headers: &str) {
        self.send(&format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}\r\n")).await;
    }

    /// Answers with these events and ends.
    async fn stream(mut self, events: &[Value]) -> Value {
        self.head("200 OK", "content-type: text/event-stream\r\n").await;
        for event in events {
            self.send(&format!("data: {event}\n\n")).await;
        }
        self.send("data: [DONE]\n\n").await;
        self.body
    }
}

struct Server {
    requests: mpsc::Receiver<Seen>,
    url: String,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel(8);
        drop(hearth_telemetry::task::spawn("test provider", async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (head, body) = read_request(&mut socket).await;
                sender.send(Seen { head, body, socket }).await.ok();
            }
        }));
        Self { requests, url }
    }

    async fn next(&mut self) -> Seen {
        self.requests.recv().await.unwrap()
    }

    fn model(&self, change: impl FnOnce(&mut OpenAiOptions)) -> OpenAi {
        let mut options = OpenAiOptions { base_url: self.url.clone(), ..OpenAiOptions::default() };
        options.key = Some(ApiKey::new("sk-secret"));
        change(&mut options);
        OpenAi::new(options).unwrap()
    }

    fn turn(&self) -> Box<dyn ModelTurn> {
        self.model(|_| ()).begin(asked("hello")).unwrap()
    }
}

async fn read_request(socket: &mut TcpStream) -> (String, Value) {
    let (mut bytes, mut end) = (Vec::new(), None);
    while end.is_none() {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
        end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    }
    let head = String::from_utf8(bytes[..end.unwrap()].to_vec()).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse::<usize>().unwrap();
    let start = end.unwrap() + 4;
    while bytes.len() < start + length {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
    }
    (head, serde_json::from_slice(&bytes[start..]).unwrap())
}

fn agent() -> AgentDefinition {
    AgentDefinition {
        provider: Some("acme".to_owned()),
        model: Some("large".to_owned()),
        system_prompt: "Be brief.".to_owned(),
        ..named("writer")
    }
}

fn asked(prompt: &str) -> TurnContext {
    context(&agent(), prompt)
}

fn text(text: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": { "content": text } }] })
}

fn finish(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn call(index: usize, id: Option<&str>, name: Option<&str>, arguments: &str) -> Value {
    let function = json!({ "name": name, "arguments": arguments });
    json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [{ "index": index, "id": id, "function": function }] } }] })
}

fn usage(prompt: u64, completion: u64) -> Value {
    json!({ "choices": [], "usage": { "prompt_tokens": prompt, "completion_tokens": completion } })
}

/// One step that the server answers with these events.
async fn step(events: &[Value]) -> (Result<Step, Error>, Deltas) {
    let mut server = Server::start().await;
    let mut turn = server.turn();
    let deltas = Deltas::default();
    let (step, _) =
        tokio::join!(turn.step(StepInput::default(), &deltas), async { server.next().await.stream(events).await });
    (step, deltas)
}

#[tokio::test]
async fn text_and_thinking_are_streamed_and_counted() {
    let thinking =
        json!({ "choices": [{ "delta": { "role": "assistant", "content": null, "reasoning_content": "hm" } }] });
    let (step, deltas) = step(&[thinking, text("Hel"), text("lo ü"), finish("stop"), usage(12, 3)]).await;
    let step = step.unwrap();
    assert_eq!((step.text.as_str(), step.thinking.as_str(), step.stop), ("Hello ü", "hm", StopReason::EndTurn));
    assert_eq!(step.usage, Usage { input_tokens: 12, output_tokens: 3 });
    assert_eq!((deltas.texts(), deltas.thinking().as_str()), (vec!["Hel".to_owned(), "lo ü".to_owned()], "hm"));
}

#[tokio::test]
async fn the_request_holds_the_whole_conversation() {
    let mut server = Server::start().await;
    let mut turn = asked("and now?");
    turn.history = vec![
        Message { role: MessageRole::User, content: json!("first") },
        Message { role: MessageRole::Assistant, content: json!("second") },
    ];
    turn.tools = vec![ToolSchema {
        name: "Agent".to_owned(),
        description: "Delegates.".to_owned(),
        parameters: json!({ "type": "object" }),
    }];
    turn.recorded = vec![RecordedStep {
        step: Step {
            thinking: String::new(),
            text: "Let me see.".to_owned(),
            tool_calls: vec![ToolRequest { name: "Agent".to_owned(), arguments: json!({ "op": "list" }) }],
            usage: Usage::default(),
            stop: StopReason::ToolUse,
        },
        results: vec![result(0, ok(json!({ "resident": [] })))],
        steered: vec!["hurry".to_owned()],
    }];
    let mut turn = server.model(|_| ()).begin(turn).unwrap();
    let deltas = Deltas::default();
    let (step, (head, body)) = tokio::join!(turn.step(StepInput::default(), &deltas), async {
        let seen = server.next().await;
        (seen.head.clone(), seen.stream(&[text("done"), finish("stop")]).await)
    });
    assert_eq!(step.unwrap().text, "done");
    assert!(head.starts_with("post /v1/chat/completions http/1.1"), "{head}");
    assert!(head.contains("authorization: bearer sk-secret"), "{head}");
    let function = json!({ "name": "Agent", "description": "Delegates.", "parameters": { "type": "object" } });
    let call = json!({ "id": "call_1_0", "type": "function", "function": { "name": "Agent", "arguments": r#"{"op":"list"}"# } });
    assert_eq!(
        body,
        json!({
            "model": "large", "stream": true, "stream_options": { "include_usage": true },
            "tools": [{ "type": "function", "function": function }],
            "messages": [
                { "role": "system", "content": "Be brief." },
                { "role": "user", "content": "first" },
                { "role": "assistant", "content": "second" },
                { "role": "user", "content": "and now?" },
                { "role": "assistant", "content": "Let me see.", "tool_calls": [call] },
                { "role": "tool", "tool_call_id": "call_1_0", "content": r#"{"resident":[]}"# },
                { "role": "user", "content": "hurry" },
            ],
        })
    );
}

#[tokio::test]
async fn tool_calls_are_put_together_and_their_results_sent_back() {
    let mut server = Server::start().await;
    let mut turn = server.turn();
    let deltas = Deltas::default();
    let calls = [
        text("Looking."),
        call(0, Some("a"), Some("Agent"), ""),
        call(0, None, None, r#"{"op": "#),
        call(1, Some("b"), Some("mcp__sandbox__sandbox_list"), ""),
        call(0, None, None, r#""list"}"#),
        call(2, Some("c"), Some("Agent"), "{broken"),
        finish("tool_calls"),
    ];
    let (step, _) =
        tokio::join!(turn.step(StepInput::default(), &deltas), async { server.next().await.stream(&calls).await });
    let step = step.unwrap();
    let request = |name: &str, arguments: Value| ToolRequest { name: name.to_owned(), arguments };
    assert_eq!((step.stop, step.text.as_str()), (StopReason::ToolUse, "Looking."));
    assert_eq!(
        step.tool_calls,
        [
            request("Agent", json!({ "op": "list" })),
            request("mcp__sandbox__sandbox_list", json!({})),
            request("Agent", json!("{broken")),
        ]
    );
    let refused = ToolOutput::error(&Fault::new(FaultCode::InvalidArgument, "not an object"));
    let results = vec![result(0, ok(json!("none"))), result(1, ok(json!([]))), result(2, refused)];
    let input = StepInput { results, steered: vec!["left".to_owned()] };
    let (step, body) = tokio::join!(turn.step(input, &deltas), async {
        server.next().await.stream(&[text("I see."), finish("stop")]).await
    });
    assert_eq!(step.unwrap().text, "I see.");
    let messages = body["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 7);
    assert_eq!(messages[2]["tool_calls"][2]["function"]["arguments"], "{broken");
    for (index, content) in [(0, "none"), (1, "[]"), (2, "not an object")] {
        let message = &messages[3 + index];
        assert_eq!(message["tool_call_id"], messages[2]["tool_calls"][index]["id"]);
        assert!(message["content"].as_str().unwrap().contains(content), "{message}");
    }
    assert_eq!(messages[6], json!({ "role": "user", "content": "left" }));
}

#[tokio::test]
async fn the_reason_to_stop_is_the_providers() {
    for (events, stop, calls) in [
        (vec![text("x"), finish("length")], StopReason::MaxTokens, 0),
        (vec![call(0, Some("a"), Some("Agent"), r#"{"cut": "#), finish("length")], StopReason::MaxTokens, 0),
        (vec![text("x"), finish("content_filter")], StopReason::Refusal, 0),
        (
            vec![json!({ "choices": [{ "delta": { "refusal": "I will not" } }] }), finish("stop")],
            StopReason::Refusal,
            0,
        ),
        (vec![call(0, Some("a"), Some("Agent"), "{}"), finish("stop")], StopReason::ToolUse, 1),
        (vec![finish("stop")], StopReason::EndTurn, 0),
    ] {
        let step = step(&events).await.0.unwrap();
        assert_eq!((step.stop, step.tool_calls.len()), (stop, calls), "{events:?}");
    }
}

#[tokio::test]
async fn a_status_of_failure_is_a_typed_error_with_the_providers_words() {
    for (status, kind) in [
        ("400 Bad Request", ErrorKind::Invalid),
        ("401 Unauthorized", ErrorKind::Refused),
        ("403 Forbidden", ErrorKind::Refused),
        ("404 Not Found", ErrorKind::Invalid),
        ("408 Request Timeout", ErrorKind::Transient),
        ("429 Too Many Requests", ErrorKind::Transient),
        ("500 Internal Server Error", ErrorKind::Transient),
        ("503 Service Unavailable", ErrorKind::Transient),
    ] {
        let mut server = Server::start().await;
        let mut turn = server.turn();
        let deltas = Deltas::default();
        let (step, ()) = tokio::join!(turn.step(StepInput::default(), &deltas), async {
            let mut seen = server.next().await;
            seen.head(status, "retry-after: 7\r\n").await;
            seen.send(r#"{"error": {"message": "because of you"}}"#).await;
        });
        let error = step.unwrap_err();
        assert_eq!(error.kind, kind, "{status}: {error}");
        assert!(error.message.contains("because of you") && error.message.contains(&status[..3]), "{error}");
        let wait = error.source.as_ref().and_then(|source| source.downcast_ref::<Fault>()?.retry_after_ms);
        assert_eq!(wait, (kind == ErrorKind::Transient).then_some(7_000), "{status}");
        assert!(!format!("{error:?}").contains("sk-secret"));
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_no_answer() {
    let error = step(&[text("Hel")]).await.0.unwrap_err();
    assert!(error.kind == ErrorKind::Transient && error.message.contains("ended in the middle"), "{error}");
    let error = step(&[text("Hel"), json!({ "error": { "message": "overloaded", "type": "server_error" } })])
        .await
        .0
        .unwrap_err();
    assert!(error.kind == ErrorKind::Transient && error.message.contains("overloaded"), "{error}");
    let error = step(&[json!({ "choices": 5 })]).await.0.unwrap_err();
    assert!(error.kind == ErrorKind::Refused && error.message.contains("not that of chat completions"), "{error}");

    let mut server = Server::start().await;
    let mut turn = server.turn();
    let deltas = Deltas::default();
    let (step, ()) = tokio::join!(turn.step(StepInput::default(), &deltas), async {
        let mut seen = server.next().await;
        seen.head("200 OK", "content-length: 1000\r\n").await;
        seen.send("data: {").await;
    });
    assert_eq!(step.unwrap_err().kind, ErrorKind::Transient);
}

#[tokio::test]
async fn a_provider_that_is_silent_or_away_is_transient() {
    let mut server = Server::start().await;
    let model = server.model(|options| options.idle_timeout = Duration::from_millis(100));
    for answers in [false, true] {
        let mut turn = model.begin(asked("hello")).unwrap();
        let deltas = Deltas::default();
        let (step, _seen) = tokio::join!(turn.step(StepInput::default(), &deltas), async {
            let mut seen = server.next().await;
            if answers {
                seen.head("200 OK", "").await;
            }
            seen
        });
        let error = step.unwrap_err();
        assert!(error.kind == ErrorKind::Transient && error.message.contains("without a word"), "{error}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let away = server.model(|options| options.base_url = format!("http://{nobody}"));
    let error = away.begin(asked("hello")).unwrap().step(StepInput::default(), &Deltas::default()).await.unwrap_err();
    assert!(error.kind == ErrorKind::Transient && error.message.contains("cannot be reached"), "{error}");
}

#[tokio::test]
async fn a_step_ends_at_its_bound_however_lively_it_is() {
    let mut server = Server::start().await;
    let model = server.model(|options| options.step_timeout = Duration::from_millis(200));
    let mut turn = model.begin(asked("hello")).unwrap();
    let deltas = Deltas::default();
    let chatter = async {
        let mut seen = server.next().await;
        seen.head("200 OK", "").await;
        while seen.socket.write_all(b": still here\n\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        step = turn.step(StepInput::default(), &deltas) => {
            let error = step.unwrap_err();
            assert!(error.kind == ErrorKind::Transient && error.message.contains("in all"), "{error}");
        }
        () = chatter => panic!("the step goes on without its connection"),
    }
}

#[tokio::test]
async fn dropping_a_step_closes_the_connection() {
    let mut server = Server::start().await;
    let mut turn = server.turn();
    let (sink, mut first) = mpsc::channel(1);
    struct First(mpsc::Sender<()>);
    impl DeltaSink for First {
        fn send(&self, _: Delta) {
            self.0.try_send(()).ok();
        }
    }
    let step = async { turn.step(StepInput::default(), &First(sink)).await };
    let serve = async {
        let mut seen = server.next().await;
        seen.head("200 OK", "").await;
        seen.send(&format!("data: {}\n\n", text("Hel"))).await;
        first.recv().await;
        seen
    };
    let mut seen = tokio::select! {
        step = step => panic!("{step:?}"),
        seen = serve => seen,
    };
    let end = tokio::time::timeout(Duration::from_secs(30), seen.socket.read(&mut [0; 16])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "the server sees the end");
}

#[tokio::test]
async fn an_answer_is_bounded() {
    let mut server = Server::start().await;
    let model =
        server.model(|options| (options.response_bytes, options.tool_calls, options.event_bytes) = (100, 3, 500));
    let many: Vec<Value> = (0..4).map(|index| call(index, Some("a"), Some("f"), "{}")).collect();
    for (events, says) in [
        (vec![text(&"x".repeat(60)), text(&"x".repeat(60))], "longer than 100 bytes"),
        (vec![call(0, Some("a"), Some("f"), &"x".repeat(120))], "longer than 100 bytes"),
        (many, "more than 3 tools"),
        (vec![text(&"x".repeat(600))], "longer than 500 bytes"),
    ] {
        let mut turn = model.begin(asked("hello")).unwrap();
        let deltas = Deltas::default();
        let (step, _) = tokio::join!(turn.step(StepInput::default(), &deltas), async {
            let mut seen = server.next().await;
            seen.head("200 OK", "").await;
            for event in events {
                seen.socket.write_all(format!("data: {event}\n\n").as_bytes()).await.ok();
            }
            seen
        });
        let error = step.unwrap_err();
        assert!(error.kind == ErrorKind::Refused && error.message.contains(says), "{says}: {error}");
    }
}

#[tokio::test]
async fn definitions_find_their_provider_by_name() {
    let server = Server::start().await;
    let models = BuiltInModels::new(BuiltInOptions::default()).with_provider("acme", server.model(|_| ()));
    let model = hearth_models::Models::resolve(&models, &agent()).unwrap();
    assert!(model.needs_history());
    let mut other = agent();
    other.provider = Some("other".to_owned());
    let error = hearth_models::Models::resolve(&models, &other).err().unwrap();
    assert!(error.message.contains("`other` is not configured") && error.message.contains("`acme`"), "{error}");
    other.model = None;
    let error = server.model(|_| ()).begin(context(&other, "")).err().unwrap();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("`model`"), "{error}");
    let mut turn = asked("hello");
    let tool = |name: &str| ToolSchema { name: name.to_owned(), description: String::new(), parameters: json!({}) };
    turn.tools = vec![tool("has a space")];
    assert!(server.model(|_| ()).begin(turn).err().unwrap().message.contains("`has a space`"));
    let error =
        OpenAi::new(OpenAiOptions { base_url: "api.acme.test".to_owned(), ..OpenAiOptions::default() }).err().unwrap();
    assert!(error.kind == ErrorKind::Invalid && error.message.contains("api.acme.test"), "{error}");
    assert!(!format!("{:?}", server.model(|_| ())).contains("sk-secret"));
}
