//! The sandbox nodes: listed, and drained.

use hearth_registry::NodeRow;
use hearth_types::{Fault, FaultCode, Role, check_id};
use serde_json::Value;

use crate::answers::{Answer, Listing, NodeView};
use crate::{Caller, Hearth, Page, cursor};

impl Hearth {
    /// The sandbox nodes, newest first.
    pub async fn list_nodes(&self, _caller: &Caller, page: Page) -> Result<Listing<NodeView>, Fault> {
        let rows = self.deps.registry.nodes().await;
        let partial = rows.is_err();
        let views = rows.unwrap_or_default().into_iter().map(NodeView::from).collect();
        let place = |node: &NodeView| cursor::newest_first(node.started_at, &node.node_id);
        let mut listing = self.paged(views, &page, place)?;
        listing.partial = partial;
        Ok(listing)
    }

    /// Makes a node take no new sessions; it ends once its last one is gone. Its row, which says that it drains.
    pub async fn drain_node(&self, caller: &Caller, node: &str) -> Result<Answer<Value>, Fault> {
        check_id(node).map_err(|error| Fault::invalid("node_id", node, &error.to_string()))?;
        if caller.principal.role == Role::Member || caller.run.is_some() {
            return Err(Fault::new(FaultCode::PermissionDenied, "only an operator or an admin may drain a node"));
        }
        if node == self.residents().replica().as_str() {
            return Err(Fault::new(
                FaultCode::Conflict,
                "this node is a part of its replica and does not end by itself; drain the replica in its place",
            ));
        }
        self.once(caller, async {
            let rows = self.deps.registry.nodes().await;
            let rows = rows.map_err(|error| Fault::unavailable(format!("the nodes are not known now: {error}")))?;
            let row = rows.into_iter().find(|row| row.node == node).ok_or_else(Fault::not_found)?;
            self.deps.sandboxes.drain(node).await?;
            Ok(NodeView { draining: true, ..row.into() })
        })
        .await
    }
}

impl From<NodeRow> for NodeView {
    fn from(row: NodeRow) -> Self {
        Self {
            node_id: row.node,
            url: row.url,
            version: row.version,
            started_at: row.started_at,
            draining: row.draining,
            sessions: row.sessions,
            max_sessions: row.max_sessions,
            levels: row.levels,
            runtimes: row.runtimes,
            image: row.image,
            images: row.images,
            workspaces: row.workspaces,
            store: row.store,
            pool: row.pool,
            usage: row.usage,
        }
    }
}
