//! `run`, `message` and `input`: work for runs and sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use hearth_client::{CreateRun, Input, SessionMessage};
use hearth_types::InputMode;
use serde_json::Value;

use super::interrupt::{by_key, or_interrupted};
use super::{tail, view};
use crate::args::{Connection, Prompt, Sandbox, key_or_fresh, millis, named, span};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Run an agent: one prompt, one answer
///
/// Waits until the run has ended, or parks when it is --interactive. A server that is restarted
/// meanwhile only means a delay: the command asks again under its key.
#[derive(Debug, Args)]
#[command(override_usage = "hearth run [OPTIONS] <AGENT> <PROMPT | - | --file <PATH>>")]
#[command(after_long_help = "Examples:
  hearth run mock 'say this'
  git diff | hearth run reviewer -
  hearth run reviewer --file change.patch --follow
  hearth run mock 'hello' --interactive         stays; go on with `hearth send`
  hearth run dev/exec '{\"commands\":[\"uname -a\"]}' --workspace demo")]
pub struct RunArgs {
    /// Name of the agent (`hearth agents ls`)
    agent: String,
    #[command(flatten)]
    prompt: Prompt,
    /// Park after the turn instead of ending: a resident that is the root of its own tree
    #[arg(long, short)]
    interactive: bool,
    /// Show events as they come, until the turn has ended
    #[arg(long, conflicts_with = "timeout")]
    follow: bool,
    /// Go on with this session's conversation
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// On whose behalf
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// NAME=VALUE kept with the run; a value that is JSON is kept as such
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    metadata: Vec<(String, Value)>,
    /// Return after this time at the latest; the run goes on
    #[arg(long, value_name = "TIME", value_parser = span)]
    timeout: Option<Duration>,
    /// End the run itself after this time
    #[arg(long, value_name = "TIME", value_parser = span)]
    run_timeout: Option<Duration>,
    /// Idempotency key: the same command with it again has no second effect
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    sandbox: Sandbox,
    #[command(flatten)]
    connection: Connection,
}

pub async fn run(args: RunArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let key = key_or_fresh(args.key);
    let (isolation, sandbox) = args.sandbox.spec();
    let request = CreateRun {
        agent: args.agent,
        prompt: args.prompt.read()?,
        session_id: args.session,
        interactive: args.interactive,
        user_id: args.user,
        metadata: BTreeMap::from_iter(args.metadata),
        isolation,
        sandbox,
        run_timeout_seconds: args.run_timeout.map(|span| span.as_secs().max(1)),
        // To follow, the id is enough; the stream waits.
        wait_ms: if args.follow { Some(1) } else { args.timeout.map(millis) },
        key: Some(key.clone()),
    };
    let answer = or_interrupted(client.create_run(&request), || by_key(&key)).await?;
    if args.follow {
        let stream = client.stream(answer.body.envelope.run_id.as_str(), 0);
        return tail::follow(stream, answer.body.envelope.run_id.as_str(), true, screen).await;
    }
    view::envelope(screen, &answer.body.envelope, &answer.raw)?;
    Ok(Verdict::of(&answer.body.envelope))
}

/// Go on with a session: an input to its live run, else a new run
#[derive(Debug, Args)]
#[command(override_usage = "hearth message [OPTIONS] <SESSION> <PROMPT | - | --file <PATH>>")]
#[command(after_long_help = "Examples:
  hearth message sess_… 'and now in French'
  hearth message sess_… - --agent reviewer < notes.txt")]
pub struct MessageArgs {
    /// The session
    session: String,
    #[command(flatten)]
    prompt: Prompt,
    /// Agent of the new run, if there has to be one
    #[arg(long)]
    agent: Option<String>,
    /// Idempotency key: the same command with it again has no second effect
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn message(args: MessageArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let key = key_or_fresh(args.key);
    let request = SessionMessage { prompt: args.prompt.read()?, agent: args.agent, key: Some(key.clone()) };
    let answer = or_interrupted(client.message(&args.session, &request), || by_key(&key)).await?;
    view::envelope(screen, &answer.body.envelope, &answer.raw)?;
    Ok(Verdict::of(&answer.body.envelope))
}

/// Give a run an input without waiting for the turn
#[derive(Debug, Args)]
#[command(override_usage = "hearth input [OPTIONS] <RUN> <PROMPT | - | --file <PATH>>")]
#[command(after_long_help = "Examples:
  hearth input run_… 'next, the docs'             queued behind a running turn
  hearth input run_… 'skip the tests' --mode steer   to the running turn's model")]
pub struct InputArgs {
    /// The run
    run: String,
    #[command(flatten)]
    prompt: Prompt,
    /// `queue`: the next turn; `steer`: to the running turn at its next step
    #[arg(long, default_value = "queue", value_parser = named::<InputMode>, value_name = "MODE")]
    mode: InputMode,
    /// Idempotency key: the same command with it again has no second effect
    #[arg(long)]
    key: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

pub async fn input(args: InputArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let request = Input { text: args.prompt.read()?, mode: args.mode, key: args.key };
    let answer = client.input(&args.run, &request).await?;
    if screen.json() {
        screen.document(&answer)?;
    } else {
        let rows = ["run_id", "turn_id", "delivered"].map(|field| (field, view::text(&answer, field)));
        screen.labels(&rows)?;
    }
    Ok(Verdict::Done)
}

fn pair(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE")?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}
