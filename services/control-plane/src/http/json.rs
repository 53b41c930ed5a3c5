//! Bodies: JSON read strictly, within bounds, and decoded with the name of the field that is wrong.

use std::fmt;

use hearth_types::{Fault, FaultCode, limits};
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use sha2::{Digest, Sha256};

/// Fields that say how long to wait, and so do not make two commands different.
const TIME_OUTS: &[&str] = &["timeout_ms", "wait_ms"];

/// Places where only an object will do; serde would take an array for one, field by field.
const OBJECTS: &[&[&str]] = &[&["sandbox"], &["sandbox", "limits"]];

/// The object that a body holds; an empty body holds an empty one.
///
/// # Errors
/// `invalid_argument`: malformed, nested too deep, a name twice in one object, no object.
pub fn parse(body: &[u8]) -> Result<Value, Fault> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Object(Map::new()));
    }
    let mut reader = serde_json::Deserializer::from_slice(body);
    // The seed has a bound of its own, which is one level wider and known to callers.
    reader.disable_recursion_limit();
    let parsed = Strict { level: 0 }.deserialize(&mut reader).and_then(|value| reader.end().map(|()| value));
    let mut value =
        parsed.map_err(|error| wrong("body", &format!("the body is no JSON that is accepted here: {error}")))?;
    let Some(fields) = value.as_object_mut() else {
        return Err(wrong("body", "the body is no JSON object: send {…}"));
    };
    fields.values_mut().for_each(whole_number);
    for path in OBJECTS {
        if path.iter().try_fold(&value, |at, name| at.get(name)).is_some_and(Value::is_array) {
            let field = path.join(".");
            return Err(wrong(&field, &format!("`{field}` is an array; allowed: an object")));
        }
    }
    Ok(value)
}

/// JSON knows one kind of number: `5.0` is the whole number 5 wherever one is asked for. What is
/// deeper, such as metadata, stays as it was written.
fn whole_number(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(number) =
        value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0 && number.abs() < EXACT)
    {
        *value = Value::from(number as i64);
    }
}

/// A request from the object of its body.
///
/// # Errors
/// `invalid_argument` that names the field.
pub fn decode<T: DeserializeOwned>(body: Value) -> Result<T, Fault> {
    hearth_types::decode("body", body)
}

fn wrong(field: &str, message: &str) -> Fault {
    let field: String = field.chars().take(200).collect();
    let message: String = message.chars().take(1_000).collect();
    Fault::new(FaultCode::InvalidArgument, message).with_details(serde_json::json!({ "field": field }))
}

/// The hash that two bodies share when they mean the same command: the order of fields and the
/// time-outs do not count.
pub fn digest(body: &Value) -> String {
    let mut hash = Sha256::new();
    match body {
        Value::Object(fields) => {
            hash_object(&mut hash, fields.iter().filter(|(name, _)| !TIME_OUTS.contains(&name.as_str())));
        }
        other => hash_value(&mut hash, other),
    }
    hex::encode(hash.finalize())
}

fn hash_value(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Null => hash.update(b"n"),
        Value::Bool(flag) => hash.update(if *flag { b"t" } else { b"f" }),
        Value::Number(number) => hash_text(hash, b'd', &number.to_string()),
        Value::String(text) => hash_text(hash, b's', text),
        Value::Array(items) => {
            hash_head(hash, b'a', items.len());
            items.iter().for_each(|item| hash_value(hash, item));
        }
        Value::Object(fields) => hash_object(hash, fields.iter()),
    }
}

fn hash_object<'a>(hash: &mut Sha256, fields: impl Iterator<Item = (&'a String, &'a Value)>) {
    // Whether a map of serde_json is sorted depends on how the whole program was built.
    let mut fields: Vec<_> = fields.collect();
    fields.sort_by_key(|(name, _)| name.as_str());
    hash_head(hash, b'o', fields.len());
    for (name, value) in fields {
        hash_text(hash, b'k', name);
        hash_value(hash, value);
    }
}

fn hash_head(hash: &mut Sha256, tag: u8, count: usize) {
    hash.update([tag]);
    hash.update((count as u64).to_be_bytes());
}

fn hash_text(hash: &mut Sha256, tag: u8, text: &str) {
    hash_head(hash, tag, text.len());
    hash.update(text.as_bytes());
}

/// Builds a value and refuses what serde_json would let pass or overflow the stack with.
#[derive(Clone, Copy)]
struct Strict {
    /// Arrays and objects around the value.
    level: usize,
}

impl Strict {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.level >= limits::MAX_JSON_DEPTH {
            return Err(E::custom(format!("it nests deeper than {} levels", limits::MAX_JSON_DEPTH)));
        }
        Ok(Self { level: self.level + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is not finite"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let inner = self.inner()?;
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                let name: String = name.chars().take(120).collect();
                return Err(A::Error::custom(format!("`{name}` is there twice in one object")));
            }
            let value = fields.next_value_seed(inner)?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use hearth_api::{CreateRun, OpenResident, Send};
    use serde_json::json;

    use super::*;

    fn fault_of<T: DeserializeOwned + fmt::Debug>(body: &str) -> Fault {
        parse(body.as_bytes()).and_then(decode::<T>).unwrap_err()
    }

    fn field(fault: &Fault) -> &str {
        fault.details.as_ref().unwrap()["field"].as_str().unwrap()
    }

    #[test]
    fn nesting_is_accepted_up_to_the_bound_and_refused_beyond_it() {
        let nested = |levels: usize| {
            let inner = levels - 1;
            format!("{{\"a\":{}{}}}", "[".repeat(inner), "]".repeat(inner))
        };
        parse(nested(limits::MAX_JSON_DEPTH).as_bytes()).unwrap();
        for levels in [limits::MAX_JSON_DEPTH + 1, 2_000, 1_000_000] {
            let fault = parse(nested(levels).as_bytes()).unwrap_err();
            assert_eq!(fault.code, FaultCode::InvalidArgument);
            assert!(fault.message.contains("128"), "{}", fault.message);
        }
        // Brackets inside of a string are text.
        parse(format!("{{\"a\":\"{}\"}}", "[".repeat(5_000)).as_bytes()).unwrap();
        assert!(parse("[".repeat(3_000).as_bytes()).is_err());
    }

    #[test]
    fn a_request_that_is_wrong_is_refused_with_the_field() {
        for (body, named) in [
            (r#"{"agent":"mock","prompt":"x","wait":1}"#, "wait"),
            (r#"{"prompt":"x"}"#, "agent"),
            (r#"{"agent":7}"#, "agent"),
            (r#"{"agent":"mock","wait_ms":-1}"#, "wait_ms"),
            (r#"{"agent":"mock","wait_ms":1.5}"#, "wait_ms"),
            (r#"{"agent":"mock","wait_ms":"1"}"#, "wait_ms"),
            (r#"{"agent":"mock","wait_ms":99999999999999999999999}"#, "wait_ms"),
            (r#"{"agent":"mock","segments":["a",2]}"#, "segments[1]"),
            (r#"{"agent":"mock","sandbox":{"scope":"mine"}}"#, "sandbox.scope"),
            (r#"{"agent":"mock","sandbox":{"limits":{"cpus":2}}}"#, "sandbox.limits.cpus"),
            (r#"{"agent":"mock","sandbox":["own"]}"#, "sandbox"),
            (r#"{"agent":"mock","isolation":"L4"}"#, "isolation"),
            (r#"{"agent":"mock","metadata":[]}"#, "metadata"),
            (r#"{"agent":"mock","interactive":null}"#, "interactive"),
        ] {
            let fault = fault_of::<CreateRun>(body);
            assert_eq!(fault.code, FaultCode::InvalidArgument);
            assert_eq!(field(&fault), named, "{body}: {}", fault.message);
            assert!(fault.message.contains(named), "{}", fault.message);
        }
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        for body in ["[]", "[\"mock\",\"x\"]", "1", "\"x\"", "null", "{", "{}{}", "{\"a\":1,}", "{'a':1}", "\u{feff}{}"]
        {
            assert_eq!(fault_of::<CreateRun>(body).code, FaultCode::InvalidArgument, "{body}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
        assert!(parse(br#"{"prompt":"a","prompt":"b"}"#).unwrap_err().message.contains("twice"));
    }

    #[test]
    fn an_absent_body_is_an_empty_object() {
        for body in ["", "  \r\n"] {
            assert_eq!(parse(body.as_bytes()).unwrap(), json!({}));
        }
        assert_eq!(field(&fault_of::<Send>("")), "prompt");
    }

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        let body = parse(br#"{"prompt":"x","timeout_ms":5.0}"#).unwrap();
        assert_eq!(decode::<Send>(body).unwrap().timeout_ms, Some(5));
        for other in ["-5.0", "5.5", "1e300"] {
            let fault = fault_of::<Send>(&format!("{{\"prompt\":\"x\",\"timeout_ms\":{other}}}"));
            assert_eq!(field(&fault), "timeout_ms", "{other}");
        }
    }

    #[test]
    fn an_empty_prompt_is_decoded_as_one() {
        let body = parse(br#"{"agent":"mock","prompt":""}"#).unwrap();
        assert_eq!(decode::<OpenResident>(body).unwrap().prompt, "");
    }

    #[test]
    fn the_digest_forgets_time_outs_and_order_and_nothing_else() {
        let of = |body: &str| digest(&parse(body.as_bytes()).unwrap());
        let first = of(r#"{"prompt":"x","metadata":{"a":1,"b":[1,2]},"timeout_ms":5}"#);
        assert_eq!(first, of(r#"{ "metadata":{"b":[1,2],"a":1}, "prompt":"\u0078", "wait_ms":9 }"#));
        for other in [
            r#"{"prompt":"y","metadata":{"a":1,"b":[1,2]}}"#,
            r#"{"prompt":"x","metadata":{"a":1,"b":[2,1]}}"#,
            r#"{"prompt":"x","metadata":{"a":1,"b":[1,2],"timeout_ms":5}}"#,
            r#"{"prompt":"x","metadata":{"a":"1","b":[1,2]}}"#,
            r#"{"prompt":"x","metadata":{"a":1,"b":[[1],2]}}"#,
        ] {
            assert_ne!(first, of(other), "{other}");
        }
    }
}
