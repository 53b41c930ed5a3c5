//! Agents: list, get, create, change, retire, fork, clone.

use hearth_library::{DefinitionFields, Origin, RESERVED_NAMES, clone_agent, fork_agent};
use hearth_types::{AgentDefinition, Fault, FaultCode};
use serde::Deserialize;

use super::fold::Change;
use super::operators_only;
use crate::answers::{AgentView, Answer, Listing};
use crate::hearth::definition_id;
use crate::{Caller, Hearth, Page};

/// Fields of a definition to change: those of a fork or a `PATCH`.
pub type AgentOverrides = DefinitionFields;

/// A clone: the new name, and fields to change.
#[derive(Debug, Clone, Deserialize)]
pub struct CloneAgent {
    pub name: String,
    #[serde(flatten)]
    pub overrides: serde_json::Map<String, serde_json::Value>,
}

fn bundled(name: &str) -> Fault {
    Fault::new(
        FaultCode::Conflict,
        format!("{name:?} is part of the program or comes from a file, so it is not changed here; fork or clone it"),
    )
}

fn view(agent: &AgentDefinition, origin: Origin) -> AgentView {
    AgentView::new(origin, agent, definition_id(agent))
}

pub(crate) fn checked(definition: AgentDefinition) -> Result<AgentDefinition, Fault> {
    hearth_library::check(&definition).map_err(|faults| match faults.into_iter().next() {
        Some(fault) => Fault::invalid(fault.field, &fault.value, fault.allowed),
        None => Fault::internal("a definition was refused without a reason"),
    })?;
    runnable(&definition)?;
    Ok(definition)
}

/// A program that cannot be read is refused here, as it is in a file.
fn runnable(definition: &AgentDefinition) -> Result<(), Fault> {
    let Some(code) = &definition.code else { return Ok(()) };
    hearth_models::check_code(code).map_err(|error| {
        Fault::new(FaultCode::InvalidArgument, format!("`code` is not a program that can be run: {error}"))
    })
}

impl Hearth {
    pub async fn list_agents(&self, caller: &Caller, page: Page) -> Result<Listing<AgentView>, Fault> {
        let dynamic = self.dynamic(&caller.principal.tenant).await?;
        let mut views: Vec<AgentView> =
            self.deps.catalogue.agents().map(|(origin, agent)| view(agent, origin)).collect();
        views.extend(dynamic.agents.values().map(|agent| view(agent, Origin::Dynamic)));
        self.paged(views, &page, |view| view.definition.name.clone())
    }

    pub async fn get_agent(&self, caller: &Caller, name: &str) -> Result<AgentView, Fault> {
        let agent = self.agent(&caller.principal.tenant, name, None).await?;
        let origin = self.deps.catalogue.origin(name).unwrap_or(Origin::Dynamic);
        Ok(view(&agent, origin))
    }

    pub async fn create_agent(&self, caller: &Caller, definition: AgentDefinition) -> Result<Answer<AgentView>, Fault> {
        operators_only(caller)?;
        let definition = checked(definition)?;
        self.put_new(caller, &definition).await
    }

    async fn put_new(&self, caller: &Caller, definition: &AgentDefinition) -> Result<Answer<AgentView>, Fault> {
        let name = &definition.name;
        if RESERVED_NAMES.contains(&name.as_str()) || self.deps.catalogue.agent(name).is_some() {
            return Err(bundled(name));
        }
        let (id, replayed) = self
            .change(caller, |fold| {
                if fold.agents.contains_key(name) {
                    return Err(Fault::new(
                        FaultCode::Conflict,
                        "there is an agent of this name; change it, or take another name",
                    ));
                }
                Ok((Change::Agent { agent: Box::new(definition.clone()) }, definition_id(definition)))
            })
            .await?;
        self.version_answer(caller, &id, replayed).await
    }

    async fn version_answer(&self, caller: &Caller, id: &str, replayed: bool) -> Result<Answer<AgentView>, Fault> {
        let dynamic = self.dynamic(&caller.principal.tenant).await?;
        let agent = dynamic.versions.get(id).ok_or_else(Fault::not_found)?;
        Ok(Answer { body: view(agent, Origin::Dynamic), replayed })
    }

    /// Changes a dynamic definition; runs that are open keep theirs.
    pub async fn patch_agent(
        &self,
        caller: &Caller,
        name: &str,
        overrides: AgentOverrides,
    ) -> Result<AgentView, Fault> {
        operators_only(caller)?;
        if self.deps.catalogue.agent(name).is_some() {
            return Err(bundled(name));
        }
        if let Some(other) = overrides.name.as_deref().filter(|other| *other != name) {
            return Err(Fault::invalid("name", other, "the agent's own name; clone it for another"));
        }
        let (id, _) = self
            .change(caller, |fold| {
                let base = fold.agents.get(name).ok_or_else(Fault::not_found)?;
                let changed = checked(overrides.clone().over(base))?;
                let id = definition_id(&changed);
                Ok((Change::Agent { agent: Box::new(changed) }, id))
            })
            .await?;
        Ok(self.version_answer(caller, &id, false).await?.body)
    }

    /// Retires a dynamic definition: its name opens nothing any more; runs that are open go on.
    pub async fn delete_agent(&self, caller: &Caller, name: &str) -> Result<(), Fault> {
        operators_only(caller)?;
        if self.deps.catalogue.agent(name).is_some() {
            return Err(bundled(name));
        }
        let retire = |fold: &super::Fold| {
            fold.agents.get(name).ok_or_else(Fault::not_found)?;
            Ok((Change::AgentRetired { name: name.to_owned() }, name.to_owned()))
        };
        self.change(caller, retire).await.map(|_| ())
    }

    /// A new version of the same agent, addressed by its `def_id`. It may only narrow.
    pub async fn fork_agent(
        &self,
        caller: &Caller,
        name: &str,
        overrides: AgentOverrides,
    ) -> Result<Answer<AgentView>, Fault> {
        let source = self.agent(&caller.principal.tenant, name, None).await?;
        let fork = fork_agent(&source, overrides).map_err(|refusal| refusal.fault())?;
        runnable(&fork)?;
        let (id, replayed) = self
            .change(caller, |_| Ok((Change::Version { agent: Box::new(fork.clone()) }, definition_id(&fork))))
            .await?;
        self.version_answer(caller, &id, replayed).await
    }

    /// A new agent without a tie to its source. It may widen.
    pub async fn clone_agent(
        &self,
        caller: &Caller,
        name: &str,
        request: CloneAgent,
    ) -> Result<Answer<AgentView>, Fault> {
        operators_only(caller)?;
        let source = self.agent(&caller.principal.tenant, name, None).await?;
        let overrides: DefinitionFields = hearth_types::decode("body", request.overrides.into())?;
        let clone = clone_agent(&source, &request.name, overrides).map_err(|refusal| refusal.fault())?;
        runnable(&clone)?;
        self.put_new(caller, &clone).await
    }
}
