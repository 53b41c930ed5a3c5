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
        let rows = self.workspaces()?.list_workspaces(Some(owner(caller, name)?)).await?;
        rows.into_iter().find(|row| row.name == name).ok_or_else(Fault::not_found)
    }

    pub async fn export_workspace(&self, caller: &Caller, name: &str) -> Result<TarStream, Fault> {
        self.workspaces()?.export_workspace(owner(caller, name)?, name).await
    }

    pub async fn delete_workspace(&self, caller: &Caller, name: &str) -> Result<(), Fault> {
        require_operator(caller)?;
        self.workspaces()?.delete_workspace(owner(caller, name)?, name).await
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
