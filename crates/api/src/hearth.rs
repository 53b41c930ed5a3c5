//! The use cases' common ground: what they stand on, and who may act on what.

use std::sync::Arc;

use hearth_bus::SharedBus;
use hearth_journal::{RunHead, SharedJournal};
use hearth_library::Catalogue;
use hearth_registry::SharedRegistry;
use hearth_residency::Residents;
use hearth_run_core::KeyUse;
use hearth_sandbox::SharedSandboxes;
use hearth_types::{AgentDefinition, Fault, FaultCode, Role, RunId, SessionId, SharedClock, Tenant, derive_hex};

use crate::Caller;
use crate::catalog::Catalogues;
use crate::identities::{Identities, Identity};

#[derive(Debug, Clone)]
pub struct Options {
    /// Resident children that a run may hold.
    pub max_residents: u32,
    /// Idle time of a resident where its opener names none, in milliseconds.
    pub idle_ttl_ms: u64,
}

pub struct Deps {
    pub residents: Residents,
    pub journal: SharedJournal,
    pub registry: SharedRegistry,
    pub bus: SharedBus,
    pub sandboxes: SharedSandboxes,
    pub catalogue: Arc<Catalogue>,
    pub clock: SharedClock,
}

/// The use cases of one replica. Cheap to clone.
#[derive(Clone)]
pub struct Hearth {
    pub(crate) deps: Arc<Deps>,
    pub(crate) options: Options,
    pub(crate) catalogues: Arc<Catalogues>,
    pub(crate) identities: Arc<Identities>,
}

/// Levels between a run and any descendant of it.
const LEVELS: usize = hearth_types::limits::MAX_DEPTH as usize + 1;

impl Hearth {
    pub fn new(options: Options, deps: Deps) -> Self {
        Self { deps: Arc::new(deps), options, catalogues: Arc::default(), identities: Arc::default() }
    }

    pub(crate) fn residents(&self) -> &Residents {
        &self.deps.residents
    }

    /// The run of this id if the caller may act on it. Another tenant's run, and for a calling run
    /// every run that is not its descendant, is the same as none.
    pub(crate) async fn run_for(&self, caller: &Caller, run: &str) -> Result<RunHead, Fault> {
        let run_id = parse_run_id("run_id", run)?;
        let head = self.head(&run_id).await?.ok_or_else(Fault::not_found)?;
        self.check_access(caller, &Identity::from(&head)).await?;
        Ok(head)
    }

    /// The same without the run's row, for calls that do not show it.
    pub(crate) async fn identify(&self, caller: &Caller, run: &str) -> Result<Arc<Identity>, Fault> {
        let run_id = parse_run_id("run_id", run)?;
        let identity = match self.identities.get(&run_id) {
            Some(known) => known,
            None => {
                let head = self.head(&run_id).await?.ok_or_else(Fault::not_found)?;
                self.identities.put(Identity::from(&head))
            }
        };
        self.check_access(caller, &identity).await?;
        Ok(identity)
    }

    pub(crate) async fn head(&self, run_id: &RunId) -> Result<Option<RunHead>, Fault> {
        self.deps.journal.head(run_id).await.map_err(|error| hearth_residency::Error::from(error).into())
    }

    pub(crate) async fn check_access(&self, caller: &Caller, run: &Identity) -> Result<(), Fault> {
        if let Some(calling) = &caller.run {
            return if self.descends(run, calling).await? { Ok(()) } else { Err(Fault::not_found()) };
        }
        let principal = &caller.principal;
        if principal.role != Role::Admin && principal.tenant != run.tenant {
            return Err(Fault::not_found());
        }
        if principal.role == Role::Member && principal.subject != run.subject {
            return Err(Fault::new(
                FaultCode::PermissionDenied,
                "the run is another subject's; an operator of the tenant may act on it",
            ));
        }
        Ok(())
    }

    /// Whether the run is below `ancestor`, by the parents that the index names.
    async fn descends(&self, run: &Identity, ancestor: &RunId) -> Result<bool, Fault> {
        let mut parent = run.parent.clone();
        for _ in 0..LEVELS {
            match parent {
                None => return Ok(false),
                Some(run) if &run == ancestor => return Ok(true),
                Some(run) => parent = self.head(&run).await?.and_then(|head| head.parent_run_id),
            }
        }
        Ok(false)
    }

    pub(crate) fn key_use(caller: &Caller) -> Option<KeyUse> {
        let key = caller.key.as_ref()?;
        let principal = &caller.principal;
        Some(KeyUse::new(&principal.tenant, &principal.subject, &key.scope, &key.key, &key.digest))
    }

    /// The caller's key, or one of this call alone: a command that is sent again because its answer
    /// was lost on the way between replicas must not count twice.
    pub(crate) fn key_for_once(caller: &Caller) -> KeyUse {
        Self::key_use(caller).unwrap_or_else(|| KeyUse { id: RunId::generate().to_string(), digest: String::new() })
    }

    /// Whose rows a list shows: (tenant, subject).
    pub(crate) fn list_scope(
        caller: &Caller,
        tenant: Option<Tenant>,
    ) -> Result<(Option<Tenant>, Option<String>), Fault> {
        let principal = &caller.principal;
        match (principal.role, tenant) {
            (Role::Admin, tenant) => Ok((tenant, None)),
            (_, Some(tenant)) if tenant != principal.tenant => {
                Err(Fault::new(FaultCode::PermissionDenied, "only an admin may name another tenant in `tenant`"))
            }
            (Role::Operator, _) => Ok((Some(principal.tenant.clone()), None)),
            (Role::Member, _) => Ok((Some(principal.tenant.clone()), Some(principal.subject.clone()))),
        }
    }

    /// Whether this replica can serve; the fault says why not.
    pub async fn ready(&self) -> Result<(), Fault> {
        if self.residents().is_draining() {
            return Err(Fault::new(FaultCode::Draining, "this replica is being stopped"));
        }
        self.deps.journal.ready().await.map_err(|error| hearth_residency::Error::from(error).into())
    }
}

pub(crate) fn parse_run_id(field: &str, text: &str) -> Result<RunId, Fault> {
    RunId::parse(text).map_err(|error| Fault::invalid(field, text, &error.to_string()))
}

pub(crate) fn parse_session_id(text: &str) -> Result<SessionId, Fault> {
    SessionId::parse(text).map_err(|error| Fault::invalid("session_id", text, &error.to_string()))
}

/// Names a definition by its content.
pub(crate) fn definition_id(agent: &AgentDefinition) -> String {
    let content = serde_json::to_string(agent).unwrap_or_default();
    format!("def_{}", derive_hex(&["definition", &content]))
}
