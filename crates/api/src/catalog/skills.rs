//! Skills: list, get, create, change, retire.

use hearth_library::{Skill, check_skill_name};
use hearth_types::{Fault, FaultCode};
use serde::Deserialize;

use super::fold::Change;
use super::operators_only;
use crate::answers::{Answer, Listing, SkillView};
use crate::{Caller, Hearth, Page};

/// Bytes of a skill's body.
const MAX_SKILL_BYTES: usize = 1024 * 1024;

/// Fields of a skill to change.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkillOverrides {
    pub description: Option<String>,
    pub body: Option<String>,
}

fn bundled() -> Fault {
    Fault::new(
        FaultCode::Conflict,
        "the skill comes from a file, so it is not changed here; create one of another name",
    )
}

fn checked(skill: Skill) -> Result<Skill, Fault> {
    check_skill_name(&skill.name).map_err(|fault| Fault::invalid(fault.field, &fault.value, fault.allowed))?;
    if skill.body.len() > MAX_SKILL_BYTES {
        return Err(Fault::invalid("body", format!("{} bytes", skill.body.len()), "at most 1048576 bytes"));
    }
    Ok(skill)
}

impl Hearth {
    pub async fn list_skills(&self, caller: &Caller, page: Page) -> Result<Listing<SkillView>, Fault> {
        let dynamic = self.dynamic(&caller.principal.tenant).await?;
        let mut views: Vec<SkillView> =
            self.deps.catalogue.skills().map(|skill| SkillView::new(skill, "bundled")).collect();
        views.extend(dynamic.skills.values().map(|skill| SkillView::new(skill, "dynamic")));
        self.paged(views, &page, |view| view.skill.name.clone())
    }

    pub async fn get_skill(&self, caller: &Caller, name: &str) -> Result<SkillView, Fault> {
        if let Some(skill) = self.deps.catalogue.skill(name) {
            return Ok(SkillView::new(skill, "bundled"));
        }
        let dynamic = self.dynamic(&caller.principal.tenant).await?;
        dynamic.skills.get(name).map(|skill| SkillView::new(skill, "dynamic")).ok_or_else(Fault::not_found)
    }

    pub async fn create_skill(&self, caller: &Caller, skill: Skill) -> Result<Answer<SkillView>, Fault> {
        operators_only(caller)?;
        let skill = checked(skill)?;
        if self.deps.catalogue.skill(&skill.name).is_some() {
            return Err(bundled());
        }
        let create = |fold: &super::Fold| {
            if fold.skills.contains_key(&skill.name) {
                return Err(Fault::new(
                    FaultCode::Conflict,
                    "there is a skill of this name; change it, or take another name",
                ));
            }
            Ok((Change::Skill { skill: skill.clone() }, skill.name.clone()))
        };
        let (name, replayed) = self.change(caller, create).await?;
        Ok(Answer { body: self.get_skill(caller, &name).await?, replayed })
    }

    pub async fn patch_skill(
        &self,
        caller: &Caller,
        name: &str,
        overrides: SkillOverrides,
    ) -> Result<SkillView, Fault> {
        operators_only(caller)?;
        if self.deps.catalogue.skill(name).is_some() {
            return Err(bundled());
        }
        let patch = |fold: &super::Fold| {
            let mut skill = Skill::clone(fold.skills.get(name).ok_or_else(Fault::not_found)?);
            if let Some(description) = &overrides.description {
                skill.description.clone_from(description);
            }
            if let Some(body) = &overrides.body {
                skill.body.clone_from(body);
            }
            Ok((Change::Skill { skill: checked(skill)? }, name.to_owned()))
        };
        self.change(caller, patch).await?;
        self.get_skill(caller, name).await
    }

    pub async fn delete_skill(&self, caller: &Caller, name: &str) -> Result<(), Fault> {
        operators_only(caller)?;
        if self.deps.catalogue.skill(name).is_some() {
            return Err(bundled());
        }
        let retire = |fold: &super::Fold| {
            fold.skills.get(name).ok_or_else(Fault::not_found)?;
            Ok((Change::SkillRetired { name: name.to_owned() }, name.to_owned()))
        };
        self.change(caller, retire).await.map(|_| ())
    }
}
