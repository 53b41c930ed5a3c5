//! Snapshots: a resident, or a whole run tree, as records that can be kept, taken elsewhere and gone on with.
//!
//! They belong to a tenant. The records of each are a log of their own, which nothing names before it is whole.

mod import;
mod index;
mod record;
mod rename;
mod resume;
mod take;

use bytes::Bytes;
use futures::stream::BoxStream;
use hearth_journal::{LogKey, Position, SharedJournal};
use hearth_residency::Error;
use hearth_types::{Fault, FaultCode, Role, SnapshotId, Tenant};

use crate::answers::{Listing, SnapshotView};
use crate::{Caller, Hearth, Page, cursor};
use index::Taken;

/// A portable file in pieces. A fault ends it.
pub type SnapshotStream = BoxStream<'static, Result<Bytes, Fault>>;

/// Records that one read asks for: few, as each may be large.
const BATCH: usize = 4;

impl Hearth {
    /// The tenant's that the caller may see, newest first.
    pub async fn list_snapshots(&self, caller: &Caller, page: Page) -> Result<Listing<SnapshotView>, Fault> {
        let principal = &caller.principal;
        let index = self.snapshot_index(&principal.tenant).await?;
        let views = index.taken.into_values().map(|taken| taken.view);
        let own = views.filter(|view| principal.role != Role::Member || view.subject == principal.subject);
        self.paged(own.collect(), &page, |view| cursor::newest_first(view.created_at, &view.snapshot_id))
    }

    /// The portable file: a line for each record.
    pub async fn export_snapshot(&self, caller: &Caller, id: &str) -> Result<(SnapshotView, SnapshotStream), Fault> {
        let (tenant, taken) = self.snapshot_for(caller, id).await?;
        let records = Records::new(self.deps.journal.clone(), tenant, taken.blob);
        let lines = futures::stream::try_unfold(records, |mut records| async move {
            let Some(mut line) = records.next_line().await? else { return Ok(None) };
            line.push(b'\n');
            Ok(Some((Bytes::from(line), records)))
        });
        Ok((taken.view, Box::pin(lines)))
    }

    pub async fn remove_snapshot(&self, caller: &Caller, id: &str) -> Result<SnapshotId, Fault> {
        let (tenant, taken) = self.snapshot_for(caller, id).await?;
        self.drop_snapshot(&tenant, taken.blob).await?;
        Ok(taken.view.snapshot_id)
    }

    async fn snapshot_for(&self, caller: &Caller, id: &str) -> Result<(Tenant, Taken), Fault> {
        let parsed = SnapshotId::parse(id).map_err(|error| Fault::invalid("snapshot_id", id, &error.to_string()))?;
        let principal = &caller.principal;
        let mut tenant = principal.tenant.clone();
        let mut found = self.snapshot_index(&tenant).await?.taken.remove(&parsed);
        let tail = parsed.as_str().strip_prefix("snap_").unwrap_or_default();
        if found.is_none()
            && principal.role == Role::Admin
            && let Some(other) = self.tenant_of_tail(tail).await?
        {
            found = self.snapshot_index(&other).await?.taken.remove(&parsed);
            tenant = other;
        }
        let found = found.ok_or_else(Fault::not_found)?;
        if principal.role == Role::Member && found.view.subject != principal.subject {
            let message = "the snapshot is another subject's; an operator of the tenant may use it";
            return Err(Fault::new(FaultCode::PermissionDenied, message));
        }
        Ok((tenant, found))
    }
}

/// The records of one snapshot, in order.
struct Records {
    journal: SharedJournal,
    key: LogKey,
    position: Position,
    read: std::collections::VecDeque<Bytes>,
    next: Option<record::Record>,
}

impl Records {
    fn new(journal: SharedJournal, tenant: Tenant, blob: SnapshotId) -> Self {
        let key = LogKey::Snapshot(tenant, blob);
        Self { journal, key, position: Position(0), read: std::collections::VecDeque::new(), next: None }
    }

    async fn next_line(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if self.read.is_empty() {
            let frames = self.journal.read(&self.key, self.position, BATCH).await.map_err(Error::from)?;
            for frame in frames {
                self.position = frame.position;
                self.read.push_back(frame.frame);
            }
        }
        Ok(self.read.pop_front().map(Vec::from))
    }

    /// The next record as it was written.
    async fn next(&mut self, reader: &mut record::Reader) -> Result<Option<record::Record>, Fault> {
        if let Some(record) = self.next.take() {
            return Ok(Some(record));
        }
        match self.next_line().await? {
            Some(line) => reader.read(&line).map(Some),
            None => Ok(None),
        }
    }

    /// The next piece of a workspace's archive, if one follows.
    async fn next_data(&mut self, reader: &mut record::Reader) -> Result<Option<Bytes>, Fault> {
        match self.next(reader).await? {
            Some(record::Record::Data(text)) => Ok(Some(record::Record::decoded(&text)?.into())),
            other => {
                self.next = other;
                Ok(None)
            }
        }
    }
}
