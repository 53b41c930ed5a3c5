//! Fork and clone: how one definition comes from another.

use hearth_types::AgentDefinition;

use crate::narrowing::check_narrower;
use crate::{DefinitionFields, RESERVED_NAMES, Refusal, check};

/// A new version of the same agent. It may only narrow what the agent is allowed; what it says and
/// which model speaks may change.
pub fn fork_agent(source: &AgentDefinition, overrides: DefinitionFields) -> Result<AgentDefinition, Refusal> {
    if let Some(name) = overrides.name.as_ref().filter(|name| **name != source.name) {
        return Err(Refusal::Renames { name: name.clone() });
    }
    let fork = checked(overrides.over(source))?;
    check_narrower(source, &fork)?;
    Ok(fork)
}

/// A new agent without a tie to its source. It may widen, so the caller must be one who may.
pub fn clone_agent(
    source: &AgentDefinition,
    name: &str,
    overrides: DefinitionFields,
) -> Result<AgentDefinition, Refusal> {
    if RESERVED_NAMES.contains(&name) {
        return Err(Refusal::Reserved { name: name.to_owned() });
    }
    checked(DefinitionFields { name: Some(name.to_owned()), ..overrides }.over(source))
}

fn checked(definition: AgentDefinition) -> Result<AgentDefinition, Refusal> {
    match check(&definition) {
        Ok(()) => Ok(definition),
        Err(faults) => match faults.into_iter().next() {
            Some(fault) => Err(Refusal::Field(fault)),
            None => Ok(definition),
        },
    }
}

#[cfg(test)]
mod tests {
    use hearth_types::{Isolation, SandboxLimits, SandboxScope, SandboxSpec, ToolPattern};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn tools(texts: &[&str]) -> Vec<ToolPattern> {
        texts.iter().map(|text| ToolPattern((*text).to_owned())).collect()
    }

    fn source() -> AgentDefinition {
        AgentDefinition {
            name: "builder".to_owned(),
            tools: tools(&["Agent", "mcp__sandbox__*"]),
            skills: vec!["rust".to_owned()],
            max_iterations: Some(20),
            sandbox: Some(SandboxSpec {
                isolation: Some(Isolation::L2),
                limits: Some(SandboxLimits { mem_mb: Some(512), ..SandboxLimits::default() }),
                ..SandboxSpec::default()
            }),
            ..AgentDefinition::default()
        }
    }

    fn fields(value: serde_json::Value) -> DefinitionFields {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_fork_that_narrows_is_a_new_version_of_the_same_agent() {
        let fork = fork_agent(
            &source(),
            fields(json!({
                "system_prompt": "Be brief.",
                "tools": ["mcp__sandbox__sandbox_exec"],
                "skills": [],
                "max_iterations": 5,
                "sandbox": {"scope": "own", "isolation": "L3", "limits": {"mem_mb": 128, "pids": 10}, "read_only": true},
            })),
        )
        .unwrap();
        assert_eq!(fork.name, "builder");
        assert_eq!(fork.tools, tools(&["mcp__sandbox__sandbox_exec"]));
        assert_eq!(fork.sandbox.unwrap().scope, Some(SandboxScope::Own));
    }

    #[test]
    fn a_fork_that_widens_anything_is_refused() {
        for (field, widening) in [
            ("tools", json!({"tools": ["*"]})),
            ("skills", json!({"skills": ["rust", "go"]})),
            ("max_iterations", json!({"max_iterations": 21})),
            ("sandbox", json!({"sandbox": {}})),
            ("sandbox", json!({"sandbox": {"isolation": "L1", "limits": {"mem_mb": 512}}})),
            ("sandbox", json!({"sandbox": {"isolation": "L2", "limits": {"mem_mb": 513}}})),
            ("sandbox", json!({"sandbox": {"isolation": "L2", "limits": {"mem_mb": 1}, "network": "egress"}})),
        ] {
            let refusal = fork_agent(&source(), fields(widening.clone())).unwrap_err();
            assert_eq!(refusal.fault().code.as_str(), "tool_refused", "{widening}: {refusal}");
            if field != "tools" {
                assert!(matches!(&refusal, Refusal::Widens { field: named, .. } if *named == field), "{refusal:?}");
            }
        }
    }

    #[test]
    fn what_holds_an_agent_back_stays_in_its_forks() {
        let held = AgentDefinition { guardrails: Some(json!({"loop": {"repeats": 3}})), ..source() };
        let refusal = check_narrower(&held, &AgentDefinition { guardrails: Some(json!({})), ..source() }).unwrap_err();
        assert!(matches!(refusal, Refusal::Widens { field: "guardrails", .. }), "{refusal:?}");
        assert!(check_narrower(&held, &held).is_ok() && check_narrower(&source(), &held).is_ok());
    }

    #[test]
    fn a_fork_keeps_its_name() {
        let refusal = fork_agent(&source(), fields(json!({"name": "other"}))).unwrap_err();
        assert!(matches!(refusal, Refusal::Renames { .. }));
        assert!(fork_agent(&source(), fields(json!({"name": "builder"}))).is_ok());
    }

    #[test]
    fn a_clone_may_widen_but_not_take_a_built_in_name() {
        let clone = clone_agent(&source(), "team/builder", fields(json!({"tools": ["*"]}))).unwrap();
        assert_eq!(clone.name, "team/builder");
        assert_eq!(clone.tools, tools(&["*"]));
        for name in RESERVED_NAMES {
            let refusal = clone_agent(&source(), name, DefinitionFields::default()).unwrap_err();
            assert!(matches!(refusal, Refusal::Reserved { .. }));
        }
        assert!(matches!(clone_agent(&source(), "a b", DefinitionFields::default()), Err(Refusal::Field(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_chain_of_forks_admits_a_tool_that_the_first_does_not(
            chain in prop::collection::vec(prop::collection::vec("[ab]{0,3}\\*?", 0..3), 1..5),
            tool in "[ab]{0,5}",
        ) {
            let mut versions = Vec::new();
            for step in chain {
                let tools = step.into_iter().map(ToolPattern).collect::<Vec<_>>();
                let next = match versions.last() {
                    None => AgentDefinition { name: "x".to_owned(), tools, ..AgentDefinition::default() },
                    Some(last) => {
                        match fork_agent(last, DefinitionFields { tools: Some(tools), ..DefinitionFields::default() }) {
                            Ok(fork) => fork,
                            Err(_) => continue,
                        }
                    }
                };
                versions.push(next);
            }
            let first = versions.first().is_some_and(|version| version.admits(&tool));
            let last = versions.last().is_some_and(|version| version.admits(&tool));
            prop_assert!(first || !last);
        }
    }
}
