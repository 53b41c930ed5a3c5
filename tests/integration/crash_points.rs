//! The process ends at each append of a scenario in turn, right before it or right after it. Started
//! again on the same folder, with clients that repeat what was not answered, it comes to the same end.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use hearth_tests::{Api, Cluster, ClusterOptions, Options, Server, eventually, mock};
use serde_json::{Value, json};

const POINT: &str = "HEARTH_CRASH_AT_APPEND";
/// Scenarios at the same time: most of each is waiting for a start.
const AT_ONCE: usize = 4;

const PROGRAM: &str = "/*
tools: [Agent, mcp__sandbox__*]
*/
function run(input) {
  const child = Agent({ op: 'open', name: 'mock', prompt: 'to the child' });
  const again = Agent({ op: 'send', child_run_id: child.child_run_id, prompt: input });
  const session = mcp__sandbox__sandbox_open({ workspace: 'effects' });
  const done = mcp__sandbox__sandbox_exec({ session_id: session.session_id, command: 'echo done >> log; cat log' });
  return child.output + ', ' + again.output + ', ' + done.output;
}
";

/// The same without a sandbox, for a cluster that has no node.
const WITHOUT_SANDBOX: &str = "/*
tools: [Agent]
*/
function run(input) {
  const child = Agent({ op: 'open', name: 'mock', prompt: 'to the child' });
  const again = Agent({ op: 'send', child_run_id: child.child_run_id, prompt: input });
  return child.output + ', ' + again.output;
}
";

/// What the scenario is played on, and is ended by its own appends.
enum Stage {
    /// An embedded replica on SQLite.
    Embedded(Box<Server>),
    /// A replica on JetStream. Its cluster has a name of its own, so that on the same servers each
    /// scenario begins with nothing.
    Clustered { stores: Arc<Cluster>, name: String },
}

impl Stage {
    fn has_ended(&mut self) -> bool {
        match self {
            Self::Embedded(server) => server.has_ended(),
            Self::Clustered { stores, name } => stores.has_ended(name),
        }
    }

    /// Starts it again, without a crash point.
    async fn restart(&mut self) -> Api {
        match self {
            Self::Embedded(server) => {
                server.set(POINT, None);
                server.restart().await;
                server.api()
            }
            Self::Clustered { stores, name } => joined(stores, name, None).await,
        }
    }

    async fn end(mut self) {
        if self.has_ended() {
            return;
        }
        match &mut self {
            Self::Embedded(server) => server.kill().await,
            Self::Clustered { stores, name } => stores.kill(name).await,
        }
    }
}

async fn joined(stores: &Cluster, name: &str, point: Option<&str>) -> Api {
    let mut variables = vec![("HEARTH_CLUSTER_NAME", name), ("HEARTH_JOURNAL_PARTITIONS", "1")];
    variables.extend(point.map(|point| (POINT, point)));
    stores.join(name, &variables).await
}

/// Where scenarios are played.
#[derive(Clone)]
enum Ground {
    Embedded,
    Clustered(Arc<Cluster>),
}

impl Ground {
    async fn stage(&self, point: Option<&str>) -> (Stage, Api) {
        match self {
            Self::Embedded => {
                // Named, as the node's name is in what a sandbox answers.
                let mut options = Options::default()
                    .variable("SANDBOX_DRIVER", "local")
                    .variable("HEARTH_REPLICA_ID", "only")
                    .agent("program.js", PROGRAM);
                if let Some(point) = point {
                    options = options.variable(POINT, point);
                }
                let server = options.start().await;
                let api = server.api();
                (Stage::Embedded(Box::new(server)), api)
            }
            Self::Clustered(stores) => {
                let name = point.map_or_else(|| "undisturbed".to_owned(), |point| point.replace(':', "-"));
                let api = joined(stores, &name, point).await;
                (Stage::Clustered { stores: stores.clone(), name }, api)
            }
        }
    }
}

struct Scene {
    stage: Stage,
    api: Api,
    crashes: usize,
    /// What each call was answered, as far as it has to be the same every time.
    answers: BTreeMap<String, Value>,
}

impl Scene {
    async fn start(ground: &Ground, point: Option<&str>) -> Self {
        let (stage, api) = ground.stage(point).await;
        Self { stage, api, crashes: 0, answers: BTreeMap::new() }
    }

    /// Asks until there is an answer, and starts the server again where it has ended.
    async fn ask(&mut self, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> Value {
        loop {
            let mut request = self.api.request(method, path);
            if let Some(key) = key {
                request = request.header("idempotency-key", key);
            }
            if let Some(body) = body {
                request = request.json(body);
            }
            match self.api.try_finish(request).await {
                Ok(reply) if reply.status < 300 => return reply.body,
                Ok(reply) => assert_eq!(reply.status, 503, "{method} {path}: {}", reply.text),
                Err(_) => {
                    let stage = &mut self.stage;
                    eventually("the server that does not answer has ended", async || stage.has_ended().then_some(()))
                        .await;
                    self.crashes += 1;
                    self.api = self.stage.restart().await;
                }
            }
        }
    }

    async fn post(&mut self, name: &str, path: &str, body: Value) -> Value {
        let answer = self.ask("POST", path, Some(name), Some(&body)).await;
        let mut kept = answer.clone();
        for volatile in ["usage", "trace_id"] {
            kept.as_object_mut().unwrap().remove(volatile);
        }
        self.answers.insert(name.to_owned(), kept);
        answer
    }

    async fn get(&mut self, path: &str) -> Value {
        self.ask("GET", path, None, None).await
    }

    async fn play(&mut self) {
        let opened = self.post("open", "/v1/_resident", json!({ "agent": "mock", "prompt": "one" })).await;
        let id = opened["child_run_id"].as_str().unwrap().to_owned();
        let send = format!("/v1/_resident/{id}/send");
        self.post("send", &send, json!({ "prompt": "two" })).await;
        let open = json!({ "op": "open", "name": "mock", "prompt": "from inside" });
        let call = mock(json!({ "tool": { "name": "Agent", "arguments": open } }));
        self.post("tool", &send, json!({ "prompt": call })).await;
        let below = json!({ "agent": "mock", "prompt": "below", "parent_run_id": id });
        self.post("child", "/v1/_resident", below).await;
        let long = json!({ "prompt": mock(json!({ "latency_ms": 60_000 })), "timeout_ms": 1 });
        let running = self.post("long", &send, long).await;
        let cancel = json!({ "turn_id": running["turn_id"] });
        self.post("cancel", &format!("/v1/_resident/{id}/cancel"), cancel).await;
        self.post("after", &send, json!({ "prompt": "usable" })).await;
        self.post("program", "/v1/runs", json!({ "agent": "program", "prompt": "again" })).await;
        self.post("close", &format!("/v1/_resident/{id}/close"), json!({})).await;
    }

    /// What is left: every run with its conversation and the events that its readers see.
    async fn end(mut self) -> (usize, Value) {
        let mut left = serde_json::Map::new();
        loop {
            let page = self.get("/v1/runs?limit=500").await;
            let runs = page["runs"].as_array().unwrap().clone();
            if runs.iter().any(|run| !matches!(run["state"].as_str(), Some("completed" | "closed" | "failed"))) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                continue;
            }
            for run in runs {
                let id = run["run_id"].as_str().unwrap().to_owned();
                let session = run["session_id"].as_str().unwrap();
                let said = self.get(&format!("/v1/sessions/{session}/transcript")).await;
                let messages: Vec<Value> = said["messages"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|message| json!([message["role"], same(&message["content"]), message["turn_id"]]))
                    .collect();
                let last =
                    json!([run["last_turn"]["turn_id"], run["last_turn"]["outcome"], run["last_turn"]["output"]]);
                let events = self.events(&id).await;
                let kept = json!({
                    "state": run["state"], "turns": run["turns"], "agent": run["agent"], "parent": run["parent_run_id"],
                    "last": last, "messages": messages, "events": events,
                });
                left.insert(id, kept);
            }
            break;
        }
        let answers = json!(self.answers);
        let crashes = self.crashes;
        self.stage.end().await;
        (crashes, json!({ "answers": answers, "runs": left }))
    }

    async fn events(&mut self, id: &str) -> Vec<Value> {
        // The server may end while it is read; then it is read again.
        loop {
            self.get(&format!("/v1/runs/{id}")).await;
            let events = self.api.stream(id, None).await.to_end().await;
            if events.last().is_some_and(|event| event.name == "done") {
                return events
                    .iter()
                    .filter(|event| event.id.is_some())
                    .map(|event| {
                        json!([event.name, event.data["turn_id"], event.data["output"], event.data["call_id"]])
                    })
                    .collect();
            }
        }
    }
}

/// The value without what is of one sandbox session or one moment.
fn same(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| {
                let of_session = ["session_id", "warm", "runtime", "notice", "workspace_path"];
                let of_moment = ["expires_at", "idle_expires_at", "duration_ms"];
                !of_session.contains(&name.as_str()) && !of_moment.contains(&name.as_str())
            });
            Value::Object(kept.map(|(name, value)| (name.clone(), same(value))).collect())
        }
        Value::Array(values) => values.iter().map(same).collect(),
        other => other.clone(),
    }
}

async fn played(ground: &Ground, point: &str) -> (usize, Value) {
    let mut scene = Scene::start(ground, Some(point)).await;
    scene.play().await;
    scene.end().await
}

/// The uncrashed end, and the number of appends on the way to it.
async fn undisturbed(ground: &Ground) -> (Value, usize) {
    let mut scene = Scene::start(ground, None).await;
    scene.play().await;
    let api = scene.api.clone();
    let appends = api.metric("hearth_journal_append_seconds_count").await;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
    let appends = appends as usize;
    let (crashes, end) = scene.end().await;
    assert_eq!(crashes, 0);
    assert!(appends > 20, "{appends} appends");
    (end, appends)
}

/// Only debug builds can be told to end; another one refuses to start with the variable.
fn can_crash() -> bool {
    let output = std::process::Command::new(hearth_tests::binary())
        .args(["dev", "--help"])
        .env(POINT, "nowhere")
        .output()
        .expect("the program starts");
    let asked = std::process::Command::new(hearth_tests::binary())
        .args(["dev", "--crash-at-append", "nowhere"])
        .output()
        .expect("the program starts");
    let text = String::from_utf8_lossy(&asked.stderr).into_owned();
    output.status.success() && text.contains("no crash point")
}

/// At every `step`th append, from `first` on.
async fn crash_at(ground: Ground, side: &str, first: usize, step: usize) {
    let (expected, appends) = undisturbed(&ground).await;
    let points: Vec<String> = (first..=appends).step_by(step).map(|number| format!("{side}:{number}")).collect();
    let all = points.len();
    let play = async |point: String| {
        let end = played(&ground, &point).await;
        (point, end)
    };
    let mut ends = futures::stream::iter(points.into_iter().map(play)).buffer_unordered(AT_ONCE);
    let mut crashed = 0;
    while let Some((point, (crashes, end))) = ends.next().await {
        crashed += crashes;
        assert!(crashes <= 1, "{point}: it ended more than once");
        assert_eq!(end, expected, "{point}: {end:#}\nis not what comes without a crash: {expected:#}");
    }
    // How the last appends fall is not the same every time; nearly every point was met.
    assert!(crashed + 3 >= all, "{crashed} crashes at {all} points");
}

/// At every second append, from `first` on: so that each half has its own time.
async fn crash_embedded(side: &str, first: usize) {
    if !can_crash() {
        return println!("skipped: this is no debug build, and cannot be told to end at an append");
    }
    crash_at(Ground::Embedded, side, first, 2).await;
}

/// At a few appends; at each of them where the environment asks for it, which takes minutes.
async fn crash_clustered(side: &str) {
    if !can_crash() {
        return println!("skipped: this is no debug build, and cannot be told to end at an append");
    }
    let cluster = ClusterOptions::default().replicas(1).agent("program.js", WITHOUT_SANDBOX);
    let Some(cluster) = cluster.start().await else { return };
    let cluster = Arc::new(cluster);
    let step = if std::env::var_os("HEARTH_CRASH_EVERYWHERE").is_some() { 1 } else { 6 };
    crash_at(Ground::Clustered(cluster), side, 2, step).await;
}

#[tokio::test]
async fn on_jetstream_a_crash_before_an_append_changes_nothing_of_the_end() {
    crash_clustered("before").await;
}

#[tokio::test]
async fn on_jetstream_a_crash_after_an_append_changes_nothing_of_the_end() {
    crash_clustered("after").await;
}

#[tokio::test]
async fn a_crash_before_any_append_changes_nothing_of_the_end() {
    crash_embedded("before", 1).await;
}

#[tokio::test]
async fn a_crash_before_any_other_append_changes_nothing_of_the_end() {
    crash_embedded("before", 2).await;
}

#[tokio::test]
async fn a_crash_after_any_append_changes_nothing_of_the_end() {
    crash_embedded("after", 1).await;
}

#[tokio::test]
async fn a_crash_after_any_other_append_changes_nothing_of_the_end() {
    crash_embedded("after", 2).await;
}

#[tokio::test]
async fn t43_a_turn_that_ends_the_process_that_runs_it_fails_after_three_activations() {
    if !can_crash() {
        return println!("skipped: this is no debug build, and cannot be told to end at an append");
    }
    let mut server = Server::start().await;
    let api = server.api();
    let id = api.open("mock", "one").await;
    let turn = api.start(&id, &mock(json!({ "latency_ms": 60_000 }))).await;
    server.kill().await;
    // Each start takes the run up, which is the first append, and ends at once.
    server.set(POINT, Some("after:1"));
    for _ in 0..3 {
        let status = server.restart_in_vain().await;
        assert!(!status.success(), "{status}");
    }
    server.set(POINT, None);
    server.restart().await;
    let end = api.end_of(&id, &turn).await;
    assert_eq!((end["state"].as_str(), end["outcome"].as_str()), (Some("awaiting_input"), Some("failed")), "{end}");
    assert!(end["error"]["message"].as_str().unwrap().contains("3 activations"), "{end}");
    let listed = api.get("/v1/runs?limit=500").await.ok();
    let row = listed["runs"].as_array().unwrap().iter().find(|run| run["run_id"] == id.as_str()).unwrap().clone();
    assert_eq!((row["last_turn"]["outcome"].as_str(), &row["last_turn"]["error"]), (Some("failed"), &end["error"]));
    assert_eq!(api.send(&id, "usable").await["output"], "usable");
    server.stop().await;
}

#[tokio::test]
async fn t29_a_send_whose_hand_over_fails_half_way_leaves_a_usable_resident() {
    if !can_crash() {
        return println!("skipped: this is no debug build, and cannot be told to end at an append");
    }
    // The first append takes the run over, the second accepts the prompt.
    for (point, was_accepted) in [("before:1", false), ("after:1", false), ("before:2", false), ("after:2", true)] {
        let mut server = Server::start().await;
        let api = server.api();
        let id = api.open("mock", "one").await;
        server.kill().await;
        server.set(POINT, Some(point));
        server.restart().await;
        let path = format!("/v1/_resident/{id}/send");
        let request = api.request("POST", &path).header("idempotency-key", "k").json(&json!({ "prompt": "two" }));
        assert!(api.try_finish(request).await.is_err(), "{point}: the server has ended");
        eventually("it has ended", async || server.has_ended().then_some(())).await;
        server.set(POINT, None);
        server.restart().await;
        eventually("nothing is left running", async || {
            (api.poll(&id).await["state"] == "awaiting_input").then_some(())
        })
        .await;
        let again = api.post_with_key(&path, "k", json!({ "prompt": "two" })).await;
        assert_eq!(again.is_replay(), was_accepted, "{point}");
        assert_eq!(again.ok()["output"], "two", "{point}");
        assert_eq!(api.send(&id, "three").await["output"], "three", "{point}");
        assert_eq!(api.get_run(&id).await["turns"], 3, "{point}");
        server.stop().await;
    }
}

#[tokio::test]
async fn a_run_of_a_session_that_was_closed_before_it_began_is_told_to_whoever_repeats_its_key() {
    if !can_crash() {
        return println!("skipped: this is no debug build, and cannot be told to end at an append");
    }
    // The first append lets the run join its session, the second would begin it.
    let mut server = Options::default().variable(POINT, "after:1").start().await;
    let api = server.api();
    let body = |prompt: &str| json!({ "agent": "mock", "prompt": prompt, "session_id": "sess_chosen" });
    let request = api.request("POST", "/v1/runs").header("idempotency-key", "first").json(&body("one"));
    assert!(api.try_finish(request).await.is_err(), "the server has ended");
    eventually("it has ended", async || server.has_ended().then_some(())).await;
    server.set(POINT, None);
    server.restart().await;
    let second = api.post_with_key("/v1/runs", "second", body("two")).await.ok();
    assert_eq!(second["output"], "two");
    let first = api.post_with_key("/v1/runs", "first", body("one")).await;
    assert!(first.is_replay());
    let first = first.ok();
    assert_eq!((first["state"].as_str(), first["outcome"].as_str()), (Some("closed"), Some("cancelled")), "{first}");
    api.post_with_key("/v1/runs", "first", body("other")).await.refused(409, "conflict");
    server.stop().await;
}
