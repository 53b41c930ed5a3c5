//! The gRPC surface, called as its clients call it.

use futures::StreamExt;
use hearth_proto::v1::hearth_client::HearthClient;
use hearth_proto::v1::{
    CancelRequest, CloseRequest, CreateRunRequest, Event, GetRunRequest, ListRequest, OpenRequest, PollRequest,
    SandboxSpec, SendRequest, StreamRequest,
};
use reqwest::Method;
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::*;

async fn client(server: &Server) -> HearthClient<Channel> {
    let channel = Channel::from_shared(server.url("")).unwrap().connect().await.unwrap();
    HearthClient::new(channel).max_decoding_message_size(usize::MAX)
}

fn asked<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    request
}

fn keyed<T>(message: T, key: &'static str) -> Request<T> {
    let mut request = asked(message);
    request.metadata_mut().insert("idempotency-key", key.parse().unwrap());
    request
}

fn open(prompt: &str) -> OpenRequest {
    OpenRequest { agent: "mock".to_owned(), prompt: prompt.to_owned(), ..OpenRequest::default() }
}

fn reason(status: &Status) -> (Code, String) {
    (status.code(), status.get_error_details().error_info().unwrap().reason.clone())
}

#[tokio::test]
async fn a_resident_is_the_same_over_grpc_and_over_http() {
    let server = Server::start().await;
    let mut grpc = client(&server).await;
    let opened = grpc.open_resident(asked(open("one"))).await.unwrap();
    assert!(opened.metadata().contains_key("traceresponse"));
    let opened = opened.into_inner();
    assert_eq!((opened.output.as_str(), opened.outcome.as_deref()), ("one", Some("finished")));
    let run_id = opened.child_run_id.unwrap();
    let sent = SendRequest { run_id: run_id.clone(), prompt: "two".to_owned(), timeout_ms: None };
    let sent = grpc.send_resident(asked(sent)).await.unwrap().into_inner();
    assert_eq!((sent.output.as_str(), sent.state.as_str()), ("two", "awaiting_input"));
    let shown: Value = server.get(&format!("/v1/_resident/{run_id}")).await.json().await.unwrap();
    assert_eq!((&shown["output"], &shown["turn_id"]), (&json!("two"), &json!(sent.turn_id)));
    let polled = PollRequest { run_id: run_id.clone(), turn_id: opened.turn_id, ..PollRequest::default() };
    assert_eq!(grpc.poll_resident(asked(polled)).await.unwrap().into_inner().output, "one");
    let filter = ListRequest { agent: Some("mock".to_owned()), limit: Some(5), ..ListRequest::default() };
    let listed = grpc.list_residents(asked(filter)).await.unwrap().into_inner();
    assert_eq!((listed.resident.len(), listed.resident[0].turns), (1, 2));
    let cancel = CancelRequest { run_id: run_id.clone(), ..CancelRequest::default() };
    assert!(!grpc.cancel_resident(asked(cancel)).await.unwrap().into_inner().stopped, "it is parked");
    let close = CloseRequest { run_id: run_id.clone(), reason: Some("done".to_owned()) };
    assert_eq!(grpc.close_resident(asked(close)).await.unwrap().into_inner().state, "closed");
    let run = grpc.get_run(asked(GetRunRequest { run_id })).await.unwrap().into_inner();
    assert_eq!((run.state.as_str(), run.resident, run.last_turn.unwrap().output.as_str()), ("closed", true, "two"));
}

#[tokio::test]
async fn a_key_is_one_key_on_both_surfaces() {
    let server = Server::start().await;
    let mut grpc = client(&server).await;
    let body = r#"{"agent":"mock","prompt":"p","metadata":{"a":"b"},"wait_ms":1}"#;
    let first =
        server.request(Method::POST, "/v1/runs").header("idempotency-key", "k").body(body).send().await.unwrap();
    let first: Value = first.json().await.unwrap();
    let message = CreateRunRequest {
        agent: "mock".to_owned(),
        prompt: Some("p".to_owned()),
        metadata: [("a".to_owned(), "b".to_owned())].into(),
        ..CreateRunRequest::default()
    };
    let again = grpc.create_run(keyed(message.clone(), "k")).await.unwrap();
    assert_eq!(again.metadata().get("idempotent-replay").unwrap(), "true");
    assert_eq!(json!(again.into_inner().run_id), first["run_id"]);
    let other = CreateRunRequest { prompt: Some("q".to_owned()), ..message };
    let refused = grpc.create_run(keyed(other, "k")).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "conflict".to_owned()));
    let run =
        grpc.get_run(asked(GetRunRequest { run_id: first["run_id"].as_str().unwrap().to_owned() })).await.unwrap();
    assert_eq!(run.into_inner().metadata["a"], "b");
}

#[tokio::test]
async fn events_come_as_messages_and_go_on_after_the_last_that_was_seen() {
    let server = Server::start().await;
    let mut grpc = client(&server).await;
    let message = CreateRunRequest {
        agent: "mock".to_owned(),
        segments: vec!["a".to_owned(), "b".to_owned()],
        ..CreateRunRequest::default()
    };
    let run_id = grpc.create_run(asked(message)).await.unwrap().into_inner().run_id;
    let mut read = async |last_event_id| -> Vec<Event> {
        let from = StreamRequest { run_id: run_id.clone(), last_event_id, ..StreamRequest::default() };
        let events = grpc.stream_run(asked(from)).await.unwrap().into_inner();
        events.map(Result::unwrap).collect().await
    };
    let all = read(None).await;
    let journaled: Vec<_> = all.iter().filter(|event| event.id.is_some()).cloned().collect();
    assert_eq!((journaled[0].name.as_str(), journaled.last().unwrap().name.as_str()), ("session", "done"));
    let data: Value = serde_json::from_str(&journaled.last().unwrap().data).unwrap();
    assert_eq!((&data["output"], &data["seq"]), (&json!("a\n\nb"), &json!(journaled.last().unwrap().id)));
    assert_eq!(read(journaled[0].id).await, journaled[1..]);
}

#[tokio::test]
async fn refusals_have_canonical_codes_and_the_contracts_beside_them() {
    let server = Server::start().await;
    let mut grpc = client(&server).await;
    let nobody = grpc.open_resident(Request::new(open("p"))).await.unwrap_err();
    assert_eq!(reason(&nobody), (Code::Unauthenticated, "unauthenticated".to_owned()));
    for (message, expected, field) in [
        (OpenRequest { agent: "a b".to_owned(), ..open("p") }, (Code::InvalidArgument, "invalid_argument"), "agent"),
        (OpenRequest { agent: "none".to_owned(), ..open("p") }, (Code::NotFound, "not_found"), ""),
        (open(""), (Code::InvalidArgument, "invalid_argument"), "prompt"),
        (open(&"x".repeat((16 << 20) + 1)), (Code::ResourceExhausted, "payload_too_large"), ""),
        (
            OpenRequest {
                sandbox: Some(SandboxSpec { network: Some("all".to_owned()), ..SandboxSpec::default() }),
                ..open("p")
            },
            (Code::InvalidArgument, "invalid_argument"),
            "sandbox",
        ),
    ] {
        let refused = grpc.open_resident(asked(message)).await.unwrap_err();
        let (code, named) = reason(&refused);
        assert_eq!((code, named.as_str()), expected, "{refused}");
        let details = refused.get_error_details();
        let more = details.error_info().unwrap().metadata.get("details").cloned().unwrap_or_default();
        assert!(field.is_empty() || more.contains(&format!("\"field\":\"{field}\"")), "{refused}: {more}");
    }
    for id in ["", "a/b", "..", "a?b", "run_none"] {
        let refused = grpc.get_run(asked(GetRunRequest { run_id: id.to_owned() })).await.unwrap_err();
        let expected = if id == "run_none" { Code::NotFound } else { Code::InvalidArgument };
        assert_eq!(refused.code(), expected, "{id:?}: {refused}");
        let from = StreamRequest { run_id: id.to_owned(), ..StreamRequest::default() };
        assert_eq!(grpc.stream_run(asked(from)).await.unwrap_err().code(), expected);
    }
    let page = ListRequest { limit: Some(0), ..ListRequest::default() };
    assert_eq!(grpc.list_runs(asked(page)).await.unwrap_err().code(), Code::InvalidArgument);
    let mut twice = keyed(open("p"), "k");
    twice.metadata_mut().append("idempotency-key", "l".parse().unwrap());
    assert_eq!(grpc.open_resident(twice).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_call_that_is_given_up_cancels_its_turn_if_it_was_asked_to() {
    let server = Server::start().await;
    let mut grpc = client(&server).await;
    let prompt = json!({ "mock": { "latency_ms": 60_000 } }).to_string();
    let message = CreateRunRequest {
        agent: "mock".to_owned(),
        prompt: Some(prompt),
        cancel_on_disconnect: true,
        interactive: true,
        ..CreateRunRequest::default()
    };
    let call = grpc.create_run(asked(message));
    assert!(tokio::time::timeout(Duration::from_millis(500), call).await.is_err(), "it takes a minute");
    for _ in 0..2_000 {
        let runs = client(&server).await.list_runs(asked(ListRequest::default())).await.unwrap().into_inner().runs;
        if runs.first().and_then(|run| run.last_turn.as_ref()).is_some_and(|turn| turn.outcome == "cancelled") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the turn goes on");
}
