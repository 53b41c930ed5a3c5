//! A stream survives lost connections: each journaled event once, in order.

use crate::support::{Script, Step, answer, events};
use hearth_client::{Event, EventStream};

fn event(seq: u64, name: &str) -> String {
    format!("id: {seq}\nevent: {name}\ndata: {{\"seq\":{seq}}}\n\n")
}

fn run_in(state: &str) -> Step {
    answer("200 OK", &[], &format!(r#"{{"run_id":"run_1","state":"{state}"}}"#))
}

async fn all(stream: &mut EventStream) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        events.push(event);
    }
    events
}

#[tokio::test]
async fn a_stream_that_breaks_goes_on_after_the_last_event() {
    let steps = vec![
        events(&format!(": hello\n\n{}{}id: 3\nevent: te", event(1, "session"), event(2, "started"))),
        run_in("running"),
        Step::Drop,
        // A server that sends the last one again, and a live delta.
        events(&format!("{}event: text\ndata: {{}}\n\n{}", event(2, "started"), event(3, "text"))),
        run_in("completed"),
        events(&event(4, "done")),
    ];
    let server = Script::start(steps).await;
    let mut stream = server.client().stream("run_1", 0);
    let seen: Vec<(Option<u64>, String)> = all(&mut stream).await.into_iter().map(|e| (e.id, e.name)).collect();
    let expected = [(Some(1), "session"), (Some(2), "started"), (None, "text"), (Some(3), "text"), (Some(4), "done")];
    assert_eq!(seen, expected.map(|(id, name)| (id, name.to_owned())));
    let requests = server.seen();
    let streams = requests.iter().filter(|request| request.line.ends_with("/stream"));
    let asked: Vec<Option<&str>> = streams.map(|request| request.header("last-event-id")).collect();
    assert_eq!(asked, [None, Some("2"), Some("2"), Some("3")]);
}

#[tokio::test]
async fn a_start_past_the_end_of_a_final_run_gives_nothing_and_ends() {
    let server = Script::start(vec![events(""), run_in("closed"), events("")]).await;
    assert_eq!(all(&mut server.client().stream("run_1", 99)).await, vec![]);
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_start_in_the_middle_is_asked_for_until_the_first_event() {
    let server = Script::start(vec![Step::Drop, events(&event(8, "done"))]).await;
    let mut stream = server.client().stream("run_1", 7);
    assert_eq!(all(&mut stream).await.len(), 1);
    for request in server.seen() {
        assert_eq!(request.line, "GET /v1/runs/run_1/stream?from_seq=7");
    }
}

#[tokio::test]
async fn the_end_of_the_run_ends_the_stream() {
    let server = Script::start(vec![events(&event(1, "done"))]).await;
    let mut stream = server.client().stream("run_1", 0);
    assert_eq!(all(&mut stream).await.len(), 1);
    assert_eq!(stream.next().await.unwrap(), None);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_stream_that_is_refused_is_the_servers_fault() {
    let body = r#"{"error":{"code":"not_found","message":"no","retryable":false}}"#;
    let server = Script::start(vec![answer("404 Not Found", &[], body)]).await;
    let error = server.client().stream("run_1", 0).next().await.unwrap_err();
    assert_eq!(error.api().unwrap().code, "not_found");
}

#[tokio::test]
async fn a_server_that_accepts_and_hangs_up_for_ever_is_given_up() {
    let steps = (0..200).flat_map(|_| [events(": hello\n\n"), run_in("running")]).collect();
    let server = Script::start(steps).await;
    let error = server.client().stream("run_1", 0).next().await.unwrap_err();
    assert!(matches!(error, hearth_client::Error::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn a_reader_that_fell_behind_is_told_so_by_the_server_and_resumes() {
    let error = |code: &str, retryable: bool| {
        format!(
            "event: error\ndata: {{\"error\":{{\"code\":\"{code}\",\"message\":\"m\",\"retryable\":{retryable}}}}}\n\n"
        )
    };
    let cut = events(&format!("{}{}", event(1, "text"), error("unavailable", true)));
    let server = Script::start(vec![cut, events(&event(2, "done"))]).await;
    let names: Vec<String> =
        all(&mut server.client().stream("run_1", 0)).await.into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["text", "done"]);

    let server = Script::start(vec![events(&error("not_found", false))]).await;
    let error = server.client().stream("run_1", 0).next().await.unwrap_err();
    assert_eq!(error.api().unwrap().code, "not_found");
}
