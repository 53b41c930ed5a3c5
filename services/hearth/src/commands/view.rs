//! How answers look to people. Values are taken from the server's JSON, so that a field it adds later
//! breaks nothing.

use hearth_types::{Envelope, Timestamp};
use serde_json::Value;

use crate::failure::Failure;
use crate::screen::Screen;

/// The answer about a turn: labels, then the output as it is.
pub fn envelope(screen: &Screen, envelope: &Envelope, raw: &Value) -> Result<(), Failure> {
    if screen.json() {
        return screen.document(raw);
    }
    let outcome = envelope.outcome.map(|outcome| outcome.as_str()).unwrap_or_default();
    let turn = envelope.turn_id.as_ref().map(ToString::to_string).unwrap_or_default();
    let error = envelope.error.as_ref().map(|error| format!("{}: {}", error.code.as_str(), error.message));
    let mut rows = vec![
        ("run", envelope.run_id.to_string()),
        ("session", text(raw, "session_id")),
        ("state", envelope.state.as_str().to_owned()),
        ("turn", turn),
        ("outcome", outcome.to_owned()),
        ("error", error.unwrap_or_default()),
    ];
    if let Some(blocker) = &envelope.blocker {
        rows.push(("tripped", blocker.tripped.clone()));
        rows.push(("last safe state", blocker.last_safe_state.clone()));
        rows.push(("next action", blocker.next_action.clone()));
    }
    if envelope.truncated {
        rows.push(("note", "the output is longer than what is kept, and was cut".to_owned()));
    }
    screen.labels(&rows)?;
    if !envelope.output.is_empty() {
        screen.line("")?;
        screen.foreign(&envelope.output)?;
    }
    Ok(())
}

/// A field as a cell: strings bare, null and absent as nothing.
pub fn text(object: &Value, field: &str) -> String {
    match object.get(field) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

pub fn time(object: &Value, field: &str) -> Option<Timestamp> {
    serde_json::from_value(object.get(field)?.clone()).ok()
}

/// How long before `now` the field's moment was. `now` is the server's (`as_of`): two clocks are not
/// compared.
pub fn age(object: &Value, field: &str, now: Option<Timestamp>) -> String {
    match (time(object, field), now) {
        (Some(at), Some(now)) => span(now.since(at).as_secs()),
        _ => text(object, field),
    }
}

/// How long after `now` it is.
pub fn remaining(object: &Value, field: &str, now: Option<Timestamp>) -> String {
    match (time(object, field), now) {
        (Some(at), Some(now)) => span(at.since(now).as_secs()),
        _ => text(object, field),
    }
}

/// Two units at the most.
pub fn span(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ages_are_told_by_the_servers_clock() {
        let row = json!({ "at": "2025-11-30T14:00:00.000Z" });
        let now = time(&json!({ "as_of": "2025-11-30T15:01:05.000Z" }), "as_of");
        assert_eq!(age(&row, "at", now), "1h01m");
        assert_eq!(age(&row, "at", None), "2025-11-30T14:00:00.000Z");
        assert_eq!(age(&row, "absent", now), "");
    }

    #[test]
    fn spans_show_two_units() {
        assert_eq!([span(5), span(65), span(3_720), span(90_000)], ["5s", "1m05s", "1h02m", "1d01h"]);
    }
}
