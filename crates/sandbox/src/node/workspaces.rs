//! Workspaces from outside: listed, removed, taken out and brought in.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use hearth_types::{Fault, FaultCode, SandboxId, Tenant, Timestamp, check_id};
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use tokio::sync::mpsc;

use crate::node::archive::{self, Size};
use crate::node::policy::is_workspace_name;
use crate::node::session::{Session, locked};
use crate::node::workspace::{Workspace, open_folder, open_owner, open_root};
use crate::node::{Home, Homes, Inner, Node, blocking, fault, lease};
use crate::workspaces::{Imported, TarStream, WorkspaceRow, WorkspaceUse, Workspaces};
use crate::{Error, ErrorKind, Work};

/// Pieces of a stream that wait between the disk and the network.
const PIECES: usize = 8;
const PIECE_BYTES: usize = 64 * 1024;
/// Folders beside the workspaces of a principal: what is being brought in, and what is being removed.
const ASIDE: &str = ".hearth-aside-";
const MAX_MIB: u64 = 1024 * 1024;

/// A workspace by its owner and its name.
pub(crate) type Place = (Tenant, String);

/// What is being done to a workspace as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It is read; sessions may come.
    Export,
    /// It is replaced or removed.
    Change,
}

/// Ends a hold.
struct Held {
    inner: Arc<Inner>,
    place: Place,
}

impl Drop for Held {
    fn drop(&mut self) {
        locked(&self.inner.table).release(&self.place);
    }
}

pub(crate) fn limit_bytes(inner: &Inner) -> u64 {
    inner.options.max_workspace_mb.saturating_mul(MAX_MIB)
}

fn checked(inner: &Inner, principal: &Tenant, name: &str) -> Result<PathBuf, Fault> {
    if !is_workspace_name(name) {
        return Err(Fault::invalid("name", name, "[a-z0-9][a-z0-9_-]{0,63}"));
    }
    let root = inner.options.workspace_root.clone().filter(|_| check_id(principal).is_ok());
    root.ok_or_else(Fault::not_found)
}

fn uses(sessions: &[Arc<Session>], place: &Place) -> Vec<WorkspaceUse> {
    let mine = sessions.iter().filter(|session| session.place().as_ref() == Some(place));
    let mut uses: Vec<WorkspaceUse> = mine
        .map(|session| WorkspaceUse {
            session_id: session.id().clone(),
            root_run_id: session.record.spec.root_run.clone(),
            read_only: matches!(session.record.spec.work, Work::Durable { read_only: true, .. }),
        })
        .collect();
    uses.sort_by(|a, b| a.session_id.cmp(&b.session_id));
    uses
}

/// Takes the workspace for something that concerns all of it.
fn hold(inner: &Arc<Inner>, place: &Place, hold: Hold) -> Result<Held, Fault> {
    let mut table = locked(&inner.table);
    let busy = |session: &Arc<Session>| {
        let writes = !matches!(session.record.spec.work, Work::Durable { read_only: true, .. });
        session.place().as_ref() == Some(place) && (hold == Hold::Change || (writes && session.runs_commands()))
    };
    if let Some(session) = table.sessions().iter().find(|session| busy(session)) {
        let advice = match hold {
            Hold::Change => "a session has the workspace; close it first",
            Hold::Export => "a command that may change the workspace runs; wait for it, or close its session",
        };
        return Err(Fault::new(FaultCode::Conflict, advice)
            .with_details(serde_json::json!({ "session_id": session.id(), "workspace": place.1 })));
    }
    if !table.hold(place.clone(), hold) {
        return Err(Fault::new(FaultCode::Conflict, "the workspace is being exported, replaced or removed; try again"));
    }
    Ok(Held { inner: inner.clone(), place: place.clone() })
}

#[async_trait]
impl Workspaces for Node {
    async fn list_workspaces(&self, principal: Option<&Tenant>) -> Result<Vec<WorkspaceRow>, Fault> {
        let inner = self.inner.clone();
        let Some(root) = inner.options.workspace_root.clone() else { return Ok(Vec::new()) };
        let only = principal.cloned();
        let found = blocking(move || {
            let homes = Homes::on(&root);
            let home = |(place, made): (Place, Timestamp)| {
                let home = homes.of(&place.0, &place.1)?;
                Ok((place, made, home))
            };
            find(&root, only.as_ref())?.into_iter().map(home).collect::<Result<Vec<_>, Error>>()
        });
        let found = found.await.map_err(|error| fault("workspaces", &error))?;
        let sessions = locked(&inner.table).sessions();
        let mut rows = Vec::with_capacity(found.len());
        for (place, created_at, home) in found {
            let (size, measured_at) = match size_of(&inner, &place).await {
                Ok(measured) => measured,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(fault("workspaces", &error)),
            };
            rows.push(WorkspaceRow {
                sessions: uses(&sessions, &place),
                name: place.1,
                tenant_id: place.0,
                node: home.map_or_else(|| inner.options.name.clone(), |home| home.node),
                size_bytes: size.bytes,
                files: size.files,
                limit_bytes: limit_bytes(&inner),
                measured_at,
                created_at,
            });
        }
        rows.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.name.cmp(&b.name)));
        Ok(rows)
    }

    async fn delete_workspace(&self, principal: &Tenant, name: &str) -> Result<(), Fault> {
        let root = checked(&self.inner, principal, name)?;
        let (inner, place) = (self.inner.clone(), (principal.clone(), name.to_owned()));
        // A task of its own, which goes on when its caller has gone.
        let work = async move {
            let held = hold(&inner, &place, Hold::Change)?;
            let (owner, name) = place.clone();
            let trash = aside(&inner.options.name);
            let removed = match take_home_of_one_there(&inner, &place).await {
                Ok(()) => {
                    blocking(move || {
                        remove(&root, &owner, &name, &trash)?;
                        Homes::on(&root).forget(&owner, &name)
                    })
                    .await
                }
                Err(error) => Err(error),
            };
            locked(&inner.usage).forget(&place);
            drop(held);
            removed.map_err(|error| told("delete", &error))
        };
        finish("workspace-delete", work).await
    }

    async fn export_workspace(&self, principal: &Tenant, name: &str) -> Result<TarStream, Fault> {
        let root = checked(&self.inner, principal, name)?;
        let (owner, wanted) = (principal.clone(), name.to_owned());
        let folder = blocking(move || open(&root, &owner, &wanted)).await.map_err(|error| told("export", &error))?;
        let place = (principal.clone(), name.to_owned());
        let held = hold(&self.inner, &place, Hold::Export)?;
        take_home_of_one_there(&self.inner, &place).await.map_err(|error| told("export", &error))?;
        let (sender, receiver) = mpsc::channel(PIECES);
        let work = async move {
            let packed = blocking(move || {
                let mut out = BufWriter::with_capacity(PIECE_BYTES, Pieces(sender.clone()));
                if let Err(error) = archive::pack(&folder, &mut out).and_then(|()| out.flush()) {
                    tracing::warn!(%error, "an export did not come to its end");
                    let fault = Fault::unavailable("the workspace could not be read to its end; try again");
                    sender.blocking_send(Err(fault)).ok();
                }
                Ok(())
            })
            .await;
            drop(held);
            packed
        };
        drop(hearth_telemetry::task::spawn("workspace-export", work));
        let pieces = futures::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        Ok(pieces.boxed())
    }

    async fn import_workspace(&self, principal: &Tenant, name: &str, mut tar: TarStream) -> Result<Imported, Fault> {
        let root = checked(&self.inner, principal, name)?;
        let (inner, place) = (self.inner.clone(), (principal.clone(), name.to_owned()));
        let held = hold(&inner, &place, Hold::Change)?;
        let (sender, receiver) = mpsc::channel::<Result<Bytes, Fault>>(PIECES);
        let most = limit_bytes(&inner);
        let work = async move {
            let (owner, name) = place.clone();
            let at_home = take_home(&inner, &owner, &name).await;
            let brought = match at_home {
                Ok(()) => {
                    let aside = aside(&inner.options.name);
                    blocking(move || replace(&root, &owner, &name, &aside, Incoming::new(receiver), most)).await
                }
                Err(error) => Err(error),
            };
            locked(&inner.usage).forget(&place);
            drop(held);
            let size = brought.map_err(|error| told("import", &error))?;
            let node = inner.options.name.clone();
            Ok(Imported { name: place.1, node, files: size.files, size_bytes: size.bytes })
        };
        // A caller that goes away ends the stream early, and with that the import.
        let feed = async move {
            while let Some(piece) = tar.next().await {
                if sender.send(piece).await.is_err() {
                    return;
                }
            }
            sender.send(Ok(Bytes::new())).await.ok();
        };
        let (imported, ()) = tokio::join!(finish("workspace-import", work), feed);
        imported
    }
}

async fn finish<T: Send + 'static>(
    name: &'static str,
    work: impl Future<Output = Result<T, Fault>> + Send + 'static,
) -> Result<T, Fault> {
    match hearth_telemetry::task::spawn(name, work).await {
        Ok(Some(result)) => result,
        Ok(None) | Err(_) => Err(Fault::internal(format!("the task {name} ended without a result"))),
    }
}

/// A workspace that is not there is as one of somebody else.
fn told(what: &'static str, error: &Error) -> Fault {
    match error.kind() {
        ErrorKind::NotFound => Fault::not_found(),
        ErrorKind::NoSpace => Fault::new(FaultCode::QuotaExceeded, error.to_string()),
        _ => fault(what, error),
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::NotFound, "there is no such workspace")
}

fn disk(error: impl Into<io::Error>) -> Error {
    Error::caused(ErrorKind::Unavailable, "the workspaces cannot be used", error.into())
}

fn open(root: &Path, principal: &str, name: &str) -> Result<OwnedFd, Error> {
    let owner = match open_folder(&open_root(root)?, principal) {
        Err(Errno::NOENT) => return Err(gone()),
        other => other.map_err(disk)?,
    };
    match open_folder(&owner, name) {
        Err(Errno::NOENT) => Err(gone()),
        Err(Errno::LOOP | Errno::NOTDIR) => {
            Err(Error::new(ErrorKind::Refused, "the workspace is a symbolic link or no folder"))
        }
        other => other.map_err(disk),
    }
}

/// The folders that are workspaces, with the time that each was made.
fn find(root: &Path, only: Option<&Tenant>) -> Result<Vec<(Place, Timestamp)>, Error> {
    let root = open_root(root)?;
    let mut found = Vec::new();
    for principal in subfolders(&root)? {
        if check_id(&principal).is_err() || only.is_some_and(|only| *only != principal) {
            continue;
        }
        let Ok(owner) = open_folder(&root, principal.as_str()) else { continue };
        for name in subfolders(&owner)?.into_iter().filter(|name| is_workspace_name(name)) {
            let Ok(folder) = open_folder(&owner, name.as_str()) else { continue };
            let meta = std::fs::File::from(folder).metadata().map_err(disk)?;
            let made = meta.created().or_else(|_| meta.modified()).map_err(disk)?;
            let since = made.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            let made = Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
            found.push(((principal.clone(), name), made));
        }
    }
    Ok(found)
}

fn subfolders(folder: &OwnedFd) -> Result<BTreeSet<String>, Error> {
    let mut names = BTreeSet::new();
    for entry in rustix::fs::Dir::read_from(folder).map_err(disk)? {
        let entry = entry.map_err(disk)?;
        names.extend(entry.file_name().to_str().ok().filter(|name| !name.starts_with('.')).map(str::to_owned));
    }
    Ok(names)
}

async fn size_of(inner: &Arc<Inner>, place: &Place) -> Result<(Size, Timestamp), Error> {
    if let Some(known) = locked(&inner.usage).fresh(place) {
        return Ok(known);
    }
    measure(inner, place).await
}

pub(crate) async fn measure(inner: &Arc<Inner>, place: &Place) -> Result<(Size, Timestamp), Error> {
    let root = inner.options.workspace_root.clone().ok_or_else(gone)?;
    let (owner, name) = place.clone();
    let began = tokio::time::Instant::now();
    let size = blocking(move || archive::measure(&open(&root, &owner, &name)?).map_err(disk)).await?;
    let at = inner.clock.now();
    locked(&inner.usage).note(place, size, at, began.elapsed());
    Ok((size, at))
}

/// Makes this node the home of a workspace that is to be used here. One that is on another node is taken over only
/// once that node is known to be gone.
pub(crate) async fn take_home(inner: &Arc<Inner>, principal: &str, name: &str) -> Result<(), Error> {
    let Some(root) = inner.options.workspace_root.clone() else { return Ok(()) };
    let claim = async |from: Option<Home>| {
        let (homes, me) = (Homes::on(&root), inner.options.name.clone());
        let (principal, name) = (principal.to_owned(), name.to_owned());
        blocking(move || homes.claim(&principal, &name, &me, from.as_ref())).await
    };
    lease::require_cluster(inner).await?;
    let mut home = claim(None).await?;
    if home.node != inner.options.name && inner.liveness.node_is_gone(&home.node).await {
        tracing::info!(workspace = name, from = home.node, "a workspace is taken over from a node that is gone");
        home = claim(Some(home)).await?;
    }
    if home.node == inner.options.name {
        return Ok(());
    }
    let message = format!("the workspace is on sandbox node {}, which is not known to be gone; try again", home.node);
    Err(Error::new(ErrorKind::Unavailable, message))
}

/// The same for a workspace that is to be there: none is made a home for what is not.
async fn take_home_of_one_there(inner: &Arc<Inner>, place: &Place) -> Result<(), Error> {
    let root = inner.options.workspace_root.clone().ok_or_else(gone)?;
    let (owner, name) = place.clone();
    blocking(move || open(&root, &owner, &name).map(drop)).await?;
    take_home(inner, &place.0, &place.1).await
}

/// A name for something that is on its way in or out, of this node's.
fn aside(node: &str) -> String {
    format!("{ASIDE}{node}.{}", SandboxId::generate())
}

/// Renamed first, so that it is gone at once for everybody.
fn remove(root: &Path, principal: &str, name: &str, trash: &str) -> Result<(), Error> {
    drop(open(root, principal, name)?);
    let owner = open_folder(&open_root(root)?, principal).map_err(disk)?;
    match rustix::fs::renameat(&owner, name, &owner, trash) {
        Err(Errno::NOENT) => return Err(gone()),
        other => other.map_err(disk)?,
    }
    clear(&owner, trash)
}

/// Removes a folder by the handle of the one that it is in; the standard library follows no link on its way.
fn clear(owner: &OwnedFd, name: &str) -> Result<(), Error> {
    let path = format!("/proc/self/fd/{}/{name}", owner.as_raw_fd());
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk(error)),
        _ => Ok(()),
    }
}

/// Unpacks beside the workspace and exchanges the two at the end.
fn replace(root: &Path, principal: &str, name: &str, fresh: &str, tar: Incoming, most: u64) -> Result<Size, Error> {
    let owner = open_owner(root, principal, name)?;
    let unpacked = Workspace::make(&owner, fresh).and_then(|folder| archive::unpack(tar, &folder, most));
    let exchanged = unpacked.and_then(|size| {
        match rustix::fs::renameat_with(&owner, fresh, &owner, name, RenameFlags::EXCHANGE) {
            Err(Errno::NOENT) => rustix::fs::renameat_with(&owner, fresh, &owner, name, RenameFlags::NOREPLACE),
            other => other,
        }
        .map_err(disk)?;
        Ok(size)
    });
    // What was there before, or what came of the import that failed.
    match (clear(&owner, fresh), exchanged) {
        (Err(error), Ok(size)) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "remains of a workspace could not be removed");
            Ok(size)
        }
        (_, exchanged) => exchanged,
    }
}

/// Removes what imports and removals of an earlier process of this node left behind.
pub(crate) fn clear_remains(root: &Path, node: &str) -> Result<(), Error> {
    if !root.exists() {
        return Ok(());
    }
    let mine = format!("{ASIDE}{node}.");
    let root = open_root(root)?;
    for principal in subfolders(&root)? {
        let Ok(owner) = open_folder(&root, principal.as_str()) else { continue };
        for entry in rustix::fs::Dir::read_from(&owner).map_err(disk)? {
            let entry = entry.map_err(disk)?;
            if let Ok(name) = entry.file_name().to_str()
                && name.starts_with(&mine)
            {
                clear(&owner, name)?;
            }
        }
    }
    Ok(())
}

/// The disk's side of an export.
struct Pieces(mpsc::Sender<Result<Bytes, Fault>>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let piece = Bytes::copy_from_slice(bytes);
        self.0.blocking_send(Ok(piece)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The disk's side of an import. The stream's end is an empty piece: one that stops without it broke off.
struct Incoming {
    pieces: mpsc::Receiver<Result<Bytes, Fault>>,
    piece: Bytes,
    ended: bool,
}

impl Incoming {
    fn new(pieces: mpsc::Receiver<Result<Bytes, Fault>>) -> Self {
        Self { pieces, piece: Bytes::new(), ended: false }
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Ok(piece)) => {
                    self.ended = piece.is_empty();
                    self.piece = piece;
                }
                Some(Err(fault)) => return Err(io::Error::other(Error::new(ErrorKind::Invalid, fault.message))),
                None => return Err(io::Error::other(Error::new(ErrorKind::Invalid, "the body ended early"))),
            }
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}
