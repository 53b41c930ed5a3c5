//! The definitions that a name can mean for a tenant: built in, from files, and those made here.
//!
//! Dynamic definitions are a log of their own per tenant, folded when somebody asks. A run keeps the
//! definition that it was opened with, so nothing here touches runs.

mod agents;
mod fold;
mod skills;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use hearth_journal::{Append, Error as JournalError, LogKey, Position};
use hearth_residency::Error;
use hearth_types::{AgentDefinition, Fault, FaultCode, Role, Tenant};
use serde::Serialize;
use serde_json::{Value, json};

use crate::answers::Answer;
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
/// Tenants whose catalogues are kept folded.
const TENANTS_KEPT: usize = 1_024;

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
            let frames = self.deps.journal.read(&key, fold.position, BATCH).await.map_err(Error::from)?;
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
        let tenant = &caller.principal.tenant;
        let key = Self::key_use(caller);
        for _ in 0..TRIES {
            let fold = self.dynamic(tenant).await?;
            if let Some(key) = &key
                && let Some((digest, named)) = fold.keys.get(&key.id)
            {
                return if digest == &key.digest { Ok((named.clone(), true)) } else { Err(Error::Taken.into()) };
            }
            let (change, named) = decide(&fold)?;
            match self.append_change(tenant, fold.position, key.clone(), change, &named).await {
                Ok(()) => return Ok((named, false)),
                Err(JournalError::Fenced { .. } | JournalError::Unknown { .. }) => {}
                Err(error) => return Err(Error::from(error).into()),
            }
        }
        Err(Fault::new(FaultCode::Conflict, "others change the catalogue at the same time; try again"))
    }

    /// Carries out a command that belongs to no run, and remembers its answer by its key in the tenant's
    /// log. Such commands may be carried out twice without harm, so what is begun at once with the same
    /// key is, and all get the answer that was written down first.
    pub(crate) async fn once<T: Serialize>(
        &self,
        caller: &Caller,
        act: impl Future<Output = Result<T, Fault>>,
    ) -> Result<Answer<Value>, Fault> {
        let Some(key) = Self::key_use(caller) else {
            return Ok(Answer { body: encoded(&act.await?)?, replayed: false });
        };
        let known = self.dynamic(&caller.principal.tenant).await?.keys.get(&key.id).cloned();
        let (told, replayed) = match known {
            Some((digest, _)) if digest != key.digest => return Err(Error::Taken.into()),
            Some((_, told)) => (told, true),
            None => {
                let told = encoded(&act.await?)?.to_string();
                // Members of every version read this one: it takes away what cannot be there.
                let nothing = || Change::SkillRetired { name: String::new() };
                self.change(caller, |_| Ok((nothing(), told.clone()))).await?
            }
        };
        let body = serde_json::from_str(&told)
            .map_err(|_| Fault::from(Error::Taken).with_details(json!({ "field": "Idempotency-Key" })))?;
        Ok(Answer { body, replayed })
    }

    async fn append_change(
        &self,
        tenant: &Tenant,
        expected: Position,
        key: Option<hearth_run_core::KeyUse>,
        change: Change,
        named: &str,
    ) -> Result<(), JournalError> {
        let entry = Entry { v: 1, at: self.deps.clock.now(), key, named: named.to_owned(), change };
        let frame =
            serde_json::to_vec(&entry).map_err(|error| JournalError::Unavailable { reason: error.to_string() })?;
        let append = Append {
            key: LogKey::Catalog(tenant.clone()),
            expected,
            append_id: hearth_types::RunId::generate().to_string(),
            frame: Bytes::from(frame),
            head: None,
            floor: Position(0),
        };
        self.deps.journal.append(append).await.map(|_| ())
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
