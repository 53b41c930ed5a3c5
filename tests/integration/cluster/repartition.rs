//! Another number of journal partitions, by the operator's command.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use hearth_tests::{Api, Cluster, ClusterOptions, Event, eventually, mock, program};
use serde_json::{Value, json};

use super::lineage;

const REPLICAS: [&str; 3] = ["replica-0", "replica-1", "replica-2"];

fn repartition(cluster: &Cluster, arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(["journal", "repartition"]).args(arguments);
    command
        .env("HEARTH_NATS_URL", cluster.nats_url())
        .env("HEARTH_REDIS_URL", cluster.redis_url())
        .env("HEARTH_DATA_DIR", cluster.folder().join("operator"))
        .stdin(Stdio::null());
    command
}

async fn output(mut command: Command) -> Output {
    let done = tokio::task::spawn_blocking(move || command.output());
    done.await.expect("the command comes to its end").expect("it starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Starts the change and kills it once it has told of the first partition.
async fn interrupt(cluster: &Cluster, arguments: &[&str]) {
    let mut command = repartition(cluster, arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    let told = child.stderr.take().expect("its words");
    let interrupted = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(told).read_line(&mut line).expect("a line");
        child.kill().expect("it is there");
        child.wait().expect("it ends");
        line
    });
    let line = interrupted.await.expect("it was killed");
    assert!(line.contains("partition 1 of"), "{line}");
}

/// What a cluster answers about its runs.
struct World {
    folded: String,
    parked: String,
    ended: String,
    session: String,
    waiting: (String, String),
    answers: Vec<Value>,
}

const TURNS: usize = 150;

fn key(turn: usize) -> String {
    format!("key-{turn}")
}

impl World {
    async fn make(cluster: &Cluster) -> Self {
        let apis = cluster.apis();
        let folded = apis[0].open("mock", "turn 0").await;
        for turn in 1..TURNS {
            let (path, body) = (format!("/v1/_resident/{folded}/send"), json!({ "prompt": format!("turn {turn}") }));
            apis[turn % 3].post_with_key(&path, &key(turn), body).await.ok();
        }
        let parked = apis[1].open("mock", "parked").await;
        // Too large for one message of the servers.
        apis[1].send(&parked, &mock(json!({ "output": "x".repeat(900_000), "chunks": 2 }))).await;
        let ended = apis[2].run("mock", "ended").await["run_id"].as_str().expect("an id").to_owned();
        let session = apis[0].get_run(&ended).await["session_id"].as_str().expect("an id").to_owned();
        let message = json!({ "agent": "mock", "prompt": "goes on" });
        apis[1].post(&format!("/v1/sessions/{session}/messages"), message).await.ok();
        let agent = json!({ "name": "made/here", "provider": "mock", "model": "mock", "system_prompt": "s" });
        apis[2].post("/v1/agents", agent).await.ok();
        let folds = async || {
            let mut frames = 0.0;
            for api in &apis {
                frames += api.metric("hearth_folded_frames_total").await;
            }
            (frames > 0.0).then_some(())
        };
        eventually("frames are removed", folds).await;
        let waiting = apis[0].open("mock", "waits").await;
        let turn = apis[0].start(&waiting, &mock(json!({ "latency_ms": 2_000, "output": "went on" }))).await;
        let mut world = Self { folded, parked, ended, session, waiting: (waiting, turn), answers: Vec::new() };
        world.answers = world.ask(&apis[0]).await;
        world
    }

    /// Everything that has to be answered as before.
    async fn ask(&self, api: &Api) -> Vec<Value> {
        let mut answers = Vec::new();
        for id in [&self.folded, &self.parked, &self.ended] {
            let mut run = api.get_run(id).await;
            // Who has it, and since which activation, is another matter.
            for field in ["owner_replica", "epoch", "resident_state", "last_used_at"] {
                run.as_object_mut().expect("a run").remove(field);
            }
            answers.push(run);
            let events = lineage(api, id).await;
            answers.extend(events.iter().map(|event: &Event| json!([event.id, event.name, event.data])));
        }
        for path in ["/v1/agents/made%2Fhere".to_owned(), format!("/v1/sessions/{}/transcript?limit=500", self.session)]
        {
            answers.push(api.get(&path).await.ok());
        }
        answers
    }

    async fn holds(&self, api: &Api) {
        let answers = self.ask(api).await;
        assert_eq!(answers.len(), self.answers.len());
        for (now, before) in answers.iter().zip(&self.answers) {
            assert_eq!(now, before);
        }
        let path = format!("/v1/_resident/{}/send", self.folded);
        for turn in [1, TURNS / 2, TURNS - 1] {
            let again = api.post_with_key(&path, &key(turn), json!({ "prompt": format!("turn {turn}") })).await;
            assert!(again.is_replay());
            assert_eq!(again.ok()["output"], format!("turn {turn}"));
            api.post_with_key(&path, &key(turn), json!({ "prompt": "other" })).await.refused(409, "conflict");
        }
        let (id, turn) = &self.waiting;
        assert_eq!(api.end_of(id, turn).await["output"], "went on");
    }
}

#[tokio::test]
async fn journal_partitions_change_by_the_operators_command_and_everything_answers_as_before() {
    let options =
        ClusterOptions::default().variable("HEARTH_JOURNAL_PARTITIONS", 4).variable("HEARTH_JOURNAL_KEEP_EVENTS", 100);
    let Some(cluster) = options.start().await else { return };
    let world = World::make(&cluster).await;
    let refused = output(repartition(&cluster, &["--from", "4", "--to", "7"])).await;
    let told = said(&refused);
    assert!(refused.status.code() == Some(1) && told.contains("replica-1") && told.contains("stop all"), "{told}");
    // One that answers nothing lives as well.
    cluster.kill("replica-0").await;
    cluster.kill("replica-2").await;
    cluster.pause("replica-1");
    let refused = output(repartition(&cluster, &["--from", "4", "--to", "7"])).await;
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    cluster.kill("replica-1").await;

    interrupt(&cluster, &["--from", "4", "--to", "7"]).await;
    let done = output(repartition(&cluster, &["--from", "4", "--to", "7"])).await;
    assert!(done.status.success() && said(&done).contains("7 partitions"), "{}", said(&done));
    let with_seven = [("HEARTH_JOURNAL_PARTITIONS", "7"), ("HEARTH_JOURNAL_KEEP_EVENTS", "100")];
    let api = cluster.join("seven", &with_seven).await;
    world.holds(&api).await;
    let seen = lineage(&api, &world.parked).await.last().and_then(|event| event.id);
    assert_eq!(api.send(&world.parked, "after").await["output"], "after");
    let news = api.stream(&world.parked, seen).await.until(|event| event.ends_turn()).await;
    assert_eq!(news.last().expect("an end").data["output"], "after", "a stream resumes with an id from before");

    // One that is configured as before does not start, and says what to do.
    let mut other = program();
    other.arg("replica").env("HEARTH_JOURNAL_PARTITIONS", "4").env("HEARTH_LISTEN", "127.0.0.1:0");
    other.env("HEARTH_NATS_URL", cluster.nats_url()).env("HEARTH_REDIS_URL", cluster.redis_url());
    other.env("HEARTH_DATA_DIR", cluster.folder().join("other")).env("HEARTH_TOKEN", "token").stdin(Stdio::null());
    let told = said(&output(other).await);
    assert!(told.contains("hearth journal repartition --from 7 --to 4"), "{told}");

    // And back, for the members as they were.
    cluster.kill("seven").await;
    let done = output(repartition(&cluster, &["--from", "7", "--to", "4"])).await;
    assert!(done.status.success(), "{}", said(&done));
    for replica in REPLICAS {
        cluster.restart(replica).await;
    }
    let ends = lineage(&cluster.api(2), &world.parked).await;
    assert_eq!(ends.last().expect("an end").data["output"], "after");
    assert_eq!(cluster.api(1).send(&world.folded, "goes on").await["output"], "goes on");
    cluster.stop().await;
}
