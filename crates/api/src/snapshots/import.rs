//! Bringing a portable file in. It is not trusted: each record is checked as it comes, and the file counts
//! once its last one agrees with all before.

use futures::StreamExt as _;
use hearth_run_core::Run;
use hearth_types::{AgentDefinition, Fault, FaultCode, Role, RunId, SnapshotId, Tenant, derive_hex, limits};

use super::SnapshotStream;
use super::index::Taken;
use super::record::{Header, MAX_RECORD_BYTES, Reader, Record, Writer};
use super::rename::is_own;
use crate::answers::{Answer, SnapshotView};
use crate::catalog::checked;
use crate::{Caller, Hearth, Key, check};

/// The longest idle time that a resident may have, in milliseconds.
const MAX_IDLE_MS: u64 = 30 * 24 * 3_600 * 1_000;

/// What a file turned out to be.
struct Brought {
    header: Header,
    agent: String,
    bytes: u64,
    sha256: String,
}

impl Hearth {
    /// `key` is the caller's without a digest: the file's checksum is what it is bound to.
    pub async fn import_snapshot(
        &self,
        caller: &Caller,
        key: Option<Key>,
        file: SnapshotStream,
    ) -> Result<Answer<SnapshotView>, Fault> {
        if caller.principal.role == Role::Member {
            return Err(Fault::new(FaultCode::PermissionDenied, "only an operator of the tenant imports snapshots"));
        }
        let tenant = caller.principal.tenant.clone();
        let blob = self.begin_snapshot(&tenant).await?;
        let writer = Writer::new(self.deps.journal.clone(), tenant.clone(), blob.clone());
        let brought = match self.read_in(&tenant, writer, file).await {
            Ok(brought) => brought,
            Err(fault) => return Err(self.given_up(&tenant, blob, fault).await),
        };
        let key = key.map(|key| Key { digest: brought.sha256.clone(), ..key });
        let key = Self::key_use(&Caller { key, ..caller.clone() });
        let snapshot_id = match &key {
            Some(key) => SnapshotId::derive(&["import", &key.id]),
            None => SnapshotId::derive(&["import", RunId::generate().as_str()]),
        };
        let view = SnapshotView {
            snapshot_id,
            run_id: brought.header.run_id,
            agent: brought.agent,
            tenant_id: tenant.clone(),
            subject: caller.principal.subject.clone(),
            created_at: self.deps.clock.now(),
            runs: brought.header.runs.len() as u64,
            size_bytes: brought.bytes,
            sha256: brought.sha256,
            workspaces: brought.header.workspaces,
            left_out: brought.header.left_out,
            imported: true,
        };
        self.keep_snapshot(&tenant, Taken { blob, view, key }).await
    }

    async fn read_in(&self, tenant: &Tenant, mut writer: Writer, mut file: SnapshotStream) -> Result<Brought, Fault> {
        let mut reader = Reader::default();
        let (mut header, mut agent) = (None, String::new());
        let mut rest = Vec::new();
        let mut over = false;
        while !over {
            let piece = file.next().await.transpose()?;
            over = piece.is_none();
            rest.extend_from_slice(&piece.unwrap_or_default());
            let mut from = 0;
            while let Some(line) = next_line(rest.get(from..).unwrap_or_default(), over) {
                let text = rest[from..from + line].to_vec();
                from += line + 1;
                match reader.read(&text)? {
                    Record::End { .. } => continue,
                    Record::Header(read) => {
                        named(&read)?;
                        header = Some(read);
                    }
                    Record::Run(run) => {
                        self.check_brought(tenant, &run).await?;
                        if header.as_ref().is_some_and(|header| header.run_id == run.spec.run_id) {
                            agent.clone_from(&run.spec.agent.name);
                        }
                    }
                    Record::Data(text) => drop(Record::decoded(&text)?),
                    Record::History { .. } | Record::Workspace { .. } => {}
                }
                writer.write_line(text).await?;
            }
            rest.drain(..from.min(rest.len()));
            if rest.len() > MAX_RECORD_BYTES {
                let message = format!("a record of the snapshot is longer than {MAX_RECORD_BYTES} bytes");
                return Err(Fault::new(FaultCode::PayloadTooLarge, message));
            }
        }
        reader.finish()?;
        let Some(header) = header else { return Err(Fault::internal("a snapshot passed without a header")) };
        let (bytes, sha256) = writer.finish().await?;
        Ok(Brought { header, agent, bytes, sha256 })
    }

    /// A definition is held to what one that is made here is held to, and to the ceiling of the agent of its name.
    async fn check_brought(&self, tenant: &Tenant, run: &Run) -> Result<(), Fault> {
        let spec = &run.spec;
        for id in std::iter::once(&spec.run_id).chain(run.children.keys()) {
            if !is_own(id) {
                return Err(Fault::invalid("run_id", id, "run_ and 32 hexadecimal digits"));
            }
        }
        if run.closing.is_some() || run.queue.len() > limits::MAX_QUEUED_TURNS {
            return Err(Fault::invalid("run", &spec.run_id, "a run that is not closing, with at most 16 queued turns"));
        }
        if !(1_000..=MAX_IDLE_MS).contains(&spec.idle_ttl_ms) {
            return Err(Fault::invalid("idle_ttl_ms", spec.idle_ttl_ms, "1000 to 2592000000 milliseconds"));
        }
        check::metadata(Some(&spec.metadata))?;
        check::sandbox(spec.isolation, spec.sandbox.as_ref())?;
        check::sandbox(None, run.sandbox_override.as_ref())?;
        self.check_definition(tenant, &spec.agent).await?;
        for child in run.children.values() {
            if let Some(unconfirmed) = &child.unconfirmed {
                self.check_definition(tenant, &unconfirmed.0.agent).await?;
            }
        }
        Ok(())
    }

    async fn check_definition(&self, tenant: &Tenant, agent: &AgentDefinition) -> Result<(), Fault> {
        checked(agent.clone())?;
        match self.agent(tenant, &agent.name, None).await {
            Ok(here) => hearth_library::check_ceiling(&here.tools, &agent.tools).map_err(|refusal| refusal.fault()),
            // Whoever imports may make definitions, too.
            Err(fault) if fault.code == FaultCode::NotFound => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

/// Bytes of the next line, without its end.
fn next_line(rest: &[u8], over: bool) -> Option<usize> {
    match rest.iter().position(|byte| *byte == b'\n') {
        None if over && !rest.is_empty() => Some(rest.len()),
        found => found,
    }
}

fn named(header: &Header) -> Result<(), Fault> {
    for name in &header.workspaces {
        check::workspace("workspaces", Some(name))?;
    }
    for id in &header.runs {
        if !is_own(id) {
            return Err(Fault::invalid("runs", id, "run_ and 32 hexadecimal digits"));
        }
    }
    Ok(())
}

impl Key {
    /// A key whose body is known later.
    pub fn unbound(key: String, scope: String) -> Self {
        Self { key, scope, digest: derive_hex(&["unbound"]) }
    }
}
