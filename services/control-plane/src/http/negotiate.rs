//! What the headers of a request ask for.

use axum::http::{HeaderMap, HeaderName, Method, header};
use hearth_api::StreamFrom;
use hearth_types::{Fault, TraceContext, limits};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The one value of a header; `None` when it is absent, an error when it is there twice.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a [u8]>, Fault> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    match values.next() {
        None => Ok(first.map(axum::http::HeaderValue::as_bytes)),
        Some(other) => Err(Fault::invalid(name.as_str(), String::from_utf8_lossy(other.as_bytes()), "given once")),
    }
}

/// The key of a command.
///
/// # Errors
/// `invalid_argument`: empty, longer than 128 characters, not text, given twice.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Fault> {
    let Some(bytes) = single(headers, &IDEMPOTENCY_KEY)? else { return Ok(None) };
    let text =
        std::str::from_utf8(bytes).ok().filter(|text| (1..=limits::MAX_KEY_CHARS).contains(&text.chars().count()));
    let allowed = "1 to 128 characters of text, given once";
    text.map(|text| Some(text.to_owned()))
        .ok_or_else(|| Fault::invalid("Idempotency-Key", String::from_utf8_lossy(bytes), allowed))
}

/// The caller's trace; one that is malformed counts as absent, as the W3C recommendation says.
pub fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let bytes = single(headers, &TRACEPARENT).ok()??;
    TraceContext::parse(std::str::from_utf8(bytes).ok()?)
}

/// Where a stream starts: `Last-Event-ID` counts before `from_seq`.
///
/// # Errors
/// `invalid_argument` for a header that is no event id.
pub fn stream_start(headers: &HeaderMap, from_seq: Option<u64>) -> Result<StreamFrom, Fault> {
    let Some(bytes) = single(headers, &LAST_EVENT_ID)? else { return Ok(StreamFrom { seq: from_seq.unwrap_or(0) }) };
    let digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(bytes).ok().filter(|_| digits);
    match text.and_then(|text| text.parse::<u64>().ok()).and_then(|seen| seen.checked_add(1)) {
        Some(seq) => Ok(StreamFrom { seq }),
        None => {
            Err(Fault::invalid("Last-Event-ID", String::from_utf8_lossy(bytes), "the `id` of an event seen earlier"))
        }
    }
}

/// Whether the client would rather have an event stream than JSON.
pub fn wants_stream(headers: &HeaderMap) -> bool {
    let listed = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut best = (0u32, false);
    for range in listed.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1_000, thousandths);
        let stream = media.eq_ignore_ascii_case("text/event-stream");
        // Of two that are wanted alike the one that was named first.
        if (stream || media.eq_ignore_ascii_case("application/json")) && weight > best.0 {
            best = (weight, stream);
        }
    }
    best.1
}

/// A weight of 0 to 1 with up to three decimals, in thousandths.
fn thousandths(weight: &str) -> u32 {
    let (whole, decimals) = weight.split_once('.').unwrap_or((weight, ""));
    format!("{whole}{decimals:0<3}").parse().unwrap_or(1_000)
}

/// The one `Authorization` header.
pub fn authorization(headers: &HeaderMap) -> Option<&str> {
    let bytes = single(headers, &header::AUTHORIZATION).ok()??;
    std::str::from_utf8(bytes).ok()
}

/// A header as text, where it is text.
pub fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    single(headers, name).ok()?.map(|bytes| std::str::from_utf8(bytes).unwrap_or("not text"))
}

/// Faults that come from the surface alone.
pub fn method_not_allowed(method: &Method) -> Fault {
    Fault::invalid("method", method, "those that the header `Allow` lists for this path")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use hearth_types::FaultCode;
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, axum::http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn a_key_is_text_of_up_to_128_characters() {
        let key = |value: &str| idempotency_key(&headers(&[("idempotency-key", value)]));
        assert_eq!(key("k-1").unwrap().as_deref(), Some("k-1"));
        assert_eq!(key(&"é".repeat(128)).unwrap().unwrap().chars().count(), 128);
        for bad in [String::new(), "x".repeat(129), "é".repeat(129)] {
            assert_eq!(key(&bad).unwrap_err().code, FaultCode::InvalidArgument);
        }
        assert!(idempotency_key(&headers(&[("idempotency-key", "a"), ("idempotency-key", "a")])).is_err());
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn the_event_id_of_the_header_is_exclusive_and_counts_before_the_parameter() {
        let start = |value: &str| stream_start(&headers(&[("last-event-id", value)]), Some(3)).map(|from| from.seq);
        assert_eq!(start("7").unwrap(), 8);
        assert_eq!(start("0").unwrap(), 1);
        for bad in ["", "x", "-1", "+1", "1.0", "18446744073709551615", "99999999999999999999"] {
            assert!(start(bad).is_err(), "{bad:?}");
        }
        assert_eq!(stream_start(&HeaderMap::new(), Some(3)).unwrap().seq, 3);
        assert_eq!(stream_start(&HeaderMap::new(), None).unwrap().seq, 0);
    }

    #[test]
    fn a_stream_is_given_to_those_who_would_rather_have_it() {
        let wants = |value: &str| wants_stream(&headers(&[("accept", value)]));
        for yes in ["text/event-stream", "Text/Event-Stream; q=0.5", "text/event-stream, application/json"] {
            assert!(wants(yes), "{yes}");
        }
        assert!(wants("application/json;q=0.1, text/event-stream;q=0.2"));
        for no in ["*/*", "application/json", "application/json, text/event-stream", "text/event-stream;q=0", ""] {
            assert!(!wants(no), "{no}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_header_is_taken_or_refused_by_its_name(
            values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..3),
            digits in proptest::option::of("[0-9]{0,25}"),
            from_seq in proptest::option::of(any::<u64>()),
        ) {
            let values = values.into_iter().chain(digits.map(String::into_bytes));
            let values: Vec<HeaderValue> = values.filter_map(|bytes| HeaderValue::from_bytes(&bytes).ok()).collect();
            let under = |name: &HeaderName| {
                let mut headers = HeaderMap::new();
                for value in &values {
                    headers.append(name, value.clone());
                }
                headers
            };
            match idempotency_key(&under(&IDEMPOTENCY_KEY)) {
                Ok(key) => prop_assert_eq!(key.map(String::into_bytes), values.first().map(|v| v.as_bytes().to_vec())),
                Err(fault) => prop_assert!(fault.to_string().to_lowercase().contains("idempotency-key"), "{}", fault),
            }
            match stream_start(&under(&LAST_EVENT_ID), from_seq) {
                Ok(from) => prop_assert!(values.len() <= 1 && (!values.is_empty() || from.seq == from_seq.unwrap_or(0))),
                Err(fault) => prop_assert!(fault.to_string().to_lowercase().contains("last-event-id"), "{}", fault),
            }
            if let Some(trace) = trace(&under(&TRACEPARENT)) {
                prop_assert_eq!((values.len(), trace.trace_id().len()), (1, 32));
            }
            wants_stream(&under(&header::ACCEPT));
            authorization(&under(&header::AUTHORIZATION));
        }
    }

    #[test]
    fn a_malformed_trace_counts_as_absent() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(trace(&headers(&[("traceparent", good)])).unwrap().as_str(), good);
        assert!(trace(&headers(&[("traceparent", "00-x")])).is_none());
        assert!(trace(&headers(&[("traceparent", good), ("traceparent", good)])).is_none());
    }
}
