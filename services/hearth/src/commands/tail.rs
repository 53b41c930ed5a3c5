//! `tail`: the events of a run, as they come.

use clap::Args;
use hearth_client::{Event, EventStream};
use serde_json::{Value, json};

use super::interrupt::or_interrupted;
use super::view::text;
use crate::args::Connection;
use crate::failure::{Failure, Verdict};
use crate::screen::{Screen, one_line, shortened};

/// Follow the events of a run
///
/// Shows what happened so far, then what happens, until the run has ended. A lost connection is taken
/// up again after the last event. With --json each event is one line: {"id", "event", "data"}.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  hearth tail run_…
  hearth tail run_… --turn                 until the turn that runs has ended
  hearth tail run_… --from 120             from event 120 on
  hearth --json tail run_… | jq -r 'select(.event==\"text\").data.text'")]
pub struct TailArgs {
    /// The run or resident
    run: String,
    /// Begin at this event
    #[arg(long, value_name = "SEQ", default_value_t = 0, hide_default_value = true)]
    from: u64,
    /// End when a turn ends
    #[arg(long)]
    turn: bool,
    #[command(flatten)]
    connection: Connection,
}

pub async fn tail(args: TailArgs, screen: &Screen) -> Result<Verdict, Failure> {
    let client = args.connection.client(screen)?;
    follow(client.stream(&args.run, args.from), &args.run, args.turn, screen).await?;
    Ok(Verdict::Done)
}

/// Shows events until the run, or with `turn` the turn, has ended.
pub async fn follow(mut stream: EventStream, run: &str, turn: bool, screen: &Screen) -> Result<Verdict, Failure> {
    let mut last = 0;
    let mut verdict = Verdict::Done;
    loop {
        let again = || vec![format!("the run goes on without you: hearth tail {run} --from {}", last + 1)];
        let Some(event) = or_interrupted(stream.next(), again).await? else { return Ok(verdict) };
        last = event.id.unwrap_or(last);
        show(&event, screen)?;
        if event.ends_turn() {
            let finished = event.data.get("outcome").and_then(Value::as_str) == Some("finished");
            verdict = if finished { Verdict::Done } else { Verdict::Failed };
            if turn {
                return Ok(verdict);
            }
        }
    }
}

fn show(event: &Event, screen: &Screen) -> Result<(), Failure> {
    if screen.json() {
        return screen.line(&json!({ "id": event.id, "event": event.name, "data": event.data }).to_string());
    }
    if event.id.is_none() && event.name == "text" {
        // A live delta: the journaled event that follows has the whole text.
        return Ok(());
    }
    let id = event.id.map(|id| id.to_string()).unwrap_or_default();
    let at = text(&event.data, "at");
    let clock = at.get(11..23).unwrap_or(&at);
    screen.line(&format!(
        "{} {} {}",
        screen.dim(&format!("{id:>5} {clock}")),
        bold_name(event, screen),
        detail(&event.data)
    ))
}

fn bold_name(event: &Event, screen: &Screen) -> String {
    screen.bold(&format!("{:<19}", one_line(&event.name)))
}

/// What this event is about, shortened: `--json` has all of it.
fn detail(data: &Value) -> String {
    let mut rest = data.clone();
    let Some(fields) = rest.as_object_mut() else { return shown(&rest.to_string()) };
    fields.retain(|name, value| {
        let known = matches!(name.as_str(), "seq" | "run_id" | "at" | "turn_id" | "call_id");
        !known && !value.is_null() && value != &Value::Bool(false)
    });
    // What a reader looks for comes first and bare; the rest follows as it is.
    let mut parts: Vec<String> = Vec::new();
    for name in ["outcome", "name", "text", "output", "arguments", "content"] {
        match fields.remove(name) {
            Some(Value::String(text)) if !text.is_empty() => parts.push(text),
            Some(Value::String(_)) | None => {}
            Some(other) => parts.push(other.to_string()),
        }
    }
    if !fields.is_empty() {
        parts.push(rest.to_string());
    }
    shown(&parts.join("  "))
}

fn shown(text: &str) -> String {
    shortened(&one_line(text), 160)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_shows_what_it_is_about() {
        let base = json!({ "seq": 3, "run_id": "r", "at": "t", "turn_id": "x" });
        assert_eq!(detail(&base), "");
        let mut said = base.clone();
        said["text"] = "two\nlines".into();
        assert_eq!(detail(&said), "two lines");
        said["outcome"] = "finished".into();
        said["usage"] = 7.into();
        assert_eq!(detail(&said), r#"finished  two lines  {"usage":7}"#);
    }
}
