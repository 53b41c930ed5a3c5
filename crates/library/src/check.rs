//! What a well-formed definition is, beyond the types of its fields.

use std::fmt;

use hearth_types::{AgentDefinition, SandboxLimits, SandboxSpec};
use serde_json::Value;

use crate::ceiling::check_pattern;

/// A field that holds what is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldFault {
    /// The definition's own field, without a path.
    pub field: &'static str,
    /// What it holds, or the entry of it that is wrong.
    pub value: String,
    pub allowed: &'static str,
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is {:?}; allowed: {}", self.field, self.value, self.allowed)
    }
}

const AGENT_NAME: &str =
    "1 to 128 characters: segments of A-Z a-z 0-9 . _ - that begin with a letter or digit, with / between, at most 8";
const SKILL_NAME: &str = "1 to 64 characters of A-Z a-z 0-9 . _ - that begin with a letter or digit";

fn is_segment(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Checks the form of an agent's name, such as `chat/medium`.
pub fn check_agent_name(name: &str) -> Result<(), FieldFault> {
    let fits = name.len() <= 128 && name.split('/').count() <= 8 && name.split('/').all(is_segment);
    if fits { Ok(()) } else { Err(FieldFault { field: "name", value: name.to_owned(), allowed: AGENT_NAME }) }
}

/// Checks the form of a skill's name.
pub fn check_skill_name(name: &str) -> Result<(), FieldFault> {
    if is_segment(name) {
        Ok(())
    } else {
        Err(FieldFault { field: "name", value: name.to_owned(), allowed: SKILL_NAME })
    }
}

const UNENFORCED: &str = "{}, or nothing: this version does not enforce what it would ask for";

/// Checks a whole definition; all that is wrong, in the order of the fields.
pub fn check(definition: &AgentDefinition) -> Result<(), Vec<FieldFault>> {
    let mut faults = Vec::new();
    let mut wrong = |field: &'static str, value: String, allowed: &'static str| {
        faults.push(FieldFault { field, value, allowed });
    };
    if let Err(fault) = check_agent_name(&definition.name) {
        wrong(fault.field, fault.value, fault.allowed);
    }
    for pattern in definition.tools.iter().filter(|pattern| check_pattern(pattern).is_err()) {
        wrong("tools", pattern.0.clone(), "tool names, and prefixes that end in `*`");
    }
    for skill in definition.skills.iter().filter(|skill| !is_segment(skill)) {
        wrong("skills", skill.clone(), SKILL_NAME);
    }
    if definition.max_iterations == Some(0) {
        wrong("max_iterations", "0".to_owned(), "a number of at least 1");
    }
    for (field, value) in [
        ("guardrails", &definition.guardrails),
        ("acceptance", &definition.acceptance),
        ("failover", &definition.failover),
    ] {
        match value.as_ref().map(Value::as_object) {
            Some(None) => wrong(field, value.as_ref().map(shorten).unwrap_or_default(), "an object"),
            // Nothing enforces it yet, and a definition must not promise what is not kept.
            Some(Some(wishes)) if !wishes.is_empty() => {
                wrong(field, value.as_ref().map(shorten).unwrap_or_default(), UNENFORCED);
            }
            _ => {}
        }
    }
    if let Some(Err(fault)) = definition.sandbox.as_ref().map(check_sandbox) {
        wrong(fault.field, fault.value, fault.allowed);
    }
    if faults.is_empty() { Ok(()) } else { Err(faults) }
}

fn shorten(value: &Value) -> String {
    value.to_string().chars().take(120).collect()
}

/// Checks a `sandbox` object, wherever it is an argument.
pub fn check_sandbox(sandbox: &SandboxSpec) -> Result<(), FieldFault> {
    match sandbox_fault(sandbox) {
        Some((value, allowed)) => Err(FieldFault { field: "sandbox", value, allowed }),
        None => Ok(()),
    }
}

fn sandbox_fault(sandbox: &SandboxSpec) -> Option<(String, &'static str)> {
    if let Some(network) = sandbox.network.as_ref().filter(|text| !matches!(text.as_str(), "none" | "egress")) {
        return Some((network.clone(), "`network` is `none` or `egress`"));
    }
    if let Some(workspace) = sandbox.workspace.as_ref().filter(|text| !is_workspace(text)) {
        return Some((workspace.clone(), "`workspace` is [a-z0-9][a-z0-9_-]{0,63}"));
    }
    if sandbox.image.as_ref().is_some_and(|image| image.trim().is_empty()) {
        return Some((String::new(), "`image` is the name of an image"));
    }
    sandbox.limits.as_ref().and_then(limits_fault)
}

fn is_workspace(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let rest = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'));
    first && rest && text.len() <= 64
}

fn limits_fault(limits: &SandboxLimits) -> Option<(String, &'static str)> {
    if let Some(cpu) = limits.cpu.filter(|cpu| !cpu.is_finite() || *cpu <= 0.0) {
        return Some((cpu.to_string(), "`limits.cpu` is a number above 0"));
    }
    let zero = [limits.mem_mb, limits.pids, limits.tmpfs_mb].contains(&Some(0));
    zero.then(|| ("0".to_owned(), "`limits.mem_mb`, `limits.pids` and `limits.tmpfs_mb` are at least 1"))
}

#[cfg(test)]
mod tests {
    use hearth_types::ToolPattern;

    use super::*;

    #[test]
    fn a_name_is_made_of_plain_segments() {
        for good in ["mock", "chat/medium", "gpt-4.1/fast_one", &"a".repeat(64)] {
            assert_eq!(check_agent_name(good), Ok(()), "{good}");
        }
        for bad in
            ["", "/a", "a/", "a//b", "../a", "a/..", ".a", "-a", "a b", "ä", &"a".repeat(65), "a/b/c/d/e/f/g/h/i"]
        {
            assert!(check_agent_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn everything_that_is_wrong_is_named() {
        let definition = AgentDefinition {
            name: "a b".to_owned(),
            tools: vec![ToolPattern("x*y".to_owned()), ToolPattern("Agent".to_owned())],
            skills: vec!["../x".to_owned()],
            max_iterations: Some(0),
            guardrails: Some(Value::from(3)),
            sandbox: Some(SandboxSpec { network: Some("all".to_owned()), ..SandboxSpec::default() }),
            ..AgentDefinition::default()
        };
        let fields: Vec<_> = check(&definition).unwrap_err().into_iter().map(|fault| fault.field).collect();
        assert_eq!(fields, ["name", "tools", "skills", "max_iterations", "guardrails", "sandbox"]);
    }

    #[test]
    fn what_nothing_enforces_is_refused_and_never_ignored() {
        let wish = Some(serde_json::json!({ "loop": { "repeats": 3 } }));
        let base = AgentDefinition { name: "a".to_owned(), ..AgentDefinition::default() };
        for (field, definition) in [
            ("guardrails", AgentDefinition { guardrails: wish.clone(), ..base.clone() }),
            ("acceptance", AgentDefinition { acceptance: wish.clone(), ..base.clone() }),
            ("failover", AgentDefinition { failover: wish.clone(), ..base.clone() }),
        ] {
            let faults = check(&definition).unwrap_err();
            assert_eq!(faults.iter().map(|fault| fault.field).collect::<Vec<_>>(), [field]);
            assert!(faults[0].to_string().contains("does not enforce"), "{}", faults[0]);
        }
        let empty = Some(serde_json::json!({}));
        let nothing = AgentDefinition { guardrails: empty.clone(), acceptance: empty.clone(), failover: empty, ..base };
        assert_eq!(check(&nothing), Ok(()));
    }

    #[test]
    fn limits_are_positive_and_finite() {
        for cpu in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(limits_fault(&SandboxLimits { cpu: Some(cpu), ..SandboxLimits::default() }).is_some(), "{cpu}");
        }
        assert!(limits_fault(&SandboxLimits { pids: Some(0), ..SandboxLimits::default() }).is_some());
        assert!(limits_fault(&SandboxLimits { cpu: Some(0.5), pids: Some(1), ..SandboxLimits::default() }).is_none());
    }
}
