//! Taking a snapshot: each run at its last journaled step, parents before their children.
//!
//! What a parent knows of a child its child's state holds, as that is read later.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use futures::StreamExt as _;
use hearth_residency::{Error, Pages};
use hearth_run_core::Run;
use hearth_types::{Epoch, Fault, FaultCode, RunId, SessionId, SnapshotId, Tenant};

use super::index::{Change, Taken};
use super::record::{Header, MAX_RUNS, Record, VERSION, Writer};
use super::rename::{merged, sends};
use crate::answers::{Answer, SnapshotView};
use crate::{Caller, Hearth, TakeSnapshot};

/// Bytes of a workspace's archive in one record.
const PIECE: usize = 512 * 1024;

impl Hearth {
    /// Takes a resident, or a whole run tree.
    pub async fn take_snapshot(
        &self,
        caller: &Caller,
        run: &str,
        request: TakeSnapshot,
    ) -> Result<Answer<SnapshotView>, Fault> {
        let head = self.run_for(caller, run).await?;
        let key = Self::key_use(caller);
        if let Some(taken) = self.snapshot_index(&head.tenant).await?.taken_by(key.as_ref())? {
            return Ok(Answer { body: taken.view.clone(), replayed: true });
        }
        let runs = self.tree_state(&head.run_id).await?;
        let blob = self.begin_snapshot(&head.tenant).await?;
        let writer = Writer::new(self.deps.journal.clone(), head.tenant.clone(), blob.clone());
        let written = self.write_snapshot(writer, &head.root_run_id, runs, request.workspaces).await;
        let (header, agent, size_bytes, sha256) = match written {
            Ok(written) => written,
            Err(fault) => return Err(self.given_up(&head.tenant, blob, fault).await),
        };
        let view = SnapshotView {
            snapshot_id: snapshot_id(key.as_ref().map(|key| key.id.as_str()), &head.run_id),
            run_id: head.run_id,
            agent,
            tenant_id: head.tenant.clone(),
            subject: head.subject,
            created_at: self.deps.clock.now(),
            runs: header.runs.len() as u64,
            size_bytes,
            sha256,
            workspaces: header.workspaces,
            left_out: header.left_out,
            imported: false,
        };
        self.keep_snapshot(&head.tenant, Taken { blob, view, key }).await
    }

    /// Lists it. Somebody with the same key may have been faster: then that one counts.
    pub(super) async fn keep_snapshot(&self, tenant: &Tenant, taken: Taken) -> Result<Answer<SnapshotView>, Fault> {
        let (blob, view, key) = (taken.blob.clone(), taken.view.clone(), taken.key.clone());
        let change = Change::Taken(Box::new(taken));
        let free = |index: &super::index::Index| Ok(!index.taken.contains_key(&view.snapshot_id));
        let before = match self.change_snapshots(tenant, change, free).await {
            Ok(before) => before,
            Err(fault) => return Err(self.given_up(tenant, blob, fault).await),
        };
        match before.taken.get(&view.snapshot_id) {
            None => Ok(Answer { body: view, replayed: false }),
            Some(other) => {
                let answer = if other.key == key {
                    Ok(Answer { body: other.view.clone(), replayed: true })
                } else {
                    Err(Error::Taken.into())
                };
                self.drop_snapshot(tenant, blob).await?;
                answer
            }
        }
    }

    /// Takes away what was written before a fault.
    pub(super) async fn given_up(&self, tenant: &Tenant, blob: SnapshotId, fault: Fault) -> Fault {
        if let Err(left) = self.drop_snapshot(tenant, blob).await {
            tracing::debug!(fault = %left, "what was written of a snapshot is removed when the next one is taken");
        }
        fault
    }

    /// The states of a run and of what lives below it, each once.
    async fn tree_state(&self, root: &RunId) -> Result<Vec<Run>, Fault> {
        let mut runs: Vec<Run> = Vec::new();
        let mut next = VecDeque::from([(root.clone(), HashSet::new())]);
        while let Some((run_id, calls)) = next.pop_front() {
            let run = match self.residents().look(&run_id).await {
                Ok((run, _)) => *run,
                // Journaled by its parent and not created yet: the parent's state is enough.
                Err(Error::NotFound) if !runs.is_empty() => continue,
                Err(error) => return Err(error.into()),
            };
            let over = run.state.is_final() || run.closing.is_some();
            if over && runs.is_empty() {
                return Err(Fault::new(FaultCode::RunEnded, "the run has ended: there is nothing to go on with"));
            }
            // One that has ended goes along only if the call that asked for it has not heard of it yet.
            let call = run.spec.parent.as_ref().and_then(|parent| parent.call_id.as_ref());
            if over && !(run.state.is_final() && call.is_some_and(|call| calls.contains(call))) {
                continue;
            }
            if runs.len() >= MAX_RUNS {
                let message = format!("the tree has more than {MAX_RUNS} runs, which is the most of one snapshot");
                return Err(Fault::new(FaultCode::PayloadTooLarge, message));
            }
            let open = run.current.iter().flat_map(|turn| turn.open_calls()).map(|call| call.id.clone());
            let open: HashSet<_> = open.collect();
            next.extend(run.children.keys().map(|child| (child.clone(), open.clone())));
            runs.push(run);
        }
        let kept: BTreeSet<RunId> = runs.iter().map(|run| run.spec.run_id.clone()).collect();
        let in_flight: HashSet<String> = runs
            .iter()
            .flat_map(|run| sends(run, &run.spec.run_id, &run.spec.run_id))
            .map(|(_, name, _)| name)
            .collect();
        runs.iter_mut().for_each(|run| prune(run, &kept, &in_flight));
        if let Some(first) = runs.first_mut() {
            let above = self.overrides_of(first.spec.parent.as_ref().map(|parent| parent.run_id.clone())).await?;
            let own = first.sandbox_override.take();
            first.sandbox_override = merged(above.into_iter().chain(own).collect());
        }
        Ok(runs)
    }

    async fn write_snapshot(
        &self,
        mut writer: Writer,
        tree: &RunId,
        runs: Vec<Run>,
        workspaces: bool,
    ) -> Result<(Header, String, u64, String), Fault> {
        let Some(first) = runs.first() else { return Err(Fault::not_found()) };
        let (tenant, agent) = (first.spec.tenant.clone(), first.spec.agent.name.clone());
        let mut left_out = Vec::new();
        for run in &runs {
            let spec = &run.spec;
            if spec.session_id != SessionId::of_run(&spec.run_id) {
                left_out.push(format!("what other runs have said in the session of {}", spec.run_id));
            }
        }
        let workspaces = if workspaces { self.workspaces_of(&tenant, tree, &mut left_out).await? } else { Vec::new() };
        let header = Header {
            hearth_snapshot: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            taken_at: self.deps.clock.now(),
            run_id: first.spec.run_id.clone(),
            runs: runs.iter().map(|run| run.spec.run_id.clone()).collect(),
            workspaces,
            left_out,
        };
        writer.write(&Record::Header(header.clone())).await?;
        for run in runs {
            let (run_id, through) = (run.spec.run_id.clone(), run.seq);
            writer.write(&Record::Run(Box::new(run))).await?;
            let mut pages = Pages::new(&*self.deps.journal, run_id.clone(), through);
            while let Some(page) = pages.next().await? {
                writer.write(&Record::History { run_id: run_id.clone(), page }).await?;
            }
        }
        for name in &header.workspaces {
            writer.write(&Record::Workspace { name: name.clone() }).await?;
            let mut archive = self.workspaces()?.export_workspace(&tenant, name).await?;
            while let Some(piece) = archive.next().await {
                for piece in piece?.chunks(PIECE) {
                    writer.write(&Record::data(piece)).await?;
                }
            }
        }
        let (bytes, sha256) = writer.finish().await?;
        Ok((header, agent, bytes, sha256))
    }

    /// The durable workspaces that sessions of the tree have now.
    async fn workspaces_of(
        &self,
        tenant: &Tenant,
        tree: &RunId,
        left_out: &mut Vec<String>,
    ) -> Result<Vec<String>, Fault> {
        let of_tree = |root: &Option<RunId>| root.as_ref() == Some(tree);
        let rows = self.workspaces()?.list_workspaces(Some(tenant)).await?;
        let used = rows.into_iter().filter(|row| row.sessions.iter().any(|session| of_tree(&session.root_run_id)));
        let names: BTreeSet<String> = used.map(|row| row.name).collect();
        let (sessions, partial) = self.deps.sandboxes.list_some().await?;
        if partial {
            left_out.push("the /work of sessions on nodes that could not be asked".to_owned());
        }
        for row in sessions.iter().filter(|row| of_tree(&row.root_run_id) && row.workspace.is_none()) {
            left_out.push(format!("the /work of {}, which is in no durable workspace", row.session_id));
        }
        Ok(names.into_iter().collect())
    }
}

/// Leaves in a state what goes along.
fn prune(run: &mut Run, kept: &BTreeSet<RunId>, in_flight: &HashSet<String>) {
    run.children.retain(|id, child| kept.contains(id) || (child.state.is_none() && child.unconfirmed.is_some()));
    for (id, child) in &mut run.children {
        child.key = None;
        if kept.contains(id) {
            child.unconfirmed = None;
        }
        if let Some(unconfirmed) = &mut child.unconfirmed {
            (unconfirmed.0.key, unconfirmed.0.trace) = (None, None);
        }
    }
    run.final_children.clear();
    // Of the keys those only by which a call in flight finds the turn that it began.
    run.keys.retain(|id, _| in_flight.contains(id));
    run.key_order.retain(|id| in_flight.contains(id));
    (run.owner, run.epoch) = (None, Epoch(0));
    run.sandbox_session = None;
    run.sandbox_nodes.clear();
    (run.closed_descendants, run.fruitless_activations) = (0, 0);
    let spec = Arc::make_mut(&mut run.spec);
    (spec.key, spec.trace) = (None, None);
    if let Some(turn) = &mut run.current {
        turn.trace = None;
    }
    run.queue.iter_mut().for_each(|queued| queued.trace = None);
}

/// The same at every repeat of a key. It ends as the id of its run, which says whose it is.
fn snapshot_id(key: Option<&str>, run: &RunId) -> SnapshotId {
    let fresh = RunId::generate();
    let own = hearth_types::derive_hex(&["snapshot", key.unwrap_or(fresh.as_str())]);
    let tail = run.as_str().strip_prefix("run_").unwrap_or(run.as_str());
    SnapshotId::parse(&format!("snap_{own}_{tail}")).unwrap_or_else(|_| SnapshotId::derive(&["snapshot", &own]))
}
