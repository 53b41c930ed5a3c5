//! The session service of one machine: it serves the sandbox port over the drivers that work here.
//!
//! What a session may have is decided in `policy`, by pure code; `open`, `close` and `sweep` carry it
//! out, as tasks of their own that finish whoever goes away; `state` makes all of it outlive the process.

mod archive;
mod bounded;
mod close;
mod commands;
mod exec_log;
mod files;
mod find;
mod homes;
mod lease;
mod metrics;
mod open;
mod options;
mod past;
mod policy;
mod pool;
mod provenance;
mod session;
mod state;
mod sweep;
mod table;
mod text;
mod usage;
mod variables;
mod workspace;
mod workspaces;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hearth_types::{Fault, RunId, SandboxId, SharedClock};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use archive::measure as measure_folder;
pub(crate) use commands::MAX_POLL_MS;
pub use homes::{Home, Homes};
pub use options::{Ceiling, DEFAULT_IMAGE, NodeOptions, OptionsError};
pub(crate) use policy::{MIN_CPU, MIN_MEM_MB, MIN_PIDS};
pub use policy::{is_image_name, is_workspace_name};
pub use state::workspace_store;
pub(crate) use state::{mark_durably, node_identity};
pub use variables::check_secrets;

use crate::node::lease::Standing;
use crate::node::past::Past;
use crate::node::pool::{Pool, Shape};
use crate::node::session::locked;
use crate::node::state::StateFolder;
use crate::node::table::Table;
use crate::node::usage::Usage;
use crate::{
    Caller, CloseRunResult, Error, ErrorKind, ExecArgs, ExecResult, KillArgs, OpenArgs, OpenResult, PollArgs, ReadArgs,
    ReadResult, RunLiveness, Sandboxes, SessionArgs, SessionRow, SharedDriver, Workspaces, WriteArgs, WriteResult,
};

/// A running session service. Dropping it stops the sweeper and releases the state folder; sessions go
/// on, to be found again by the next node on the same folder.
pub struct Node {
    inner: Arc<Inner>,
    sweeper: JoinHandle<Option<()>>,
    filler: JoinHandle<Option<()>>,
}

pub(crate) struct Inner {
    options: NodeOptions,
    /// In the order of preference; the first is the default.
    drivers: Vec<SharedDriver>,
    clock: SharedClock,
    liveness: Arc<dyn RunLiveness>,
    state: StateFolder,
    table: Mutex<Table>,
    past: Mutex<Past>,
    draining: AtomicBool,
    standing: Mutex<Standing>,
    /// When somebody looked at a list of sessions last, in milliseconds.
    looked_at: AtomicI64,
    /// Never locked before the table by whoever needs both.
    pool: Mutex<Pool>,
    usage: Mutex<Usage>,
}

impl Node {
    /// Takes the state folder and finds the sessions of an earlier process in it. Those are ready, or
    /// cleared away, within a sweep; a call for one of them does not wait for that.
    pub async fn start(
        options: NodeOptions,
        drivers: Vec<SharedDriver>,
        clock: SharedClock,
        liveness: Arc<dyn RunLiveness>,
    ) -> Result<Self, Error> {
        let (dir, root, name) = (options.state_dir.clone(), options.workspace_root.clone(), options.name.clone());
        let (state, records, pooled, past) = blocking(move || {
            let state = StateFolder::open(&dir)?;
            let records = state.records()?;
            let pooled = state.pooled()?;
            if let Some(root) = &root
                && let Err(error) = workspaces::clear_remains(root, &name).and_then(|()| Homes::on(root).join(&name))
            {
                tracing::warn!(error = &error as &dyn std::error::Error, "remains of workspaces are left");
            }
            let past = Past::open(state.past_file()).map_err(|error| {
                Error::caused(ErrorKind::Unavailable, "the node's state folder cannot be read", error)
            })?;
            Ok((state, records, pooled, past))
        })
        .await?;
        // Without a driver that has the operator's runtime every open is refused, and there is nothing to keep.
        let usual = policy::plan(&OpenArgs::default(), &options, &drivers).ok();
        let usual = usual.and_then(|plan| Shape::of(&plan, drivers.get(plan.driver)?));
        let pool = Pool::new(options.pool_size, usual, pooled, clock.now());
        let mut table = Table::new(options.max_sessions);
        for record in records {
            table.adopt(record, &drivers, &state, clock.now());
        }
        tracing::info!(
            node = options.name,
            identity = state.identity(),
            drivers = ?drivers.iter().map(|driver| (driver.kind(), driver.isolation())).collect::<Vec<_>>(),
            sessions = table.len(),
            "the sandbox node is up"
        );
        let inner = Arc::new(Inner {
            options,
            drivers,
            clock,
            liveness,
            state,
            table: Mutex::new(table),
            past: Mutex::new(past),
            draining: AtomicBool::new(false),
            standing: Mutex::new(Standing::Apart),
            looked_at: AtomicI64::new(0),
            pool: Mutex::new(pool),
            usage: Mutex::default(),
        });
        let sweeper = hearth_telemetry::task::spawn("sandbox-sweep", sweep::run(Arc::downgrade(&inner)));
        let filler = hearth_telemetry::task::spawn("sandbox-pool", pool::run(Arc::downgrade(&inner)));
        Ok(Self { inner, sweeper, filler })
    }

    /// What labels say of this node's containers, besides its name.
    pub fn identity(&self) -> &str {
        self.inner.state.identity()
    }

    /// Closes every session and returns when all are gone, or the first failure. For a node that is
    /// taken down for good.
    pub async fn close_all(&self) -> Result<(), Fault> {
        let ((), closed) = tokio::join!(self.drain_pool(), close::all(&self.inner));
        closed
    }

    /// The sessions that are ready and nobody's, now.
    pub fn pooled(&self) -> Vec<SandboxId> {
        locked(&self.inner.pool).members()
    }

    /// Removes the sessions that are ready and nobody's. For the end of a process whose sessions go on.
    pub async fn drain_pool(&self) {
        pool::drain(&self.inner).await;
    }

    /// Takes no new sessions from now on; those that are there go on.
    pub fn begin_drain(&self) {
        self.inner.draining.store(true, Ordering::Relaxed);
    }

    /// Ends the sessions whose workspaces another node might soon take for its own, since this one leaves its
    /// cluster or is cut off from it, and opens no others until it is [registered](Self::registered) again. Storage
    /// that nobody shares is nobody else's to take. How many there were.
    pub async fn leave_shared_workspaces(&self) -> usize {
        lease::leave(&self.inner).await
    }

    /// The cluster knows of this node, and no other takes a workspace from it before `until`. Sessions with a
    /// workspace on a shared storage end by themselves then, even where this process has died, unless this is
    /// called again.
    pub async fn registered(&self, until: Instant) {
        lease::registered(&self.inner, until).await;
    }

    pub fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Relaxed)
    }

    /// The images that a session may name, of those that are here.
    pub async fn images(&self) -> Result<Vec<String>, Error> {
        let options = &self.inner.options;
        let mut images = Vec::new();
        for driver in &self.inner.drivers {
            images.extend(driver.images().await?);
        }
        images.retain(|name| {
            *name == options.image || options.allowed_images.as_ref().is_none_or(|allowed| allowed.contains(name))
        });
        images.sort();
        images.dedup();
        Ok(images)
    }

    /// Commands under way.
    pub fn execs(&self) -> u64 {
        let sessions = locked(&self.inner.table).sessions();
        let rows =
            sessions.iter().filter_map(|session| session.row(self.inner.options.idle_ttl, self.inner.clock.now()));
        rows.map(|row| row.running).sum()
    }

    /// Sessions that hold a place, those that are being opened or closed too.
    pub fn sessions(&self) -> usize {
        locked(&self.inner.table).len()
    }

    /// One sweep now, besides those that come by themselves.
    pub async fn sweep(&self) {
        sweep::once(&self.inner).await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.sweeper.abort();
        self.filler.abort();
    }
}

/// Work that waits for the disk.
pub(crate) async fn blocking<T, F>(work: F) -> Result<T, Error>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, Error> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(Error::caused(ErrorKind::Internal, "a task for the disk did not end well", error)),
    }
}

#[async_trait]
impl Sandboxes for Node {
    async fn open(&self, caller: &Caller, args: OpenArgs) -> Result<OpenResult, Fault> {
        open::open(&self.inner, caller, &args).await
    }

    async fn unclaimed(&self, caller: &Caller, session: &SandboxId) {
        close::unclaimed(&self.inner, caller, session);
    }

    async fn exec(&self, caller: &Caller, args: ExecArgs) -> Result<ExecResult, Fault> {
        commands::exec(&self.inner, caller, args).await
    }

    async fn poll(&self, caller: &Caller, args: PollArgs) -> Result<ExecResult, Fault> {
        commands::poll(&self.inner, caller, &args).await
    }

    async fn kill(&self, caller: &Caller, args: KillArgs) -> Result<ExecResult, Fault> {
        commands::kill(&self.inner, caller, &args).await
    }

    async fn write(&self, caller: &Caller, args: WriteArgs) -> Result<WriteResult, Fault> {
        files::write(&self.inner, caller, args).await
    }

    async fn read(&self, caller: &Caller, args: ReadArgs) -> Result<ReadResult, Fault> {
        files::read(&self.inner, caller, &args).await
    }

    async fn touch(&self, caller: &Caller, args: SessionArgs) -> Result<SessionRow, Fault> {
        let (session, _) = self.inner.find(caller, &args.session_id).await?;
        drop(session.begin(&self.inner.clock)?);
        session.row(self.inner.options.idle_ttl, self.inner.clock.now()).ok_or_else(Fault::not_found)
    }

    async fn close(&self, caller: &Caller, args: SessionArgs) -> Result<(), Fault> {
        close::one(&self.inner, caller, &args.session_id).await
    }

    async fn close_run(&self, caller: &Caller, root_run: &RunId, tombstone: bool) -> Result<CloseRunResult, Fault> {
        close::run_tree(&self.inner, caller, root_run, tombstone).await
    }

    async fn list(&self, caller: &Caller) -> Result<Vec<SessionRow>, Fault> {
        self.inner.looked_at.store(self.inner.clock.now().as_millis(), Ordering::Relaxed);
        Ok(self.inner.rows(|session| session.visible_to(caller)))
    }

    async fn list_all(&self) -> Result<Vec<SessionRow>, Fault> {
        self.inner.looked_at.store(self.inner.clock.now().as_millis(), Ordering::Relaxed);
        Ok(self.inner.rows(|_| true))
    }

    async fn drain(&self, node: &str) -> Result<(), Fault> {
        if node != self.inner.options.name {
            return Err(Fault::not_found());
        }
        self.begin_drain();
        Ok(())
    }

    fn workspaces(&self) -> Option<&dyn Workspaces> {
        Some(self)
    }
}

impl Inner {
    /// The newest first.
    fn rows(&self, which: impl Fn(&session::Session) -> bool) -> Vec<SessionRow> {
        let sessions = locked(&self.table).sessions();
        let now = self.clock.now();
        let mine = sessions.iter().filter(|session| which(session));
        let mut rows: Vec<SessionRow> = mine.filter_map(|session| session.row(self.options.idle_ttl, now)).collect();
        rows.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| b.session_id.cmp(&a.session_id)));
        rows
    }
}

/// Logs an error where it ends, with its causes, and gives what the caller sees of it.
pub(crate) fn fault(what: &'static str, error: &Error) -> Fault {
    let unexpected = matches!(error.kind(), ErrorKind::Internal);
    if unexpected {
        tracing::error!(what, error = error as &dyn std::error::Error, "a sandbox call failed");
    } else {
        tracing::debug!(what, error = error as &dyn std::error::Error, "a sandbox call was not successful");
    }
    Fault::from(error)
}
