//! The W3C trace context that a command carries and a journal keeps.

use serde::{Deserialize, Serialize};

/// The value of a `traceparent` header: `00-TRACE_ID-SPAN_ID-FLAGS`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TraceContext(String);

impl TraceContext {
    /// Accepts a well-formed version-00 header whose ids are not all zero.
    pub fn parse(header: &str) -> Option<Self> {
        let parts: Vec<&str> = header.split('-').collect();
        let [version, trace, span, flags] = parts.as_slice() else { return None };
        let hex =
            |text: &str, len: usize| text.len() == len && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let set = |text: &str| text.bytes().any(|b| b != b'0');
        let fits = *version == "00" && hex(trace, 32) && hex(span, 16) && hex(flags, 2) && set(trace) && set(span);
        fits.then(|| Self(header.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 32 hex digits that all spans of the trace share.
    pub fn trace_id(&self) -> &str {
        self.0.get(3..35).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_header_is_a_trace_context() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(TraceContext::parse(good).unwrap().trace_id(), "0af7651916cd43dd8448eb211c80319c");
        for bad in ["", "00-x-y-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            assert!(TraceContext::parse(bad).is_none(), "{bad}");
        }
    }
}
