//! A frame at another place: its log was copied to where positions are others.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use crate::Mark;
use crate::frame::{FRAME_VERSION, FrameError};

type Fields = BTreeMap<String, Box<RawValue>>;

/// The frame with every position in it told anew. `place` knows the new position of each frame of the log that was
/// copied before this one; a position that it does not know is of a frame that was folded away, and becomes zero: nothing
/// before it can be read.
///
/// What else the frame says stays byte for byte, also what this program does not know.
pub fn relocate(frame: &[u8], place: impl Fn(u64) -> Option<u64>) -> Result<Vec<u8>, FrameError> {
    let mut fields: Fields = hearth_types::from_own_json(frame)?;
    let found = read::<u32>(&fields, "v")?.unwrap_or_default();
    // A newer frame may hold positions that are not known here.
    if found > FRAME_VERSION {
        return Err(FrameError::Newer { found });
    }
    for name in ["prev", "snapshot", "floor"] {
        if let Some(old) = read::<u64>(&fields, name)? {
            let new = if old == 0 { 0 } else { place(old).unwrap_or_default() };
            fields.insert(name.to_owned(), to_raw_value(&new)?);
        }
    }
    let mut events: Vec<Box<RawValue>> = read(&fields, "events")?.unwrap_or_default();
    if let Some(first) = events.first_mut()
        && let Some(moved) = relocate_snapshot(first, &place)?
    {
        *first = moved;
        fields.insert("events".to_owned(), to_raw_value(&events)?);
    }
    Ok(serde_json::to_vec(&fields)?)
}

/// A snapshot names the snapshots before it; no other event names a position.
fn relocate_snapshot(
    event: &RawValue,
    place: &impl Fn(u64) -> Option<u64>,
) -> Result<Option<Box<RawValue>>, FrameError> {
    let mut fields: Fields = hearth_types::from_own_json(event.get().as_bytes())?;
    if read::<String>(&fields, "type")?.as_deref() != Some("snapshot") {
        return Ok(None);
    }
    let Some(marks) = read::<Vec<Mark>>(&fields, "earlier")? else { return Ok(None) };
    let still_there = |mark: Mark| Some(Mark { position: place(mark.position)?, ..mark });
    let marks: Vec<Mark> = marks.into_iter().filter_map(still_there).collect();
    fields.insert("earlier".to_owned(), to_raw_value(&marks)?);
    Ok(Some(to_raw_value(&fields)?))
}

fn read<T: DeserializeOwned>(fields: &Fields, name: &str) -> Result<Option<T>, FrameError> {
    Ok(match fields.get(name) {
        Some(raw) => Some(serde_json::from_str(raw.get())?),
        None => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn moved(frame: &Value) -> Value {
        let place = |old: u64| (old >= 100).then_some(old / 100);
        serde_json::from_slice(&relocate(frame.to_string().as_bytes(), place).unwrap()).unwrap()
    }

    #[test]
    fn every_position_is_told_anew_and_nothing_else_changes() {
        let event = json!({
            "type": "snapshot", "run": { "prev": 300, "not known": [1.5, 1e300] },
            "earlier": [{ "seq": 2, "position": 7 }, { "seq": 9, "position": 400 }],
        });
        let frame = json!({
            "v": 1, "epoch": 3, "append_id": "a", "prev": 500, "snapshot": 300, "floor": 200, "first_seq": 8, "at": 0,
            "events": [event, { "type": "closed" }], "later": { "floor": 100 },
        });
        let mut expected = frame.clone();
        expected["prev"] = json!(5);
        expected["snapshot"] = json!(3);
        expected["floor"] = json!(2);
        // The first mark's frame was folded away.
        expected["events"][0]["earlier"] = json!([{ "seq": 9, "position": 4 }]);
        assert_eq!(moved(&frame), expected);
    }

    #[test]
    fn what_was_folded_away_has_no_position() {
        let frame =
            json!({ "v": 1, "prev": 7, "snapshot": 7, "floor": 0, "events": [{ "type": "text", "earlier": 5 }] });
        let expected =
            json!({ "v": 1, "prev": 0, "snapshot": 0, "floor": 0, "events": [{ "type": "text", "earlier": 5 }] });
        assert_eq!(moved(&frame), expected);
    }

    #[test]
    fn a_frame_of_a_newer_version_is_not_touched() {
        let error = relocate(br#"{"v": 9, "prev": 1}"#, |_| None).unwrap_err();
        assert!(matches!(error, FrameError::Newer { found: 9 }), "{error}");
    }
}
