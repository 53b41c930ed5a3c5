//! Query strings: every parameter known, given once, and of its type.

use hearth_types::{Fault, expected};
use serde::de::DeserializeOwned;

/// What `limit` may be, wherever there is one.
pub const LIMIT: &str = "a whole number from 1 to 500";

/// The parameters of a request.
///
/// # Errors
/// `invalid_argument` that names the parameter.
pub fn decode<T: DeserializeOwned>(query: Option<&str>) -> Result<T, Fault> {
    let query = query.unwrap_or_default();
    let pairs = || form_urlencoded::parse(query.as_bytes());
    for (index, (name, value)) in pairs().enumerate() {
        if pairs().take(index).any(|(earlier, _)| earlier == name) {
            return Err(Fault::invalid(&name, value, "given once"));
        }
    }
    let reader = serde_urlencoded::Deserializer::new(pairs());
    T::deserialize(reader).map_err(|error| {
        // serde_urlencoded does not keep track of where it is: the parameter is found by its value.
        match pairs().find_map(|(name, value)| misfit::<T>(&name, &value)) {
            Some(fault) => fault,
            None => Fault::misfit("the query", "", &error.to_string()),
        }
    })
}

/// What is wrong with a parameter on its own.
fn misfit<T: DeserializeOwned>(name: &str, value: &str) -> Option<Fault> {
    let one = form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
    let reader = serde_urlencoded::Deserializer::new(form_urlencoded::parse(one.as_bytes()));
    let said = T::deserialize(reader).err()?.to_string();
    if said.contains(", expected ") || said.starts_with("missing field") {
        return Some(Fault::misfit(name, "", &said));
    }
    // Of numbers and flags it is not said what they may be.
    let allowed = match name {
        "limit" => Some(LIMIT.to_owned()),
        _ => expected::<T>(name).filter(|allowed| allowed != "a string"),
    };
    Some(Fault::invalid(name, value, &allowed.unwrap_or(said)))
}

#[cfg(test)]
mod tests {
    use hearth_api::{ListRuns, Page, Poll};
    use hearth_types::{FaultCode, RunState};

    use super::*;

    #[test]
    fn parameters_are_decoded_and_unescaped() {
        let list: ListRuns = decode(Some("state=awaiting_input&agent=chat%2Fmedium&resident=true&limit=7")).unwrap();
        assert_eq!(list.state, Some(RunState::AwaitingInput));
        assert_eq!(list.agent.as_deref(), Some("chat/medium"));
        assert_eq!((list.resident, list.limit), (Some(true), Some(7)));
        assert!(decode::<Page>(None).unwrap().limit.is_none());
    }

    #[test]
    fn a_parameter_that_is_wrong_is_refused_by_name() {
        for (query, named) in [
            ("limit=x", "limit"),
            ("limit=-1", "limit"),
            ("limit=1&limit=2", "limit"),
            ("limit=99999999999", "limit"),
            ("state=sleeping", "state"),
            ("agent=a&resident=yes", "resident"),
            ("root_run_id=a%2Fb", "root_run_id"),
            ("root_run_id=%00", "root_run_id"),
            ("colour=red", "colour"),
            ("limit", "limit"),
        ] {
            let fault = decode::<ListRuns>(Some(query)).unwrap_err();
            assert_eq!(fault.code, FaultCode::InvalidArgument);
            assert_eq!(fault.details.unwrap()["field"], named, "{query}");
        }
        for (query, value, allowed) in [
            ("limit=abc", "abc", LIMIT),
            ("limit=99999999999", "99999999999", LIMIT),
            ("limit=", "", LIMIT),
            ("resident=yes", "yes", "true or false"),
            ("state=sleeping", "sleeping", "one of `running`, `awaiting_input`, `completed`, `failed`, `closed`"),
            ("root_run_id=a%2Fb", "a/b", "1 to 128 characters of A-Z a-z 0-9 _ -"),
        ] {
            let details = decode::<ListRuns>(Some(query)).unwrap_err().details.unwrap();
            assert_eq!(
                (details["value"].as_str(), details["allowed"].as_str()),
                (Some(value), Some(allowed)),
                "{query}"
            );
        }
        let details = decode::<Poll>(Some("timeout_ms=-1")).unwrap_err().details.unwrap();
        assert_eq!(details["value"], "-1");
        assert_eq!(details["allowed"], "a whole number of 0 or more");
        assert!(decode::<Poll>(Some("turn_id=..")).is_err());
    }
}
