//! The ceiling check: whether a proposed set of tool patterns stays under another one.
//!
//! It works on the raw patterns and never on the set of tools that exist today: a tool that is added
//! tomorrow must not turn a narrow definition into a broad one.

use hearth_types::ToolPattern;

use crate::Refusal;

/// A pattern that is neither a tool's name nor a prefix that ends in `*`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("a tool pattern is empty")]
    Empty,
    #[error("`*` may only stand at the end of a tool pattern")]
    StarInside,
    #[error("a tool pattern has at most 256 characters")]
    TooLong,
    #[error("a tool pattern holds no white space and no control characters")]
    Character,
}

/// Checks the form of one pattern.
pub fn check_pattern(pattern: &ToolPattern) -> Result<(), PatternError> {
    let text = pattern.0.as_str();
    if text.is_empty() {
        return Err(PatternError::Empty);
    }
    if text.chars().count() > 256 {
        return Err(PatternError::TooLong);
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(PatternError::Character);
    }
    if text.strip_suffix('*').unwrap_or(text).contains('*') {
        return Err(PatternError::StarInside);
    }
    Ok(())
}

/// Whether one ceiling entry covers one proposed entry: they are equal, or the ceiling entry ends in
/// `*` and its prefix begins the proposed one, so that it is at least as broad.
pub fn covers(ceiling: &ToolPattern, proposed: &ToolPattern) -> bool {
    if ceiling == proposed {
        return true;
    }
    let Some(prefix) = ceiling.0.strip_suffix('*') else { return false };
    proposed.0.strip_suffix('*').unwrap_or(&proposed.0).starts_with(prefix)
}

/// Refuses the first proposed entry that no ceiling entry covers. An empty ceiling admits nothing.
pub fn check_ceiling(ceiling: &[ToolPattern], proposed: &[ToolPattern]) -> Result<(), Refusal> {
    for entry in proposed {
        if let Err(error) = check_pattern(entry) {
            return Err(Refusal::BadPattern { pattern: entry.0.clone(), error });
        }
        if !ceiling.iter().any(|above| check_pattern(above).is_ok() && covers(above, entry)) {
            return Err(Refusal::AboveCeiling { pattern: entry.0.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(texts: &[&str]) -> Vec<ToolPattern> {
        texts.iter().map(|text| ToolPattern((*text).to_owned())).collect()
    }

    fn passes(ceiling: &[&str], proposed: &[&str]) -> bool {
        check_ceiling(&patterns(ceiling), &patterns(proposed)).is_ok()
    }

    #[test]
    fn an_entry_passes_when_it_equals_a_ceiling_entry_or_is_covered_by_a_broader_one() {
        assert!(passes(&["Agent"], &["Agent"]));
        assert!(passes(&["mcp__sandbox__*"], &["mcp__sandbox__*"]));
        assert!(passes(&["mcp__*"], &["mcp__sandbox__*", "mcp__sandbox__sandbox_exec"]));
        assert!(passes(&["*"], &["*", "Agent", "mcp__*"]));
        assert!(passes(&["mcp__*"], &["mcp__"]));
    }

    #[test]
    fn a_broader_entry_never_passes() {
        assert!(!passes(&["mcp__sandbox__*"], &["mcp__*"]));
        assert!(!passes(&["mcp__sandbox__*"], &["*"]));
        assert!(!passes(&["mcp__sandbox__sandbox_exec"], &["mcp__sandbox__sandbox_exec*"]));
        assert!(!passes(&["Agent", "mcp__*"], &["Agent", "mcp_*"]));
    }

    #[test]
    fn an_empty_ceiling_admits_nothing_and_nothing_is_always_admitted() {
        assert!(!passes(&[], &["Agent"]));
        assert!(passes(&[], &[]));
    }

    #[test]
    fn a_malformed_entry_never_passes_on_either_side() {
        for bad in ["", "a*b", "**", "a b", "a\u{7}"] {
            assert!(!passes(&["*", bad], &[bad]), "{bad:?}");
        }
        assert!(!passes(&["a**"], &["a*"]));
    }

    fn pattern() -> impl Strategy<Value = ToolPattern> {
        "[ab]{0,4}\\*?".prop_map(ToolPattern)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn whatever_a_passing_set_admits_the_ceiling_admits(
            ceiling in prop::collection::vec(pattern(), 0..4),
            proposed in prop::collection::vec(pattern(), 0..4),
            tool in "[ab]{0,6}",
        ) {
            if check_ceiling(&ceiling, &proposed).is_ok() && proposed.iter().any(|entry| entry.admits(&tool)) {
                prop_assert!(ceiling.iter().any(|entry| entry.admits(&tool)));
            }
        }

        #[test]
        fn a_set_passes_exactly_when_each_entry_is_equal_or_under_a_prefix(
            ceiling in prop::collection::vec(pattern(), 0..4),
            proposed in prop::collection::vec(pattern(), 0..4),
        ) {
            let well_formed = |entry: &ToolPattern| !entry.0.is_empty();
            let expected = proposed.iter().all(|entry| well_formed(entry) && ceiling.iter().any(|above| {
                well_formed(above) && (above == entry || match above.0.split_once('*') {
                    Some((prefix, _)) => entry.0.trim_end_matches('*').starts_with(prefix),
                    None => false,
                })
            }));
            prop_assert_eq!(check_ceiling(&ceiling, &proposed).is_ok(), expected);
        }

        #[test]
        fn passing_is_transitive(
            top in prop::collection::vec(pattern(), 0..4),
            middle in prop::collection::vec(pattern(), 0..4),
            bottom in prop::collection::vec(pattern(), 0..4),
        ) {
            if check_ceiling(&top, &middle).is_ok() && check_ceiling(&middle, &bottom).is_ok() {
                prop_assert!(check_ceiling(&top, &bottom).is_ok());
            }
        }
    }
}
