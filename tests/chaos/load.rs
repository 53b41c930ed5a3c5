//! One client: it sends to its resident, repeats, cancels, and writes down what it was told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hearth_tests::{Persistent, mock};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::misfortunes::Dice;

/// What one command was answered.
#[derive(Debug, Clone)]
pub struct Acknowledged {
    pub key: String,
    pub prompt: String,
    /// What the turn puts out if nobody cancels it; it names the command.
    pub output: String,
    pub answer: Value,
}

#[derive(Debug)]
pub struct Record {
    pub root: String,
    pub resident: String,
    pub acknowledged: Vec<Acknowledged>,
    pub slowest: Duration,
    pub refusals: usize,
}

pub struct Client {
    number: u64,
    http: Persistent,
    dice: Dice,
}

impl Client {
    pub fn new(number: u64, http: Persistent, dice: Dice) -> Self {
        Self { number, http, dice }
    }

    pub async fn run(mut self, over: &AtomicBool) -> Record {
        let root = self.http.open(&format!("root-{}", self.number), "mock", "root").await;
        let body = json!({ "agent": "mock", "prompt": "child", "parent_run_id": root });
        let opened = self.http.post("/v1/_resident", &format!("child-{}", self.number), &body).await;
        let resident = opened["child_run_id"].as_str().expect("an id").to_owned();
        let path = format!("/v1/_resident/{resident}/send");
        let (mut acknowledged, mut slowest) = (Vec::<Acknowledged>::new(), Duration::ZERO);
        while !over.load(Ordering::Relaxed) {
            if self.dice.below(6) == 0 && !acknowledged.is_empty() {
                self.repeat(&path, &acknowledged).await;
                continue;
            }
            let key = format!("{}-{}", self.number, acknowledged.len());
            let latency = self.dice.below(600);
            let mut command = self.command(&key, latency);
            let began = Instant::now();
            let (http, cancels) = (&self.http, self.dice.below(5) == 0);
            let body = json!({ "prompt": command.prompt });
            let sent = http.post(&path, &key, &body);
            let cancel = async {
                if cancels {
                    tokio::time::sleep(Duration::from_millis(latency)).await;
                    http.post(&format!("/v1/_resident/{resident}/cancel"), &format!("{key}-cancel"), &json!({})).await;
                }
            };
            (command.answer, ()) = tokio::join!(sent, cancel);
            slowest = slowest.max(began.elapsed());
            acknowledged.push(command);
        }
        Record { root, resident, acknowledged, slowest, refusals: self.http.refusals() }
    }

    /// A turn of one step, or one that has a child do the work.
    fn command(&mut self, key: &str, latency_ms: u64) -> Acknowledged {
        let output = format!("output of {key}.");
        let plain = mock(json!({ "latency_ms": latency_ms, "chunks": 3, "output": output }));
        let prompt = if self.dice.below(4) == 0 {
            let spawn = json!({ "op": "spawn", "name": "mock", "prompt": plain });
            mock(json!({ "tool": { "name": "Agent", "arguments": spawn } }))
        } else {
            plain
        };
        Acknowledged { key: key.to_owned(), prompt, output, answer: Value::Null }
    }

    /// One effect and one result per key, whenever and wherever it is repeated.
    async fn repeat(&mut self, path: &str, acknowledged: &[Acknowledged]) {
        let index = usize::try_from(self.dice.below(acknowledged.len() as u64)).expect("an index");
        let first = &acknowledged[index];
        let again = self.http.post(path, &first.key, &json!({ "prompt": first.prompt })).await;
        for field in ["turn_id", "outcome", "output"] {
            assert_eq!(again[field], first.answer[field], "{}: {again}", first.key);
        }
    }
}
