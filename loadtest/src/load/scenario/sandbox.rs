//! A builder's life: a sandbox is opened by a resident, commands run in it, the resident closed.

use async_trait::async_trait;
use hearth_client::{Client, OpenResident, Send};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Round, Scenario};
use crate::load::record::Moments;
use crate::load::world::{World, breathe, code_of};

const EXECS: usize = 5;

pub(super) struct Sandbox;

fn prompt() -> String {
    json!({ "commands": ["true"], "keep_open": true }).to_string()
}

/// Whether the command ran; else why not.
fn judged(output: &str) -> Option<String> {
    let said: Value = serde_json::from_str(output).unwrap_or_default();
    let code = &said["results"][0]["exit_code"];
    (code != &json!(0)).then(|| said["error"]["code"].as_str().unwrap_or("command_failed").to_owned())
}

#[async_trait]
impl Scenario for Sandbox {
    async fn once(&self, world: &World, round: Round) {
        let request = OpenResident { agent: "dev/exec".to_owned(), prompt: prompt(), ..OpenResident::default() };
        let began = Instant::now();
        let opened = world.replica().open(&request).await;
        let moments = Moments { intended: round.intended, began, ended: Instant::now() };
        let answer = match opened {
            Ok(answer) => answer.body,
            Err(error) => {
                world.recorder.record("open_and_exec", moments, Some(&code_of(&error)));
                return breathe(&error).await;
            }
        };
        let (id, failed) = (answer.run_id.to_string(), judged(&answer.output));
        world.recorder.record("open_and_exec", moments, failed.as_deref());
        world.opened(&id);
        if failed.is_none() {
            for _ in 0..EXECS {
                exec(world, world.replica(), &id).await;
            }
        }
        if world.timed("close", Instant::now(), world.replica().close(&id, None)).await.is_some() {
            world.closed(&id);
        }
    }
}

async fn exec(world: &World, client: &Client, id: &str) {
    let began = Instant::now();
    let answer = client.send(id, &Send { prompt: prompt(), ..Send::default() }).await;
    let moments = Moments { intended: began, began, ended: Instant::now() };
    let failed = match &answer {
        Ok(answer) => judged(&answer.body.output),
        Err(error) => Some(code_of(error)),
    };
    world.recorder.record("exec", moments, failed.as_deref());
    if let Err(error) = &answer {
        breathe(error).await;
    }
}
