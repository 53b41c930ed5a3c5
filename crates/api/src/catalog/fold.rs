//! The log of a tenant's dynamic definitions, and its fold.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use hearth_journal::Position;
use hearth_library::Skill;
use hearth_run_core::KeyUse;
use hearth_types::{AgentDefinition, Timestamp, limits};
use serde::{Deserialize, Serialize};

use crate::hearth::definition_id;

/// Versions that stay addressable by their id.
const VERSIONS_KEPT: usize = 10_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Entry {
    pub v: u32,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyUse>,
    /// What the change's answer names.
    pub named: String,
    #[serde(flatten)]
    pub change: Change,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(super) enum Change {
    /// Creates or replaces the definition that the name means.
    Agent {
        agent: Box<AgentDefinition>,
    },
    /// Adds a version that is addressed by its id alone.
    Version {
        agent: Box<AgentDefinition>,
    },
    AgentRetired {
        name: String,
    },
    Skill {
        skill: Skill,
    },
    SkillRetired {
        name: String,
    },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Fold {
    pub position: Position,
    pub agents: BTreeMap<String, Arc<AgentDefinition>>,
    /// By id, those that names mean included.
    pub versions: HashMap<String, Arc<AgentDefinition>>,
    version_order: VecDeque<String>,
    pub skills: BTreeMap<String, Arc<Skill>>,
    /// Key id to digest and what was named.
    pub keys: HashMap<String, (String, String)>,
    key_order: VecDeque<String>,
}

impl Fold {
    pub(super) fn apply(&mut self, entry: Entry, position: Position) {
        self.position = position;
        if let Some(key) = entry.key {
            if self.keys.insert(key.id.clone(), (key.digest, entry.named)).is_none() {
                self.key_order.push_back(key.id);
            }
            if self.key_order.len() > limits::KEY_WINDOW_MAX
                && let Some(oldest) = self.key_order.pop_front()
            {
                self.keys.remove(&oldest);
            }
        }
        match entry.change {
            Change::Agent { agent } => {
                let agent = Arc::new(*agent);
                self.add_version(&agent);
                self.agents.insert(agent.name.clone(), agent);
            }
            Change::Version { agent } => self.add_version(&Arc::new(*agent)),
            Change::AgentRetired { name } => {
                self.agents.remove(&name);
            }
            Change::Skill { skill } => {
                self.skills.insert(skill.name.clone(), Arc::new(skill));
            }
            Change::SkillRetired { name } => {
                self.skills.remove(&name);
            }
        }
    }

    fn add_version(&mut self, agent: &Arc<AgentDefinition>) {
        let id = definition_id(agent);
        if self.versions.insert(id.clone(), agent.clone()).is_none() {
            self.version_order.push_back(id);
        }
        if self.version_order.len() > VERSIONS_KEPT
            && let Some(oldest) = self.version_order.pop_front()
        {
            self.versions.remove(&oldest);
        }
    }
}
