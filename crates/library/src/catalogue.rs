//! The merged catalogue: every definition that a name can mean.

use std::collections::BTreeMap;
use std::sync::Arc;

use hearth_types::AgentDefinition;
use serde::Serialize;

use crate::{Library, Skill};

/// Names of the built-in agents, which no file and no caller can take.
pub const RESERVED_NAMES: [&str; 2] = ["mock", "dev/exec"];

/// Where a definition comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Part of the program.
    BuiltIn,
    /// From a file; not changed while the program runs.
    Bundled,
    /// Made while the program runs.
    Dynamic,
}

/// Definitions by name. Cheap to share; a run keeps the definition that it was opened with.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    agents: BTreeMap<String, (Origin, Arc<AgentDefinition>)>,
    skills: BTreeMap<String, Arc<Skill>>,
}

impl Catalogue {
    /// Merges the built-in agents with those of the folder. A built-in one that is switched off here
    /// (not passed) keeps its name all the same.
    pub fn new(built_in: Vec<AgentDefinition>, library: Library) -> Self {
        let entry = |origin, agent: AgentDefinition| (agent.name.clone(), (origin, Arc::new(agent)));
        let mut agents: BTreeMap<_, _> =
            library.agents.into_iter().map(|agent| entry(Origin::Bundled, agent)).collect();
        // Last, so that nothing can stand before a built-in agent.
        agents.extend(built_in.into_iter().map(|agent| entry(Origin::BuiltIn, agent)));
        let skills = library.skills.into_iter().map(|skill| (skill.name.clone(), Arc::new(skill))).collect();
        Self { agents, skills }
    }

    pub fn agent(&self, name: &str) -> Option<&Arc<AgentDefinition>> {
        self.agents.get(name).map(|(_, agent)| agent)
    }

    pub fn origin(&self, name: &str) -> Option<Origin> {
        self.agents.get(name).map(|(origin, _)| *origin)
    }

    /// In the order of the names.
    pub fn agents(&self) -> impl Iterator<Item = (Origin, &Arc<AgentDefinition>)> {
        self.agents.values().map(|(origin, agent)| (*origin, agent))
    }

    pub fn skill(&self, name: &str) -> Option<&Arc<Skill>> {
        self.skills.get(name)
    }

    /// In the order of the names.
    pub fn skills(&self) -> impl Iterator<Item = &Arc<Skill>> {
        self.skills.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str, description: &str) -> AgentDefinition {
        AgentDefinition { name: name.to_owned(), description: description.to_owned(), ..AgentDefinition::default() }
    }

    #[test]
    fn names_lead_to_files_and_built_in_agents_and_a_built_in_one_stands_first() {
        let library = Library { agents: vec![agent("a", "file"), agent("mock", "file")], ..Library::default() };
        let catalogue = Catalogue::new(vec![agent("mock", "built in")], library);
        assert_eq!(catalogue.origin("a"), Some(Origin::Bundled));
        assert_eq!(catalogue.agent("mock").unwrap().description, "built in");
        assert_eq!(catalogue.agent("b"), None);
        assert_eq!(catalogue.agents().map(|(_, agent)| agent.name.as_str()).collect::<Vec<_>>(), ["a", "mock"]);
    }
}
