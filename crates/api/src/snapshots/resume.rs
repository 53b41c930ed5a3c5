//! Going on with a snapshot: new runs with the conversation and the state of the old ones.
//!
//! Children are written before their parents and the root last, each in one append, so that nobody meets a
//! tree that lacks a part. All ids follow from the key: a resume that broke off is finished by its repeat.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use hearth_residency::{Created, Error};
use hearth_run_core::{Close, KeyUse, Run};
use hearth_sandbox::Imported;
use hearth_types::{Fault, FaultCode, RunId, Tenant, TraceContext, limits};
use tokio::sync::mpsc;

use super::Records;
use super::index::{Change, Resumed, Taken};
use super::record::{Reader, Record};
use super::rename::{Names, base, respec, sends};
use crate::answers::{Answer, ResumeAnswer, ResumedRun, ResumedWorkspace};
use crate::{Caller, Hearth};

/// Pieces of an archive that wait for the workspace.
const PIECES: usize = 4;

/// What is the same for all runs of a resume.
struct Target<'r> {
    names: &'r Names,
    /// Of the calls in flight: their names under the old ids and under the new ones.
    calls: &'r HashMap<String, String>,
    tenant: &'r Tenant,
    subject: &'r str,
    root: &'r RunId,
    trace: Option<TraceContext>,
}

impl Hearth {
    pub async fn resume_snapshot(&self, caller: &Caller, id: &str) -> Result<Answer<ResumeAnswer>, Fault> {
        let (tenant, taken) = self.snapshot_for(caller, id).await?;
        let key = Self::key_use(caller);
        if let Some(resumed) = self.snapshot_index(&tenant).await?.resumed_by(key.as_ref())? {
            return Ok(Answer { body: resumed.answer.clone(), replayed: true });
        }
        let answer = self.resume_as(caller, &tenant, &taken, key.as_ref()).await?;
        if let Some(key) = key {
            let resumed = Resumed { key: key.clone(), answer: answer.clone() };
            let first = |index: &super::index::Index| Ok(index.resumed_by(Some(&key))?.is_none());
            self.change_snapshots(&tenant, Change::Resumed(Box::new(resumed)), first).await?;
        }
        Ok(Answer { body: answer, replayed: false })
    }

    async fn resume_as(
        &self,
        caller: &Caller,
        tenant: &Tenant,
        taken: &Taken,
        key: Option<&KeyUse>,
    ) -> Result<ResumeAnswer, Fault> {
        let runs = ordered(&taken.view.run_id, self.states(tenant, taken).await?)?;
        let (base, trace) = (base(key), hearth_telemetry::current_trace().or_else(|| caller.trace.clone()));
        let names = Names::new(&base, &runs.iter().map(|(run, _)| run).collect::<Vec<_>>());
        let of = |old: &RunId| names.of(old).cloned().ok_or_else(|| Fault::internal("a run has no new id"));
        let root = of(&taken.view.run_id)?;
        let mut calls = HashMap::new();
        for (run, _) in &runs {
            let old = &run.spec.run_id;
            calls.extend(sends(run, old, &of(old)?).into_iter().map(|(_, before, after)| (before, after)));
        }
        let subject = &taken.view.subject;
        let target = Target { names: &names, calls: &calls, tenant, subject, root: &root, trace };
        let workspaces = self.bring_back(tenant, taken, &names).await?;
        let mut answer = ResumeAnswer {
            snapshot_id: taken.view.snapshot_id.clone(),
            run_id: root.clone(),
            session_id: hearth_types::SessionId::of_run(&root),
            state: hearth_types::RunState::Running,
            runs: Vec::new(),
            workspaces,
        };
        let mut begun = Vec::new();
        for (run, depth) in runs.into_iter().rev() {
            let old = run.spec.run_id.clone();
            let mut run = self.moved(run, depth, &target)?;
            if run.spec.run_id == root {
                Arc::make_mut(&mut run.spec).key = key.cloned();
                answer.state = run.state;
            }
            let run_id = run.spec.run_id.clone();
            answer.runs.push(ResumedRun { from: old, run_id: run_id.clone() });
            match self.residents().restore(run).await {
                Ok(Created::New) => begun.push(run_id),
                Ok(Created::Existing(_)) => {}
                Err(error) => {
                    self.close_begun(begun).await;
                    return Err(error.into());
                }
            }
        }
        answer.runs.reverse();
        Ok(answer)
    }

    /// What was begun of a tree that cannot be completed.
    async fn close_begun(&self, begun: Vec<RunId>) {
        for run_id in begun {
            let close =
                Close { reason: Some("its tree was not resumed".to_owned()), key: None, partial: String::new() };
            if let Err(error) = self.residents().close(&run_id, close).await {
                tracing::warn!(%error, %run_id, "a run of a tree that was not resumed is left to its idle time");
            }
        }
    }

    async fn states(&self, tenant: &Tenant, taken: &Taken) -> Result<BTreeMap<RunId, Run>, Fault> {
        let mut reader = Reader::default();
        let mut records = Records::new(self.deps.journal.clone(), tenant.clone(), taken.blob.clone());
        let mut states = BTreeMap::new();
        while let Some(record) = records.next(&mut reader).await? {
            match record {
                Record::Run(run) => drop(states.insert(run.spec.run_id.clone(), *run)),
                Record::End { .. } => break,
                _ => {}
            }
        }
        reader.finish()?;
        Ok(states)
    }

    /// Writes what was said, and the workspaces that are not there.
    async fn bring_back(&self, tenant: &Tenant, taken: &Taken, names: &Names) -> Result<Vec<ResumedWorkspace>, Fault> {
        let mut there = Vec::new();
        if !taken.view.workspaces.is_empty() {
            let rows = self.workspaces()?.list_workspaces(Some(tenant)).await?;
            there.extend(rows.into_iter().map(|row| row.name));
        }
        let mut reader = Reader::default();
        let mut records = Records::new(self.deps.journal.clone(), tenant.clone(), taken.blob.clone());
        let mut told = Vec::new();
        while let Some(record) = records.next(&mut reader).await? {
            match record {
                Record::History { run_id, page } => {
                    let Some(new) = names.of(&run_id) else { continue };
                    // Those of a run that has begun already are there.
                    self.residents().put_history(new, &names.apply(&page)?).await?;
                }
                Record::Workspace { name } if there.contains(&name) => {
                    while records.next_data(&mut reader).await?.is_some() {}
                    told.push(ResumedWorkspace { name, restored: false });
                }
                Record::Workspace { name } => {
                    self.restore_workspace(tenant, &name, &mut records, &mut reader).await?;
                    told.push(ResumedWorkspace { name, restored: true });
                }
                Record::End { .. } => break,
                Record::Header(_) | Record::Run(_) | Record::Data(_) => {}
            }
        }
        Ok(told)
    }

    async fn restore_workspace(
        &self,
        tenant: &Tenant,
        name: &str,
        records: &mut Records,
        reader: &mut Reader,
    ) -> Result<Imported, Fault> {
        let (sender, pieces) = mpsc::channel::<Result<Bytes, Fault>>(PIECES);
        let archive = Box::pin(tokio_stream::wrappers::ReceiverStream::new(pieces));
        let feed = async move {
            loop {
                let piece = records.next_data(reader).await.transpose();
                let Some(piece) = piece else { return };
                let broken = piece.is_err();
                // Who takes no more has said why; the rest is read past.
                sender.send(piece).await.ok();
                if broken {
                    return;
                }
            }
        };
        let (imported, ()) = tokio::join!(self.workspaces()?.import_workspace(tenant, name, archive), feed);
        imported
    }

    /// The state as the new run's.
    fn moved(&self, run: Run, depth: u32, target: &Target<'_>) -> Result<Run, Fault> {
        let is_root = target.names.of(&run.spec.run_id) == Some(target.root);
        let mut run: Run = target.names.apply(&run)?;
        let now = self.deps.clock.now();
        let new = run.spec.run_id.clone();
        let place = |spec: &mut hearth_run_core::RunSpec, id: &RunId, depth: u32| {
            respec(spec, id, target.root, depth);
            spec.tenant.clone_from(target.tenant);
            target.subject.clone_into(&mut spec.subject);
            spec.max_residents = self.options.max_residents;
            spec.trace.clone_from(&target.trace);
        };
        let spec = Arc::make_mut(&mut run.spec);
        place(spec, &new, depth);
        if is_root {
            spec.parent = None;
        }
        for (id, child) in &mut run.children {
            if let Some(unconfirmed) = &mut child.unconfirmed {
                place(&mut unconfirmed.0, id, depth + 1);
            }
        }
        (run.created_at, run.last_used_at) = (now, now);
        run.keys =
            run.keys.into_iter().filter_map(|(id, record)| Some((target.calls.get(&id)?.clone(), record))).collect();
        run.key_order = run.keys.keys().cloned().collect();
        Ok(run)
    }
}

/// Parents before their children, with the levels between each and the first.
fn ordered(first: &RunId, mut states: BTreeMap<RunId, Run>) -> Result<Vec<(Run, u32)>, Fault> {
    let mut next = VecDeque::from([(first.clone(), 0)]);
    let mut runs = Vec::new();
    while let Some((run_id, depth)) = next.pop_front() {
        let Some(run) = states.remove(&run_id) else { continue };
        if depth > limits::MAX_DEPTH {
            let message = format!("the snapshot's tree has more than {} levels below its root", limits::MAX_DEPTH);
            return Err(Fault::new(FaultCode::ToolRefused, message));
        }
        next.extend(run.children.keys().map(|child| (child.clone(), depth + 1)));
        runs.push((run, depth));
    }
    if runs.is_empty() { Err(Error::NotFound.into()) } else { Ok(runs) }
}
