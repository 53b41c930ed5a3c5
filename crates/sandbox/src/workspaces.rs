//! Durable workspaces as their owners see them: where each is, how big, used by whom; taken out and brought
//! in as a tar stream.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use hearth_types::{Fault, RunId, SandboxId, Tenant, Timestamp};
use serde::{Deserialize, Serialize};

/// An uncompressed tar archive in pieces. A fault ends it; what came before is then worth nothing.
pub type TarStream = BoxStream<'static, Result<Bytes, Fault>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceRow {
    pub name: String,
    pub tenant_id: Tenant,
    pub node: String,
    /// On the disk, measured at `measured_at`.
    pub size_bytes: u64,
    pub files: u64,
    pub limit_bytes: u64,
    pub measured_at: Timestamp,
    pub created_at: Timestamp,
    /// The sessions that have it as their `/work` now.
    pub sessions: Vec<WorkspaceUse>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceUse {
    pub session_id: SandboxId,
    pub root_run_id: Option<RunId>,
    pub read_only: bool,
}

/// What an import brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    pub name: String,
    pub node: String,
    pub files: u64,
    pub size_bytes: u64,
}

/// The workspaces that are reached from here. One of another principal is as one that is not there.
///
/// - **In use.** `delete` and `import` are refused while a session has the workspace, `export` while a command
///   runs that could change it, with `conflict`; an open meanwhile is refused the same way.
/// - **Whole or nothing.** An import that fails leaves what was there before.
#[async_trait]
pub trait Workspaces: Send + Sync {
    /// Of one principal, or of all; newest first.
    async fn list_workspaces(&self, principal: Option<&Tenant>) -> Result<Vec<WorkspaceRow>, Fault>;

    async fn delete_workspace(&self, principal: &Tenant, name: &str) -> Result<(), Fault>;

    async fn export_workspace(&self, principal: &Tenant, name: &str) -> Result<TarStream, Fault>;

    /// Replaces what the workspace holds, making it if it is not there.
    async fn import_workspace(&self, principal: &Tenant, name: &str, tar: TarStream) -> Result<Imported, Fault>;
}
