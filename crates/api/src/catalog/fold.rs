//! The log of a tenant's dynamic definitions, and its fold.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use hearth_journal::Position;
use hearth_library::Skill;
use hearth_residency::Error;
use hearth_run_core::KeyUse;
use hearth_types::{AgentDefinition, Timestamp, limits};
use serde::{Deserialize, Serialize};

use crate::extent::{Extent, Folded};
use crate::hearth::definition_id;

/// Versions that stay addressable by their id.
const VERSIONS_KEPT: usize = 10_000;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub v: u32,
    pub at: Timestamp,
    /// Where reading the log begins from this entry on.
    #[serde(default)]
    pub floor: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyUse>,
    /// What the change's answer names.
    pub named: String,
    #[serde(flatten)]
    pub change: Change,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum Change {
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

impl Change {
    /// Of an entry that is there for its key. Members of every version read this one: it takes away what
    /// cannot be there.
    pub fn none() -> Self {
        Self::SkillRetired { name: String::new() }
    }
}

/// What an entry may say that holds until another one says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    Agent(String),
    Version(String),
    Skill(String),
    Key(String),
}

/// What a key was used for.
#[derive(Debug, Clone)]
pub(crate) struct KeyRecord {
    pub digest: String,
    pub named: String,
    at: Timestamp,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Fold {
    pub(super) extent: Extent<Item>,
    pub agents: BTreeMap<String, Arc<AgentDefinition>>,
    /// By id, those that names mean included.
    pub versions: HashMap<String, Arc<AgentDefinition>>,
    versions_by_age: BTreeSet<(Timestamp, String)>,
    pub skills: BTreeMap<String, Arc<Skill>>,
    /// By the keys' ids.
    pub keys: HashMap<String, KeyRecord>,
    keys_by_age: BTreeSet<(Timestamp, String)>,
}

impl Fold {
    pub(super) fn apply(&mut self, entry: Entry, position: Position) {
        self.extent.frame(position, Position(entry.floor));
        if let Some(key) = entry.key {
            self.use_key(key, entry.named, entry.at);
        }
        match entry.change {
            Change::Agent { agent } => {
                let agent = Arc::new(*agent);
                self.add_version(&agent, entry.at);
                self.extent.says(Item::Agent(agent.name.clone()));
                self.agents.insert(agent.name.clone(), agent);
            }
            Change::Version { agent } => self.add_version(&Arc::new(*agent), entry.at),
            Change::AgentRetired { name } => {
                self.agents.remove(&name);
                self.extent.gone(&Item::Agent(name));
            }
            Change::Skill { skill } => {
                self.extent.says(Item::Skill(skill.name.clone()));
                self.skills.insert(skill.name.clone(), Arc::new(skill));
            }
            Change::SkillRetired { name } => {
                self.skills.remove(&name);
                self.extent.gone(&Item::Skill(name));
            }
        }
    }

    /// What the key was used for; one that was used for something else is refused.
    pub(super) fn used(&self, key: Option<&KeyUse>) -> Result<Option<&KeyRecord>, Error> {
        let used = key.and_then(|key| self.keys.get(&key.id).map(|used| (key, used)));
        match used {
            Some((key, used)) if used.digest != key.digest => Err(Error::Taken),
            Some((_, used)) => Ok(Some(used)),
            None => Ok(None),
        }
    }

    fn use_key(&mut self, key: KeyUse, named: String, at: Timestamp) {
        if let Some(before) = self.keys.get(&key.id) {
            self.keys_by_age.remove(&(before.at, key.id.clone()));
        }
        self.extent.says(Item::Key(key.id.clone()));
        self.keys_by_age.insert((at, key.id.clone()));
        self.keys.insert(key.id, KeyRecord { digest: key.digest, named, at });
        while let Some((oldest, _)) = self.keys_by_age.first()
            && self.keys.len() > limits::KEY_WINDOW_MIN
            && (self.keys.len() > limits::KEY_WINDOW_MAX || at.since(*oldest) > limits::KEY_WINDOW)
            && let Some((_, id)) = self.keys_by_age.pop_first()
        {
            self.keys.remove(&id);
            self.extent.gone(&Item::Key(id));
        }
    }

    fn add_version(&mut self, agent: &Arc<AgentDefinition>, at: Timestamp) {
        let id = definition_id(agent);
        self.extent.says(Item::Version(id.clone()));
        if self.versions.insert(id.clone(), agent.clone()).is_none() {
            self.versions_by_age.insert((at, id));
        }
        if self.versions.len() > VERSIONS_KEPT
            && let Some((_, oldest)) = self.versions_by_age.pop_first()
        {
            self.versions.remove(&oldest);
            self.extent.gone(&Item::Version(oldest));
        }
    }

    /// When a version was made.
    fn made_at(&self, id: &str) -> Option<Timestamp> {
        self.versions_by_age.iter().find(|(_, version)| version == id).map(|(at, _)| *at)
    }
}

impl Folded for Arc<Fold> {
    type Item = Item;
    type Entry = Entry;

    fn extent(&self) -> &Extent<Item> {
        &self.extent
    }

    fn restated(&self, item: &Item) -> Option<Entry> {
        let entry = |at, named: &str, change| {
            let floor = self.extent.floor().0;
            Entry { v: 1, at, floor, key: None, named: named.to_owned(), change }
        };
        match item {
            Item::Agent(name) => {
                let agent = self.agents.get(name)?;
                let id = definition_id(agent);
                let at = self.made_at(&id).unwrap_or_default();
                Some(entry(at, &id, Change::Agent { agent: Box::new(AgentDefinition::clone(agent)) }))
            }
            Item::Version(id) => {
                let agent = Box::new(AgentDefinition::clone(self.versions.get(id)?));
                Some(entry(self.made_at(id)?, id, Change::Version { agent }))
            }
            Item::Skill(name) => {
                let skill = Skill::clone(self.skills.get(name)?);
                Some(entry(Timestamp::default(), name, Change::Skill { skill }))
            }
            Item::Key(id) => {
                let used = self.keys.get(id)?;
                let key = Some(KeyUse { id: id.clone(), digest: used.digest.clone() });
                Some(Entry { key, ..entry(used.at, &used.named, Change::none()) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hearth_journal::{Journal, LogKey, MemoryJournal};
    use hearth_types::Tenant;

    use super::*;
    use crate::extent::{SAID_AGAIN, say_again};

    async fn read(journal: &MemoryJournal, key: &LogKey, known: &Arc<Fold>) -> Arc<Fold> {
        let mut fold = Fold::clone(known);
        for frame in journal.read(key, fold.extent.last(), usize::MAX).await.unwrap() {
            fold.apply(serde_json::from_slice(&frame.frame).unwrap(), frame.position);
        }
        Arc::new(fold)
    }

    fn agent(name: &str, prompt: &str) -> Box<AgentDefinition> {
        let fields = serde_json::json!({ "name": name, "provider": "none", "model": "none", "system_prompt": prompt });
        Box::new(serde_json::from_value(fields).unwrap())
    }

    /// Most changes are of one agent; some add what stays, and some take it away again.
    fn change(n: u64) -> Change {
        let prompt = n.to_string();
        match n % 40 {
            1 => Change::Agent { agent: agent(&format!("kept-{n}"), &prompt) },
            2 => Change::Version { agent: agent("fork", &prompt) },
            3 => {
                Change::Skill { skill: Skill { name: format!("skill-{n}"), description: prompt, body: String::new() } }
            }
            4 => Change::SkillRetired { name: format!("skill-{}", n - 81) },
            5 => Change::AgentRetired { name: format!("kept-{}", n - 84) },
            _ => Change::Skill { skill: Skill { name: "busy".to_owned(), description: prompt, body: String::new() } },
        }
    }

    #[tokio::test]
    async fn a_catalogue_stays_as_long_as_what_it_holds_and_a_new_reader_finds_all_of_it() {
        let (journal, key) = (MemoryJournal::new(), LogKey::Catalog(Tenant::default()));
        let mut fold = Arc::new(Fold::default());
        let mut longest = 0;
        for n in 100..3_300 {
            fold = read(&journal, &key, &fold).await;
            // A key of the first hour, and some of each hour.
            let used = (n < 110 || n % 50 == 0).then(|| KeyUse { id: format!("key-{n}"), digest: n.to_string() });
            let (at, floor) = (Timestamp::from_millis(i64::try_from(n).unwrap() * 60_000), fold.extent.floor().0);
            let entry = Entry { v: 1, at, floor, key: used, named: n.to_string(), change: change(n) };
            fold.extent.append(&journal, &key, n.to_string(), &entry).await.unwrap();
            for _ in 0..SAID_AGAIN {
                fold = read(&journal, &key, &fold).await;
                say_again(&journal, &key, &fold).await;
            }
            if n % 50 == 0 {
                longest = longest.max(journal.read(&key, Position(0), usize::MAX).await.unwrap().len());
            }
        }
        fold = read(&journal, &key, &fold).await;
        let fresh = read(&journal, &key, &Arc::new(Fold::default())).await;
        assert_eq!(fresh.agents, fold.agents);
        assert_eq!(fresh.skills, fold.skills);
        assert_eq!(fresh.versions, fold.versions);
        assert_eq!(fresh.versions_by_age, fold.versions_by_age);
        assert_eq!(fresh.keys_by_age, fold.keys_by_age);
        assert_eq!(fresh.agents.len(), 2);
        assert_eq!(fresh.keys["key-100"].named, "100", "the last 1024 keys count, however old they are");
        let held = fresh.agents.len() + fresh.versions.len() + fresh.skills.len() + fresh.keys.len();
        assert!(longest < 3 * held + 400, "{longest} frames for {held} things");
        assert!(journal.trim(&key, usize::MAX).await.unwrap() < 64, "superfluous frames were not removed");
    }
}
