//! Durable workspaces, which belong to the tenant.

use hearth_sandbox::{Imported, TarStream, WorkspaceRow, Workspaces};
use hearth_types::{Fault, FaultCode, Role, Tenant};

use crate::answers::Listing;
use crate::{Caller, Hearth, Page, check, cursor};

impl Hearth {
    pub(crate) fn workspaces(&self) -> Result<&dyn Workspaces, Fault> {
        self.deps.sandboxes.workspaces().ok_or_else(|| Fault::unavailable("no workspaces can be reached from here"))
    }

    /// The tenant's, newest first; an admin's list shows every tenant's.
    pub async fn list_workspaces(&self, caller: &Caller, page: Page) -> Result<Listing<WorkspaceRow>, Fault> {
        let principal = &caller.principal;
        let only = (principal.role != Role::Admin).then_some(&principal.tenant);
        let rows = self.workspaces()?.list_workspaces(only).await?;
        self.paged(rows, &page, |row| {
            cursor::newest_first(row.created_at, format_args!("{}/{}/{}", row.tenant_id, row.name, row.node))
        })
    }

    pub async fn get_workspace(&self, caller: &Caller, name: &str) -> Result<WorkspaceRow, Fault> {
        self.find_workspace(caller, name).await
    }

    pub async fn export_workspace(&self, caller: &Caller, name: &str) -> Result<TarStream, Fault> {
        let owner = self.workspace_owner(caller, name).await?;
        self.workspaces()?.export_workspace(&owner, name).await
    }

    pub async fn delete_workspace(&self, caller: &Caller, name: &str) -> Result<(), Fault> {
        require_operator(caller)?;
        let owner = self.workspace_owner(caller, name).await?;
        self.workspaces()?.delete_workspace(&owner, name).await
    }

    /// Whose workspace of this name a caller means. An admin lists every tenant's, and so may name each.
    async fn workspace_owner(&self, caller: &Caller, name: &str) -> Result<Tenant, Fault> {
        if caller.principal.role != Role::Admin {
            return owner(caller, name).cloned();
        }
        Ok(self.find_workspace(caller, name).await?.tenant_id)
    }

    async fn find_workspace(&self, caller: &Caller, name: &str) -> Result<WorkspaceRow, Fault> {
        let own = owner(caller, name)?;
        let only = (caller.principal.role != Role::Admin).then_some(own);
        let mut rows = self.workspaces()?.list_workspaces(only).await?;
        rows.retain(|row| row.name == name);
        if let Some(row) = rows.iter().find(|row| row.tenant_id == *own) {
            return Ok(row.clone());
        }
        let mut tenants: Vec<&str> = rows.iter().map(|row| row.tenant_id.as_str()).collect();
        tenants.sort_unstable();
        tenants.dedup();
        match tenants.as_slice() {
            [] => Err(Fault::not_found()),
            [_] => Ok(rows.remove(0)),
            several => {
                let allowed = format!("one of those that have a workspace of this name: {}", several.join(", "));
                Err(Fault::missing("tenant", &allowed))
            }
        }
    }

    pub async fn import_workspace(&self, caller: &Caller, name: &str, tar: TarStream) -> Result<Imported, Fault> {
        require_operator(caller)?;
        self.workspaces()?.import_workspace(owner(caller, name)?, name, tar).await
    }
}

fn owner<'c>(caller: &'c Caller, name: &str) -> Result<&'c Tenant, Fault> {
    check::workspace("name", Some(name))?;
    Ok(&caller.principal.tenant)
}

/// What a workspace holds concerns every run of the tenant.
fn require_operator(caller: &Caller) -> Result<(), Fault> {
    match caller.principal.role {
        Role::Operator | Role::Admin => Ok(()),
        Role::Member => Err(Fault::new(
            FaultCode::PermissionDenied,
            "only an operator of the tenant replaces or removes its workspaces",
        )),
    }
}
