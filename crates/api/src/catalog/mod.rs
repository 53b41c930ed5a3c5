//! The definitions that a name can mean for a tenant: built in, from files, and those made here.
//!
//! Dynamic definitions are a log of their own per tenant, folded when somebody asks. A run keeps the
//! definition that it was opened with, so nothing here touches runs.

mod agents;
mod fold;
mod skills;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hearth_journal::{Error as JournalError, LogKey};
use hearth_residency::Error;
use hearth_run_core::KeyUse;
use hearth_types::{AgentDefinition, Fault, FaultCode, Role, Tenant};
use serde::Serialize;
use serde_json::{Value, json};

use crate::answers::Answer;
use crate::extent::{SAID_AGAIN, say_again};
use crate::hearth::definition_id;
use crate::{Caller, Hearth};
pub(crate) use fold::Fold;
use fold::{Change, Entry};

pub(crate) use agents::checked;
pub use agents::{AgentOverrides, CloneAgent};
pub use skills::SkillOverrides;

/// Entries that one read of a catalogue asks for.
const BATCH: usize = 512;
/// Tries of a change that others overtake.
const TRIES: usize = 8;
/// What a key names whose command has no answer yet.
const UNANSWERED: &str = "";
/// Tenants whose catalogues are kept folded.
const TENANTS_KEPT: usize = 1_024;

/// What a command does to a catalogue as it stands.
enum Step {
    /// Nothing: it was done, and this is what it named.
    Known(String),
    Write(Change, String),
}

/// The folded catalogues of tenants, as far as they were read.
#[derive(Default)]
pub(crate) struct Catalogues(Mutex<HashMap<Tenant, Arc<Fold>>>);

impl Catalogues {
    fn get(&self, tenant: &Tenant) -> Arc<Fold> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned().unwrap_or_default()
    }

    fn set(&self, tenant: &Tenant, fold: Arc<Fold>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= TENANTS_KEPT && !kept.contains_key(tenant) {
            kept.clear();
        }
        kept.insert(tenant.clone(), fold);
    }
}

impl Hearth {
    /// The tenant's dynamic definitions, with everything that was acknowledged before the call.
    async fn dynamic(&self, tenant: &Tenant) -> Result<Arc<Fold>, Fault> {
        let mut fold = self.catalogues.get(tenant);
        let key = LogKey::Catalog(tenant.clone());
        loop {
            let frames = self.deps.journal.read(&key, fold.extent.last(), BATCH).await.map_err(Error::from)?;
            if frames.is_empty() {
                return Ok(fold);
            }
            let mut next = Fold::clone(&fold);
            for frame in &frames {
                let entry: Entry = hearth_types::from_own_json(&frame.frame)
                    .map_err(|error| Fault::internal(format!("a catalogue is damaged: {error}")))?;
                next.apply(entry, frame.position);
            }
            fold = Arc::new(next);
            self.catalogues.set(tenant, fold.clone());
        }
    }

    /// Appends a change that `decide` makes of the catalogue as it stands; overtaken, it decides anew.
    /// `decide` tells what it names: the id of a definition, or a name. Whether it is a replay, too.
    async fn change(
        &self,
        caller: &Caller,
        decide: impl Fn(&Fold) -> Result<(Change, String), Fault>,
    ) -> Result<(String, bool), Fault> {
        let key = Self::key_use(caller);
        let step = |fold: &Fold| match fold.used(key.as_ref())? {
            Some(used) => Ok(Step::Known(used.named.clone())),
            None => decide(fold).map(|(change, named)| Step::Write(change, named)),
        };
        self.write(&caller.principal.tenant, key.as_ref(), step).await
    }

    /// Binds the caller's key, if there is one, to a command that changed nothing and that no run records;
    /// whether it was bound to it before.
    pub(crate) async fn bind_key(&self, caller: &Caller) -> Result<bool, Fault> {
        if caller.key.is_none() {
            return Ok(false);
        }
        let (_, before) = self.change(caller, |_| Ok((Change::none(), String::new()))).await?;
        Ok(before)
    }

    /// Carries out a command that belongs to no run, and remembers its answer by its key in the tenant's
    /// log. The key is bound to the request before anything is done; such commands may be carried out
    /// twice without harm, so what is begun at once or anew is, and all get the answer that was
    /// written down first.
    pub(crate) async fn once<T: Serialize>(
        &self,
        caller: &Caller,
        act: impl Future<Output = Result<T, Fault>>,
    ) -> Result<Answer<Value>, Fault> {
        let Some(key) = Self::key_use(caller) else {
            return Ok(Answer { body: encoded(&act.await?)?, replayed: false });
        };
        let (told, _) = self.change(caller, |_| Ok((Change::none(), UNANSWERED.to_owned()))).await?;
        let (told, replayed) = if told == UNANSWERED {
            let told = encoded(&act.await?)?.to_string();
            let step = |fold: &Fold| match fold.used(Some(&key))? {
                Some(used) if used.named != UNANSWERED => Ok(Step::Known(used.named.clone())),
                _ => Ok(Step::Write(Change::none(), told.clone())),
            };
            self.write(&caller.principal.tenant, Some(&key), step).await?
        } else {
            (told, true)
        };
        let body = serde_json::from_str(&told)
            .map_err(|_| Fault::from(Error::Taken).with_details(json!({ "field": "Idempotency-Key" })))?;
        Ok(Answer { body, replayed })
    }

    /// What the written or the known entry names, and whether it was known.
    async fn write(
        &self,
        tenant: &Tenant,
        key: Option<&KeyUse>,
        step: impl Fn(&Fold) -> Result<Step, Fault>,
    ) -> Result<(String, bool), Fault> {
        let (journal, log) = (&*self.deps.journal, LogKey::Catalog(tenant.clone()));
        for _ in 0..TRIES {
            let fold = self.dynamic(tenant).await?;
            let (change, named) = match step(&fold)? {
                Step::Known(named) => return Ok((named, true)),
                Step::Write(change, named) => (change, named),
            };
            let (at, floor) = (self.deps.clock.now(), fold.extent.floor().0);
            let entry = Entry { v: 1, at, floor, key: key.cloned(), named, change };
            let append_id = hearth_types::RunId::generate().to_string();
            match fold.extent.append(journal, &log, append_id, &entry).await {
                Ok(()) => {
                    for _ in 0..SAID_AGAIN {
                        let Ok(fold) = self.dynamic(tenant).await else { break };
                        if !say_again(journal, &log, &fold).await {
                            break;
                        }
                    }
                    return Ok((entry.named, false));
                }
                Err(JournalError::Fenced { .. } | JournalError::Unknown { .. }) => {}
                Err(error) => return Err(Error::from(error).into()),
            }
        }
        Err(Fault::new(FaultCode::Conflict, "others change the catalogue at the same time; try again"))
    }

    /// The definition that a name means, or that an id names: ids address the versions that forks made.
    pub(crate) async fn agent(
        &self,
        tenant: &Tenant,
        name: &str,
        def_id: Option<&str>,
    ) -> Result<Arc<AgentDefinition>, Fault> {
        let unknown = || Fault::new(FaultCode::NotFound, "there is no agent of this name; `GET /v1/agents` lists them");
        if let Some(agent) = self.deps.catalogue.agent(name)
            && def_id.is_none_or(|wanted| wanted == definition_id(agent))
        {
            return Ok(agent.clone());
        }
        let dynamic = self.dynamic(tenant).await?;
        let found = match def_id {
            Some(wanted) => dynamic.versions.get(wanted).filter(|agent| agent.name == name),
            None => dynamic.agents.get(name).or_else(|| dynamic.versions.get(name)),
        };
        found.cloned().ok_or_else(unknown)
    }
}

fn encoded<T: Serialize>(body: &T) -> Result<Value, Fault> {
    serde_json::to_value(body).map_err(|error| Fault::internal(format!("an answer has no JSON: {error}")))
}

fn operators_only(caller: &Caller) -> Result<(), Fault> {
    if caller.principal.role < Role::Operator {
        return Err(Fault::new(
            FaultCode::PermissionDenied,
            "only an operator creates, changes and retires definitions",
        ));
    }
    Ok(())
}
