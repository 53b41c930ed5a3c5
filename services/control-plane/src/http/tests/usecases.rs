//! Use cases through the surface, on a real replica with the agent that needs no model.

use futures::StreamExt;
use reqwest::Method;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::*;

/// The prompt of a turn that takes its time.
fn slow(latency_ms: u64) -> String {
    json!({ "mock": { "latency_ms": latency_ms, "output": "abcd", "chunks": 4 } }).to_string()
}

async fn body(response: Response) -> Value {
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

impl Server {
    async fn command(&self, path: &str, body: Value) -> (u16, Value) {
        let response = self.post(path, &body.to_string()).await;
        (response.status().as_u16(), self::body(response).await)
    }

    async fn newest_run(&self) -> Option<Value> {
        body(self.get("/v1/runs?limit=1").await).await["runs"].get(0).cloned()
    }

    /// Waits until the newest run's last turn has ended, and gives it.
    async fn last_turn(&self) -> Value {
        for _ in 0..2_000 {
            if let Some(turn) = self.newest_run().await.map(|run| run["last_turn"].clone()).filter(Value::is_object) {
                return turn;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the turn did not end");
    }
}

#[tokio::test]
async fn a_run_answers_200_when_it_parked_and_202_when_the_wait_passed_first() {
    let server = Server::start().await;
    let (status, done) = server.command("/v1/runs", json!({ "agent": "mock", "prompt": "hello" })).await;
    assert_eq!((status, &done["output"], &done["state"]), (200, &json!("hello"), &json!("completed")));
    for field in ["session_id", "root_run_id", "usage", "turn_id"] {
        assert!(!done[field].is_null(), "{field}");
    }
    let waiting = json!({ "agent": "mock", "prompt": slow(60_000), "wait_ms": 50, "interactive": true });
    let (status, running) = server.command("/v1/runs", waiting).await;
    assert_eq!((status, &running["state"], &running["outcome"]), (202, &json!("running"), &json!(null)));
    let run = running["run_id"].as_str().unwrap();
    let (status, input) = server.command(&format!("/v1/runs/{run}/input"), json!({ "text": "next" })).await;
    assert_eq!((status, &input["delivered"]), (202, &json!("queued")));
    let (status, cancelled) = server.command(&format!("/v1/runs/{run}/cancel"), json!({})).await;
    assert_eq!((status, &cancelled["stopped"], &cancelled["outcome"]), (200, &json!(true), &json!("cancelled")));
    let (status, closed) = server.command(&format!("/v1/runs/{run}/close"), json!({})).await;
    assert_eq!((status, &closed["state"]), (200, &json!("closed")));
}

#[tokio::test]
async fn a_key_gives_the_first_answer_again_and_refuses_another_body() {
    let server = Server::start().await;
    let keyed = |body: &str| {
        let request = server.request(Method::POST, "/v1/_resident").header("idempotency-key", "k");
        let body = body.to_owned();
        async move { request.body(body).send().await.unwrap() }
    };
    let first = keyed(r#"{"agent":"mock","prompt":"one"}"#).await;
    assert!(!first.headers().contains_key("idempotent-replay"));
    let first = body(first).await;
    let again = keyed(r#"{ "prompt":"one", "agent":"mock", "timeout_ms":5 }"#).await;
    assert_eq!(again.headers()["idempotent-replay"], "true");
    assert_eq!(body(again).await["turn_id"], first["turn_id"]);
    let (status, code, _) = refusal(keyed(r#"{"agent":"mock","prompt":"two"}"#).await).await;
    assert_eq!((status, code.as_str()), (409, "conflict"));
    // The key counts for its path alone.
    let run = first["child_run_id"].as_str().unwrap();
    let send = server.request(Method::POST, &format!("/v1/_resident/{run}/send")).header("idempotency-key", "k");
    let sent = send.body(r#"{"prompt":"three"}"#).send().await.unwrap();
    assert!(!sent.headers().contains_key("idempotent-replay"));
    assert_eq!(body(sent).await["output"], "three");
}

#[tokio::test]
async fn a_resident_is_sent_to_polled_listed_and_closed() {
    let server = Server::start().await;
    let (_, opened) = server.command("/v1/_resident", json!({ "agent": "mock", "prompt": "a" })).await;
    let run = opened["child_run_id"].as_str().unwrap();
    let (status, late) =
        server.command(&format!("/v1/_resident/{run}/send"), json!({ "prompt": slow(300), "timeout_ms": 20 })).await;
    assert_eq!((status, &late["state"]), (200, &json!("running")), "a resident answers 200 however long it takes");
    let poll = format!("/v1/_resident/{run}?timeout_ms=20000&turn_id={}", late["turn_id"].as_str().unwrap());
    assert_eq!(body(server.get(&poll).await).await["output"], "abcd");
    let listed = body(server.get("/v1/_resident?agent=mock&resident=true").await).await;
    assert_eq!(listed["resident"][0]["child_run_id"], run);
    assert!(listed["as_of"].is_string() && listed["next_cursor"].is_null() && listed.get("partial").is_none());
    let (_, closed) = server.command(&format!("/v1/_resident/{run}/close"), json!({})).await;
    assert_eq!((&closed["state"], &closed["child_run_id"]), (&json!("closed"), &json!(run)));
    let (status, _) = server.command(&format!("/v1/_resident/{run}/send"), json!({ "prompt": "late" })).await;
    assert_eq!(status, 409);
}

#[tokio::test]
async fn a_run_that_is_asked_for_as_a_stream_is_told_from_its_first_event_to_its_last() {
    let server = Server::start().await;
    let request = server.request(Method::POST, "/v1/runs").header("accept", "text/event-stream");
    let response = request.body(json!({ "agent": "mock", "prompt": slow(100) }).to_string()).send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let told = response.text().await.unwrap();
    let ids: Vec<u64> = told.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert!(ids.first() == Some(&1) && ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    assert!(told.trim_end().rsplit("\n\n").next().unwrap().contains("event: done"), "{told}");
    let run = server.newest_run().await.unwrap()["run_id"].as_str().unwrap().to_owned();
    let resumed = server.request(Method::GET, &format!("/v1/runs/{run}/stream?from_seq=1"));
    let resumed = resumed.header("last-event-id", ids[ids.len() - 2].to_string()).send().await.unwrap();
    let rest = resumed.text().await.unwrap();
    let rest: Vec<u64> = rest.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert_eq!(rest, ids[ids.len() - 1..], "the header counts before the parameter, and is exclusive");
}

/// Sends a request and closes the connection as soon as its run is there.
async fn ask_and_go_away(server: &Server, headers: &str, body: &Value) {
    let body = body.to_string();
    let head = format!("POST /v1/runs HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {TOKEN}\r\n{headers}");
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    connection.write_all(request.as_bytes()).await.unwrap();
    for _ in 0..2_000 {
        if server.newest_run().await.is_some_and(|run| run["state"] == "running") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the run did not start");
}

#[tokio::test]
async fn a_turn_goes_on_without_its_client_unless_it_was_asked_to_end() {
    let server = Server::start().await;
    ask_and_go_away(&server, "", &json!({ "agent": "mock", "prompt": slow(400) })).await;
    let turn = server.last_turn().await;
    assert_eq!((&turn["outcome"], &turn["output"]), (&json!("finished"), &json!("abcd")));
    for headers in ["", "Accept: text/event-stream\r\n"] {
        let server = Server::start().await;
        let request = json!({ "agent": "mock", "prompt": slow(600_000), "cancel_on_disconnect": true });
        ask_and_go_away(&server, headers, &request).await;
        assert_eq!(server.last_turn().await["outcome"], "cancelled", "{headers:?}");
    }
}

#[tokio::test]
async fn a_client_that_stays_gets_the_whole_turn_though_it_might_have_gone() {
    let server = Server::start().await;
    let watched = |wait_ms: u64| json!({ "agent": "mock", "prompt": slow(200), "cancel_on_disconnect": true, "wait_ms": wait_ms });
    let (status, done) = server.command("/v1/runs", watched(0)).await;
    assert_eq!((status, &done["output"], &done["outcome"]), (200, &json!("abcd"), &json!("finished")));
    assert!(done["usage"]["output_tokens"].as_u64().unwrap() > 0 && done.get("child_run_id").is_none());
    let (status, running) = server.command("/v1/runs", watched(10)).await;
    assert_eq!((status, &running["state"]), (202, &json!("running")));
    assert_eq!(server.last_turn().await["outcome"], "finished", "an answer in time is no disconnect");
}

#[tokio::test]
async fn streams_past_their_bound_are_refused_with_a_time_to_come_back() {
    let options = HttpOptions { max_streams: 1, ..HttpOptions::default() };
    let server = Server::with(Auth::single(TOKEN), options, |table| table).await;
    let (_, opened) = server.command("/v1/_resident", json!({ "agent": "mock", "prompt": "a" })).await;
    let path = format!("/v1/runs/{}/stream", opened["run_id"].as_str().unwrap());
    let first = server.get(&path).await;
    let mut events = first.bytes_stream();
    events.next().await.unwrap().unwrap();
    let second = server.get(&path).await;
    assert_eq!(second.headers()["retry-after"], "5");
    let (status, code, _) = refusal(second).await;
    assert_eq!((status, code.as_str()), (429, "quota_exceeded"));
    drop(events);
    until("the place is given back", || server.gateway.enter_stream().is_ok()).await;
}

#[tokio::test]
async fn another_tenants_id_answers_as_an_unknown_one_byte_for_byte() {
    let tokens = "
        [[token]] # a
        sha256 = \"ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\"
        tenant = \"acme\"
        subject = \"ann\"
        role = \"operator\"
        [[token]] # b
        sha256 = \"3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d\"
        tenant = \"other\"
        subject = \"bob\"
        role = \"operator\"
    ";
    let auth = Auth::from_tokens(std::path::Path::new("tokens.toml"), tokens).unwrap();
    let server = Server::with(auth, HttpOptions::default(), |table| table).await;
    let open = server.anonymous(Method::POST, "/v1/_resident").bearer_auth("a");
    let opened = body(open.body(r#"{"agent":"mock","prompt":"x"}"#).send().await.unwrap()).await;
    let (run, session) =
        (opened["run_id"].as_str().unwrap(), opened["run_id"].as_str().unwrap().replace("run_", "sess_"));
    for (method, path, body) in [
        (Method::GET, "/v1/runs/RUN", ""),
        (Method::GET, "/v1/runs/RUN/stream", ""),
        (Method::POST, "/v1/runs/RUN/input", r#"{"text":"x"}"#),
        (Method::POST, "/v1/runs/RUN/cancel", ""),
        (Method::POST, "/v1/runs/RUN/close", ""),
        (Method::GET, "/v1/_resident/RUN", ""),
        (Method::POST, "/v1/_resident/RUN/send", r#"{"prompt":"x"}"#),
        (Method::POST, "/v1/_resident/RUN/cancel", ""),
        (Method::POST, "/v1/_resident/RUN/close", ""),
        (Method::POST, "/v1/sessions/SESSION/messages", r#"{"prompt":"x"}"#),
        (Method::GET, "/v1/sessions/SESSION/transcript", ""),
        (Method::POST, "/v1/_sandboxes/close_run", r#"{"root_run_id":"RUN"}"#),
    ] {
        let ask = |run: &str, session: &str| {
            let fill = |text: &str| text.replace("RUN", run).replace("SESSION", session);
            let request = server.anonymous(method.clone(), &fill(path)).bearer_auth("b").body(fill(body));
            async move {
                let response = request.send().await.unwrap();
                (response.status().as_u16(), response.bytes().await.unwrap())
            }
        };
        let (theirs, unknown) = (ask(run, &session).await, ask("run_0", "sess_0").await);
        assert_eq!(theirs, unknown, "{method} {path}");
        assert_eq!(theirs.0, 404, "{method} {path}: {theirs:?}");
    }
}
