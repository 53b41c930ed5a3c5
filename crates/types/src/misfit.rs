//! Faults from what serde says of a value that has another shape than was asked for.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use serde_path_to_error::{Path, Segment};

use crate::{Fault, FaultCode};

/// What serde_json expects where one of several names belongs; which ones it does not say.
const ANY_NAME: &str = "string or map";

/// A request from JSON; `whole` is the name of what is no field of it.
///
/// # Errors
/// `invalid_argument` that names the field, what it held and what is allowed.
pub fn decode<T: DeserializeOwned>(whole: &str, value: Value) -> Result<T, Fault> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let mut message = error.inner().to_string();
        if let Some(said) = message.strip_suffix(ANY_NAME) {
            let names = expected_at::<T>(error.path(), Value::String(String::new()));
            message = format!("{said}{}", names.as_deref().unwrap_or("a string"));
        }
        Fault::misfit(whole, &error.path().to_string(), &message)
    })
}

/// What a field of a request takes, in words, where its type alone says it.
pub fn expected<T: DeserializeOwned>(field: &str) -> Option<String> {
    said_of::<T>(json!({ field: [] }))
}

/// The same for what is deeper, by what is said of a value that does not fit there.
fn expected_at<T: DeserializeOwned>(path: &Path, misfit: Value) -> Option<String> {
    said_of::<T>(path.iter().rev().fold(misfit, |inner, segment| match segment {
        Segment::Map { key } => json!({ key: inner }),
        Segment::Seq { .. } => json!([inner]),
        Segment::Enum { .. } | Segment::Unknown => inner,
    }))
}

fn said_of<T: DeserializeOwned>(value: Value) -> Option<String> {
    let said = T::deserialize(value).err()?.to_string();
    said.split_once(", expected ").map(|(_, expected)| plain(expected)).filter(|words| words != ANY_NAME)
}

impl Fault {
    /// `path` is where serde was, `.` or nothing at the top, whose name is `whole`; `message` is what it said.
    pub fn misfit(whole: &str, path: &str, message: &str) -> Self {
        let field = field(whole, path, message);
        if message.starts_with("missing field") {
            return Self::missing(&field, "a value");
        }
        let (said, expected) = message.split_once(", expected ").unwrap_or((message, ""));
        let allowed = if expected.is_empty() { None } else { Some(plain(expected)) };
        match (held(said), allowed) {
            (Some(value), Some(allowed)) => Self::invalid(&field, value, &allowed),
            (_, allowed) => {
                let mut details = serde_json::json!({ "field": field });
                let mut message = format!("`{field}`: {said}");
                if let Some(allowed) = allowed {
                    message.push_str("; allowed: ");
                    message.push_str(&allowed);
                    details["allowed"] = allowed.into();
                }
                Self::new(FaultCode::InvalidArgument, bounded(&message, 1_000)).with_details(details)
            }
        }
    }
}

fn bounded(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// The field that the message is about.
fn field(whole: &str, path: &str, message: &str) -> String {
    let named = ["unknown field `", "missing field `", "duplicate field `"]
        .iter()
        .find_map(|prefix| message.strip_prefix(prefix)?.split('`').next());
    let field = match (path, named) {
        ("" | ".", None) => whole.to_owned(),
        ("" | ".", Some(name)) => name.to_owned(),
        // A missing field is told at its parent, an unknown one at its own place.
        (parent, Some(name)) if parent == name || parent.ends_with(&format!(".{name}")) => parent.to_owned(),
        (parent, Some(name)) => format!("{parent}.{name}"),
        (parent, None) => parent.to_owned(),
    };
    bounded(&field, 200)
}

/// What the value was, where serde says it.
fn held(said: &str) -> Option<&str> {
    if let Some(variant) = said.strip_prefix("unknown variant `") {
        return variant.strip_suffix('`');
    }
    let found = said.strip_prefix("invalid type: ").or_else(|| said.strip_prefix("invalid value: "))?;
    let quoted = |mark: char| found.split_once(mark)?.1.strip_suffix(mark);
    Some(match found {
        "map" => "an object",
        "sequence" => "an array",
        _ => quoted('`').or_else(|| quoted('"')).unwrap_or(found),
    })
}

/// What serde expected, in the words of JSON.
fn plain(expected: &str) -> String {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of 0 or more".to_owned(),
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        _ if expected.starts_with("struct ") => "an object".to_owned(),
        _ => expected.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "only its shape counts")]
    struct Asked {
        limit: Option<u32>,
        on: Option<bool>,
        specs: Vec<crate::SandboxSpec>,
    }

    #[test]
    fn names_that_are_allowed_are_listed_for_a_value_that_is_no_name() {
        for wrong in [json!(5), json!([]), json!(true)] {
            let fault = decode::<Asked>("body", json!({ "specs": [{}, { "scope": wrong }] })).unwrap_err();
            let details = fault.details.unwrap();
            assert_eq!(
                (&details["field"], &details["allowed"]),
                (&json!("specs[1].scope"), &json!("`shared` or `own`"))
            );
        }
    }

    #[test]
    fn what_a_field_takes_follows_from_its_type() {
        assert_eq!(expected::<Asked>("limit").unwrap(), "a whole number of 0 or more");
        assert_eq!(expected::<Asked>("on").unwrap(), "true or false");
    }

    #[test]
    fn a_missing_field_has_no_value() {
        let fault = decode::<Asked>("body", json!({})).unwrap_err();
        assert_eq!(fault.details.unwrap(), json!({ "field": "specs", "allowed": "a value" }));
        assert!(fault.message.contains("`specs` is missing"), "{}", fault.message);
    }

    fn details(path: &str, message: &str) -> serde_json::Value {
        let fault = Fault::misfit("body", path, message);
        assert_eq!(fault.code, FaultCode::InvalidArgument);
        fault.details.unwrap()
    }

    #[test]
    fn the_field_the_value_and_what_is_allowed_are_named() {
        for (path, message, field, value, allowed) in [
            ("wait_ms", "invalid value: integer `-1`, expected u64", "wait_ms", "-1", "a whole number of 0 or more"),
            ("a.b", "invalid type: string \"x\", expected a boolean", "a.b", "x", "true or false"),
            ("a", "invalid type: sequence, expected a string", "a", "an array", "a string"),
            ("a", "invalid type: null, expected a map", "a", "null", "an object"),
            (".", "invalid type: map, expected struct Send", "body", "an object", "an object"),
            ("mode", "unknown variant `zz`, expected `queue` or `steer`", "mode", "zz", "`queue` or `steer`"),
        ] {
            let expected = serde_json::json!({ "field": field, "value": value, "allowed": allowed });
            assert_eq!(details(path, message), expected, "{message}");
        }
    }

    #[test]
    fn a_field_that_is_unknown_or_missing_is_named_where_it_is() {
        let unknown = "unknown field `c`, expected one of `d`, `e`";
        for (path, message, field) in [
            (".", unknown, "c"),
            ("a.c", unknown, "a.c"),
            ("a", "missing field `b`", "a.b"),
            ("", "missing field `b`", "b"),
            ("", "what nobody knows", "body"),
        ] {
            assert_eq!(details(path, message)["field"], field, "{message}");
        }
        assert_eq!(details(".", unknown)["allowed"], "one of `d`, `e`");
    }

    #[test]
    fn a_long_name_or_value_is_cut() {
        let name = "x".repeat(10_000);
        let fault = Fault::misfit("body", ".", &format!("unknown field `{name}`, expected `a`"));
        assert!(fault.message.len() <= 1_000);
        assert!(fault.details.unwrap().to_string().len() < 500);
        let fault = Fault::misfit("body", "a", &format!("invalid type: string \"{name}\", expected u64"));
        assert!(fault.message.len() <= 1_000);
    }
}
