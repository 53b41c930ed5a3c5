//! `open`, `send` and `poll`: residents.

use std::time::Duration;

use clap::Args;
use hearth_client::{OpenResident, Poll, Send};

use super::interrupt::{by_key, by_run, or_interrupted};
use super::view;
use crate::args::{Connection, Prompt, Sandbox, key_or_fresh, millis, span};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Open a resident: it stays addressable between turns
///
/// Waits for its first turn. The answer names the id that `send`, `poll` and `close` take.
#[derive(Debug, Args)]
#[command(override_usage = "hearth open [OPTIONS] <AGENT> <PROMPT | - | --file <PATH>>")]
#[command(after_long_help = "Examples:
  hearth open mock 'hello'
  hearth open coder --file task.md --workspace myproject --idle-ttl 2h
  hearth open dev/exec '{\"commands\":[\"make\"],\"workspace\":\"demo\"}' --parent run_…")]
pub struct OpenArgs {
    /// Name of the agent (`hearth agents ls`)
    agent: String,
    #[command(flatten)]
    prompt: Prompt,
    /// The run that it is a child of; ends with it
    #[arg(long, value_name = "RUN")]
    parent: Option<String>,
    /// Close it after this time without work [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = span)]
    idle_ttl: Option<Duration>,
    /// Return after this time at the latest; the turn goes on
    #[arg(long, value_name = "TIME", value_parser = span)]
    timeout: Option<Duration>,
    /// Idempotency key: the same command with it again has no second effect
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    sandbox: Sandbox,
    #[command(flatten)]
    connection: Connection,
}

pub async fn open(args: OpenArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let key = key_or_fresh(args.key);
    let (isolation, sandbox) = args.sandbox.spec();
    let request = OpenResident {
        agent: args.agent,
        prompt: args.prompt.read()?,
        parent_run_id: args.parent,
        idle_ttl_seconds: args.idle_ttl.map(|span| span.as_secs().max(1)),
        timeout_ms: args.timeout.map(millis),
        isolation,
        sandbox,
        key: Some(key.clone()),
    };
    let answer = or_interrupted(client.open(&request), || by_key(&key)).await?;
    view::envelope(screen, &answer.body, &answer.raw)?;
    if !screen.json() && screen.terminal() && !answer.body.state.is_final() {
        screen.complain(&screen.dim(&format!("\nhearth send {} 'more'", answer.body.run_id)));
    }
    Ok(Verdict::of(&answer.body))
}

/// Send a resident its next prompt, and wait for the turn
///
/// Behind a running turn the prompt is queued. If the server is killed and comes back, the command
/// only takes longer: it asks again under its key and gets the same turn.
#[derive(Debug, Args)]
#[command(override_usage = "hearth send [OPTIONS] <RUN> <PROMPT | - | --file <PATH>>")]
#[command(after_long_help = "Examples:
  hearth send run_… 'now the tests'
  hearth send run_… - < prompt.txt
  hearth send run_… --file prompt.txt --timeout 30s
  hearth --json send run_… 'go' | jq -r .output")]
pub struct SendArgs {
    /// The resident
    run: String,
    #[command(flatten)]
    prompt: Prompt,
    /// Return after this time at the latest; the turn goes on
    #[arg(long, value_name = "TIME", value_parser = span)]
    timeout: Option<Duration>,
    /// Idempotency key: the same command with it again has no second effect
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn send(args: SendArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let key = key_or_fresh(args.key);
    let request = Send { prompt: args.prompt.read()?, timeout_ms: args.timeout.map(millis), key: Some(key.clone()) };
    let answer = or_interrupted(client.send(&args.run, &request), || by_run(&args.run, &key)).await?;
    view::envelope(screen, &answer.body, &answer.raw)?;
    Ok(Verdict::of(&answer.body))
}

/// Ask how a turn is going, or wait for it
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth poll run_…                        as it stands, the output so far included
  hearth poll run_… --timeout 10m          until the newest turn has ended
  hearth poll run_… --turn turn_…          an earlier turn")]
pub struct PollArgs {
    /// The resident
    run: String,
    /// The turn [default: the newest]
    #[arg(long, value_name = "TURN")]
    turn: Option<String>,
    /// Wait this long for the turn's end [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = span)]
    timeout: Option<Duration>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn poll(args: PollArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let request = Poll { timeout_ms: args.timeout.map(millis), turn_id: args.turn };
    let again = || vec!["polling changes nothing; poll again whenever you like".to_owned()];
    let answer = or_interrupted(client.poll(&args.run, &request), again).await?;
    view::envelope(screen, &answer.body, &answer.raw)?;
    Ok(Verdict::of(&answer.body))
}
