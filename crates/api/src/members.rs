//! Replicas and sandbox sessions as lists.

use hearth_registry::ReplicaRow;
use hearth_sandbox::{Caller as SandboxCaller, SessionArgs, SessionRow};
use hearth_types::{Fault, FaultCode, ReplicaId, Role, RunId, SandboxId};
use serde_json::{Value, json};

use crate::answers::{Answer, Listing, ReplicaView};
use crate::hearth::parse_run_id;
use crate::{Caller, Hearth, Page, check, cursor};

impl Hearth {
    pub async fn list_replicas(&self, _caller: &Caller, page: Page) -> Result<Listing<ReplicaView>, Fault> {
        let rows = self.deps.registry.replicas().await;
        let partial = rows.is_err();
        let mut rows = rows.unwrap_or_default();
        // This replica knows of itself, whatever the registry says.
        let own = self.residents().row();
        rows.retain(|row| row.replica != own.replica);
        rows.push(own);
        let views = rows.into_iter().map(ReplicaView::from).collect();
        let mut listing = self.paged(views, &page, |replica| replica.replica_id.to_string())?;
        listing.partial = partial;
        Ok(listing)
    }

    /// Has a replica hand everything over and end: its row, which says that it drains.
    pub async fn drain_replica(&self, caller: &Caller, replica: &str) -> Result<Answer<Value>, Fault> {
        let replica =
            ReplicaId::parse(replica).map_err(|error| Fault::invalid("replica_id", replica, &error.to_string()))?;
        if caller.principal.role == Role::Member || caller.run.is_some() {
            return Err(Fault::new(FaultCode::PermissionDenied, "only an operator or an admin may drain a replica"));
        }
        let drain = async { Ok(ReplicaView::from(self.residents().drain_replica(&replica).await?)) };
        self.once(caller, drain).await
    }

    /// The sessions that the caller may see, newest first.
    pub async fn list_sandboxes(&self, caller: &Caller, page: Page) -> Result<Listing<SessionRow>, Fault> {
        let (rows, partial) = self.deps.sandboxes.list_some().await?;
        let rows = self.visible_sandboxes(caller, rows).await?;
        let mut listing = self.paged(rows, &page, |row| cursor::newest_first(row.created_at, &row.session_id))?;
        listing.partial = partial;
        Ok(listing)
    }

    async fn visible_sandboxes(&self, caller: &Caller, mut rows: Vec<SessionRow>) -> Result<Vec<SessionRow>, Fault> {
        let principal = &caller.principal;
        if principal.role != Role::Admin {
            rows.retain(|row| row.principal == principal.tenant);
        }
        if principal.role == Role::Member {
            let mut own = Vec::new();
            for row in rows {
                let Some(root) = row.root_run_id.as_ref() else { continue };
                if self.head(root).await?.is_some_and(|head| head.subject == principal.subject) {
                    own.push(row);
                }
            }
            rows = own;
        }
        Ok(rows)
    }

    pub async fn close_sandbox(&self, caller: &Caller, session: &str) -> Result<Answer<Value>, Fault> {
        let close = async {
            self.close_session(caller, session).await?;
            Ok(json!({ "session_id": session, "state": "closed" }))
        };
        self.once(caller, close).await
    }

    async fn close_session(&self, caller: &Caller, session: &str) -> Result<(), Fault> {
        let session_id =
            SandboxId::parse(session).map_err(|error| Fault::invalid("session_id", session, &error.to_string()))?;
        let rows = self.deps.sandboxes.list_all().await?;
        let tenant = &caller.principal.tenant;
        let others = rows.iter().any(|row| row.session_id == session_id && row.principal == *tenant);
        let rows = self.visible_sandboxes(caller, rows).await?;
        // One that is closed is listed no more; its node still knows whose it was.
        let owner = match rows.into_iter().find(|row| row.session_id == session_id) {
            Some(row) => SandboxCaller { principal: row.principal, root_run: row.root_run_id, ..Default::default() },
            None if others => {
                let message = "the session belongs to another subject; only an operator may close it";
                return Err(Fault::new(FaultCode::PermissionDenied, message));
            }
            None if caller.principal.role == Role::Member => return Err(Fault::not_found()),
            None => SandboxCaller { principal: tenant.clone(), ..Default::default() },
        };
        self.deps.sandboxes.close(&owner, SessionArgs { session_id }).await
    }

    /// Closes the sessions of one run tree: how many. The tree itself goes on.
    pub async fn close_run_sandboxes(&self, caller: &Caller, root_run: &str) -> Result<Answer<Value>, Fault> {
        let close = async { Ok(json!({ "closed": self.close_tree(caller, root_run).await? })) };
        self.once(caller, close).await
    }

    async fn close_tree(&self, caller: &Caller, root_run: &str) -> Result<u64, Fault> {
        let root: RunId = parse_run_id("root_run_id", root_run)?;
        let head = self.run_for(caller, root.as_str()).await?;
        if head.root_run_id != root {
            return Err(Fault::new(
                FaultCode::InvalidArgument,
                "`root_run_id` names a run that is not the root of its tree",
            ));
        }
        let owner = SandboxCaller { principal: head.tenant, root_run: Some(root.clone()), ..SandboxCaller::default() };
        Ok(self.deps.sandboxes.close_run(&owner, &root, false).await?.closed)
    }

    /// A page of what is listed in the order of `place`, of which no two items have the same.
    pub(crate) fn paged<T>(
        &self,
        mut items: Vec<T>,
        page: &Page,
        place: impl Fn(&T) -> String,
    ) -> Result<Listing<T>, Fault> {
        let limit = check::page_limit(page.limit)? as usize;
        if let Some(cursor) = &page.cursor {
            let after = cursor::decode_place(cursor)?;
            items.retain(|item| place(item) > after);
        }
        items.sort_by_cached_key(&place);
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(|item| cursor::encode_place(&place(item)));
        Ok(Listing { items, next_cursor, as_of: self.deps.clock.now(), partial: false })
    }
}

impl From<ReplicaRow> for ReplicaView {
    fn from(row: ReplicaRow) -> Self {
        Self {
            replica_id: row.replica,
            url: row.url,
            version: row.version,
            started_at: row.started_at,
            draining: row.draining,
            active_residents: row.active,
            running_turns: row.turns,
        }
    }
}
