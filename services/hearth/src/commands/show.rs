//! `show` one run, and the `transcript` of a session.

use clap::Args;
use hearth_client::Client;
use serde_json::Value;

use super::pages::fetch;
use super::view::text;
use crate::args::{Connection, Paging};
use crate::failure::{Failure, Verdict};
use crate::screen::Screen;

/// Show one run
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth show run_…
  hearth --json show run_… | jq .last_turn")]
pub struct ShowArgs {
    /// The run or resident
    run: String,
    #[command(flatten)]
    connection: Connection,
}

pub async fn show(args: ShowArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let run = args.connection.client(screen)?.run(&args.run).await?;
    if screen.json() {
        screen.document(&run)?;
        return Ok(Verdict::Done);
    }
    let fields = [
        ("run", "run_id"),
        ("agent", "agent"),
        ("state", "state"),
        ("session", "session_id"),
        ("parent", "parent_run_id"),
        ("root", "root_run_id"),
        ("tenant", "tenant_id"),
        ("user", "user_id"),
        ("resident", "resident"),
        ("resident state", "resident_state"),
        ("turns", "turns"),
        ("owner replica", "owner_replica"),
        ("epoch", "epoch"),
        ("created", "created_at"),
        ("last used", "last_used_at"),
        ("usage", "usage"),
        ("metadata", "metadata"),
        ("trace", "trace_id"),
    ];
    let shown = |field: &str| Some(text(&run, field)).filter(|value| value != "{}").unwrap_or_default();
    screen.labels(&fields.map(|(label, field)| (label, shown(field))))?;
    if let Some(turn) = run.get("last_turn").filter(|turn| turn.is_object()) {
        screen.line("")?;
        screen.line(&screen.bold("last turn"))?;
        let error = turn.get("error").map(|error| format!("{}: {}", text(error, "code"), text(error, "message")));
        screen.labels(&[
            ("turn", text(turn, "turn_id")),
            ("outcome", text(turn, "outcome")),
            ("error", error.unwrap_or_default()),
            ("started", text(turn, "started_at")),
            ("ended", text(turn, "ended_at")),
        ])?;
        let output = text(turn, "output");
        if !output.is_empty() {
            screen.line("")?;
            screen.foreign(&output)?;
        }
    }
    Ok(Verdict::Done)
}

/// Show the conversation of a session
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth transcript sess_…
  hearth transcript run_…                  the session of that run
  hearth --json transcript sess_… --all | jq -r '.messages[].content'")]
pub struct TranscriptArgs {
    /// The session, or a run of it
    session: String,
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    connection: Connection,
}

pub async fn transcript(args: TranscriptArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    let session = session_of(&client, args.session).await?;
    let ask = |page: hearth_client::Page| {
        let (client, session) = (&client, session.as_str());
        async move { client.transcript(session, &page).await }
    };
    let listed = fetch(&args.paging, "messages", ask).await?;
    if screen.json() {
        screen.document(&listed.body)?;
        return Ok(Verdict::Done);
    }
    for message in listed.rows() {
        let head = format!("{}  {}  {}", text(message, "at"), text(message, "role"), text(message, "turn_id"));
        screen.line(&screen.dim(&crate::screen::one_line(&head)))?;
        screen.foreign(&text(message, "content"))?;
        screen.line("")?;
    }
    if let Some(cursor) = listed.body.get("next_cursor").and_then(Value::as_str) {
        screen.complain(&format!("there is more: --cursor {cursor} goes on, --all shows all"));
    }
    Ok(Verdict::Done)
}

/// A run's id is what people have at hand; sessions begin with `sess_` unless they were named by a caller.
async fn session_of(client: &Client, id: String) -> Result<String, Failure> {
    if !id.starts_with("run_") {
        return Ok(id);
    }
    let run = client.run(&id).await?;
    Ok(text(&run, "session_id"))
}
