//! Query strings: every parameter known, given once, and of its type.

use hearth_types::Fault;
use serde::de::DeserializeOwned;

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
    serde_path_to_error::deserialize(reader).map_err(|error| {
        // serde_urlencoded does not keep track of where it is: the parameter is found by its value.
        let culprit = culprit::<T>(query).unwrap_or_else(|| "the query".to_owned());
        Fault::misfit(&culprit, &error.path().to_string(), &error.inner().to_string())
    })
}

/// The first parameter that is refused on its own.
fn culprit<T: DeserializeOwned>(query: &str) -> Option<String> {
    let alone = |name: &str, value: &str| {
        let one = form_urlencoded::Serializer::new(String::new()).append_pair(name, value).finish();
        let reader = serde_urlencoded::Deserializer::new(form_urlencoded::parse(one.as_bytes()));
        T::deserialize(reader).is_ok()
    };
    form_urlencoded::parse(query.as_bytes())
        .find(|(name, value)| !alone(name, value))
        .map(|(name, _)| name.into_owned())
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
        assert!(decode::<Poll>(Some("turn_id=..")).is_err());
    }
}
