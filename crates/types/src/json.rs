//! JSON that is read back: what was taken in at a bounded depth can be read however it is wrapped.

use serde::Deserialize;
use serde_json::{Deserializer, Error, Value};

use crate::limits;

/// Levels of what this program writes: callers' JSON, and what it is wrapped in.
const MAX_OWN_DEPTH: usize = limits::MAX_JSON_DEPTH + 64;

/// Decodes what this program wrote. serde_json gives up at 128 levels, the very depth that callers may
/// use: wrapped in an event, a body of that depth could be written and never read again. What nests even
/// deeper was not written by this program, and is refused before it can overflow the stack.
pub fn from_own_json<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
    match serde_json::from_slice(bytes) {
        // Nearly all is shallow, and costs no second look.
        Err(error) if error.is_syntax() => match depth(bytes) {
            limits::MAX_JSON_DEPTH..=MAX_OWN_DEPTH => unbounded(bytes),
            _ => Err(error),
        },
        read => read,
    }
}

/// How deep the brackets of a text nest.
fn depth(bytes: &[u8]) -> usize {
    let (mut level, mut deepest, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in bytes {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => {
                level += 1;
                deepest = deepest.max(level);
            }
            (false, b']' | b'}') => level = level.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

fn unbounded<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, Error> {
    let mut reader = Deserializer::from_slice(bytes);
    reader.disable_recursion_limit();
    let value = T::deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Whether a value nests deeper than callers' JSON may.
pub fn is_too_deep(value: &Value) -> bool {
    let mut level = vec![value];
    for _ in 0..limits::MAX_JSON_DEPTH {
        level = level
            .into_iter()
            .flat_map(|value| match value {
                Value::Array(items) => items.iter().collect::<Vec<_>>(),
                Value::Object(fields) => fields.values().collect(),
                _ => Vec::new(),
            })
            .collect();
        if level.is_empty() {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn what_callers_may_nest_can_be_read_back_inside_an_event() {
        let wrapped = format!("{{\"a\":{{\"b\":{}}}}}", nested(limits::MAX_JSON_DEPTH));
        assert!(serde_json::from_str::<Value>(&wrapped).is_err());
        assert!(from_own_json::<Value>(wrapped.as_bytes()).is_ok());
    }

    #[test]
    fn what_nests_deeper_than_anything_written_here_is_refused_and_overflows_nothing() {
        for levels in [MAX_OWN_DEPTH + 1, 1_000_000] {
            assert!(from_own_json::<Value>(nested(levels).as_bytes()).is_err(), "{levels}");
        }
        assert!(from_own_json::<Value>(nested(MAX_OWN_DEPTH).as_bytes()).is_ok());
        assert!(from_own_json::<Value>("[".repeat(1_000_000).as_bytes()).is_err());
        // Brackets inside of strings are text.
        let text = format!("[\"\\\"{}\"]", "[".repeat(5_000));
        assert!(from_own_json::<Value>(text.as_bytes()).is_ok());
    }

    #[test]
    fn depth_is_counted_as_at_the_door() {
        let value = |levels: usize| from_own_json::<Value>(nested(levels).as_bytes().to_vec().leak()).unwrap();
        assert!(!is_too_deep(&value(limits::MAX_JSON_DEPTH)));
        assert!(is_too_deep(&value(limits::MAX_JSON_DEPTH + 1)));
    }
}
