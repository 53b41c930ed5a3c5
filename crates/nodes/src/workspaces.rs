//! Durable workspaces over all nodes. A workspace is on one node; which one, the nodes are asked.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::StreamExt as _;
use hearth_registry::NodeRow;
use hearth_sandbox::{Imported, TarStream, WorkspaceRow, Workspaces};
use hearth_types::{Fault, FaultCode, Tenant};

use crate::Nodes;
use crate::client::{NoOutcome, Question};
use crate::nodes::{read, told};
use crate::placement::{Wanted, choose, workspace_affinity};

struct Found {
    asked: String,
    workspace: WorkspaceRow,
}

impl Nodes {
    /// What every node has, each with a node that can be asked about it, and the nodes that could not be asked.
    async fn all_workspaces(&self, principal: Option<&Tenant>) -> Result<(Vec<Found>, Vec<String>), Fault> {
        let rows = self.live().await?;
        let (mut found, mut silent) = (BTreeMap::<_, Found>::new(), Vec::new());
        for row in rows.iter().filter(|row| row.workspaces) {
            let node = row.node.clone();
            let answer = match self.client(row) {
                Ok(client) => client.ask(&Question::ListWorkspaces { principal }).await,
                Err(fault) => Ok(Err(fault)),
            };
            match answer {
                Ok(Ok(listed)) => {
                    for workspace in read::<Vec<WorkspaceRow>>(listed)? {
                        // Nodes that share a storage all see it; the one that it is on knows its sessions.
                        let storage = row.store.clone().unwrap_or_else(|| node.clone());
                        let key = (workspace.tenant_id.clone(), workspace.name.clone(), storage);
                        if workspace.node == node || !found.contains_key(&key) {
                            found.insert(key, Found { asked: node.clone(), workspace });
                        }
                    }
                }
                Ok(Err(fault)) => {
                    tracing::warn!(node, %fault, "a node does not tell its workspaces");
                    silent.push(node);
                }
                Err(NoOutcome::Lost(reason) | NoOutcome::Refused(reason)) => {
                    tracing::warn!(node, reason, "a node does not tell its workspaces");
                    silent.push(node);
                }
            }
        }
        Ok((found.into_values().collect(), silent))
    }

    /// The node that a workspace is on. That it is nowhere is known only when every node has said so.
    pub(crate) async fn home_of(&self, principal: &Tenant, name: &str) -> Result<Option<NodeRow>, Fault> {
        let rows = self.live().await?;
        let keeping: Vec<&NodeRow> = rows.iter().filter(|row| row.workspaces).collect();
        if keeping.len() < 2 {
            return Ok(keeping.first().map(|row| (*row).clone()));
        }
        let (found, silent) = self.all_workspaces(Some(principal)).await?;
        let newest = |found: &&Found| found.workspace.created_at;
        match found.iter().filter(|found| found.workspace.name == name).max_by_key(newest) {
            // Where the node that it is on is gone, one that sees it may take it over.
            Some(found) => Ok(rows.into_iter().find(|row| row.node == found.asked)),
            None if silent.is_empty() => Ok(None),
            None => Err(Fault::unavailable(format!(
                "whether there is such a workspace is not known: {} cannot be asked now; try again",
                silent.join(", ")
            ))),
        }
    }

    /// The node that a workspace is on, or is to be on.
    async fn home_or_new(&self, principal: &Tenant, name: &str) -> Result<NodeRow, Fault> {
        if let Some(home) = self.home_of(principal, name).await? {
            return Ok(home);
        }
        let affinity = workspace_affinity(principal, name);
        let wanted = Wanted { workspace: true, affinity, ..Wanted::default() };
        let rows = self.live().await?;
        choose(&rows, &wanted).cloned()
    }

    async fn bring_in(&self, principal: &Tenant, name: &str, tar: TarStream) -> Result<Imported, Fault> {
        let home = self.home_or_new(principal, name).await?;
        match self.client(&home)?.import(principal, name, tar).await {
            Ok(result) => {
                let imported = read(result?)?;
                self.settle_import(principal, name, &home).await;
                Ok(imported)
            }
            Err(NoOutcome::Lost(reason)) => {
                tracing::warn!(node = home.node, reason, "a node was lost during an import");
                Err(Fault::new(
                    FaultCode::DeadlineExceeded,
                    "the sandbox node was lost during the import; send it again",
                ))
            }
            Err(refused) => Err(told(refused)),
        }
    }

    async fn required_home(&self, principal: &Tenant, name: &str) -> Result<NodeRow, Fault> {
        self.home_of(principal, name).await?.ok_or_else(Fault::not_found)
    }
}

#[async_trait]
impl Workspaces for Nodes {
    async fn list_workspaces(&self, principal: Option<&Tenant>) -> Result<Vec<WorkspaceRow>, Fault> {
        let (found, silent) = self.all_workspaces(principal).await?;
        let mut found: Vec<WorkspaceRow> = found.into_iter().map(|found| found.workspace).collect();
        if !silent.is_empty() {
            return Err(Fault::unavailable(format!(
                "{} cannot be asked for workspaces now; try again",
                silent.join(", ")
            )));
        }
        found.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.name.cmp(&b.name)));
        Ok(found)
    }

    async fn delete_workspace(&self, principal: &Tenant, name: &str) -> Result<(), Fault> {
        let home = self.required_home(principal, name).await?;
        let question = Question::DeleteWorkspace { principal, name };
        self.insist(&home.node, &question).await?;
        self.forget_home(principal, name).await;
        Ok(())
    }

    async fn export_workspace(&self, principal: &Tenant, name: &str) -> Result<TarStream, Fault> {
        let home = self.required_home(principal, name).await?;
        let mut pieces = self.client(&home)?.export(principal, name).await.map_err(told)?;
        // The first piece tells whether it is a refusal.
        match pieces.next().await {
            Some(Err(fault)) => Err(fault),
            Some(Ok(first)) => Ok(futures::stream::iter([Ok(first)]).chain(pieces).boxed()),
            None => Err(Fault::unavailable("the sandbox node ended the export before it began; try again")),
        }
    }

    async fn import_workspace(&self, principal: &Tenant, name: &str, tar: TarStream) -> Result<Imported, Fault> {
        self.bring_in(principal, name, tar).await
    }
}
