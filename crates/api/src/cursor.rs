//! Cursors of lists: opaque to callers, and valid while rows are added.

use hearth_types::{Fault, RunId, Timestamp};

fn bad(cursor: &str) -> Fault {
    Fault::invalid("cursor", cursor, "the `next_cursor` of an answer to the same list")
}

/// The place after one run, in the order newest first.
pub(crate) fn encode_run(created_at: Timestamp, run_id: &RunId) -> String {
    format!("{:x}.{run_id}", created_at.as_millis())
}

pub(crate) fn decode_run(cursor: &str) -> Result<(Timestamp, RunId), Fault> {
    let (ms, run_id) = cursor.split_once('.').ok_or_else(|| bad(cursor))?;
    let ms = i64::from_str_radix(ms, 16).map_err(|_| bad(cursor))?;
    let run_id = RunId::parse(run_id).map_err(|_| bad(cursor))?;
    Ok((Timestamp::from_millis(ms), run_id))
}

/// After the item at this place in the order of its list.
pub(crate) fn encode_place(place: &str) -> String {
    format!("p{}", hex::encode(place))
}

pub(crate) fn decode_place(cursor: &str) -> Result<String, Fault> {
    let place = cursor.strip_prefix('p').and_then(|place| hex::decode(place).ok());
    place.and_then(|place| String::from_utf8(place).ok()).ok_or_else(|| bad(cursor))
}

/// The place of what began at a time, in the order newest first.
pub(crate) fn newest_first(at: Timestamp, id: impl std::fmt::Display) -> String {
    format!("{:016x}{id}", i64::MAX - at.as_millis().max(0))
}

/// The number of items before the page, for what is only ever added to at its end.
pub(crate) fn decode_offset(cursor: Option<&str>) -> Result<usize, Fault> {
    match cursor {
        None => Ok(0),
        Some(cursor) => cursor.strip_prefix('o').and_then(|n| n.parse().ok()).ok_or_else(|| bad(cursor)),
    }
}

pub(crate) fn encode_offset(offset: usize) -> String {
    format!("o{offset}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_leads_back_to_its_place_and_anything_else_is_refused() {
        let (at, run) = (Timestamp::from_millis(1_764_511_200_007), RunId::generate());
        assert_eq!(decode_run(&encode_run(at, &run)).unwrap(), (at, run));
        for bad in ["", "x", "zz.run_1", "1f.", "1f.a/b"] {
            assert!(decode_run(bad).is_err(), "{bad}");
        }
        assert!(decode_offset(Some("5")).is_err());
        assert_eq!(decode_place(&encode_place("chat/ä")).unwrap(), "chat/ä");
        for bad in ["", "5", "px", "p1", "pff"] {
            assert!(decode_place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_newer_comes_first() {
        let place = |ms| newest_first(Timestamp::from_millis(ms), "x");
        assert!(place(1_764_511_200_007) < place(1_764_511_200_006) && place(5) < place(0));
    }
}
