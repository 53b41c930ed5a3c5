//! The sandbox port over all nodes: finds or chooses the node, and calls it until it answers or is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use hearth_registry::{NodeRow, SandboxPlace, SharedRegistry, WorkspaceHome};
use hearth_sandbox::{
    Caller, CloseRunResult, ExecArgs, ExecResult, KillArgs, OpenArgs, OpenResult, PollArgs, ReadArgs, ReadResult,
    Sandboxes, SessionArgs, SessionRow, Workspaces, WriteArgs, WriteResult,
};
use hearth_types::{ExecId, Fault, FaultCode, RunId, SandboxId, derive_hex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::announce::{SETTLED, told_mark};
use crate::client::{NoOutcome, NodeClient, Question};
use crate::placement::{Wanted, choose, workspace_affinity};

/// Sessions whose node is remembered; one that is forgotten is looked for on all nodes.
const SESSIONS_KEPT: usize = 100_000;
/// Workspaces whose home is remembered here, besides the registry.
const HOMES_KEPT: usize = 100_000;
/// Pause before a node that was lost is called again.
const CALL_AGAIN: Duration = Duration::from_millis(200);
/// How long a list waits for a node.
const LIST_PATIENCE: Duration = Duration::from_secs(2);
/// How much longer than a session can live it is known where it was.
const PLACE_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// How long a node that is registered may be out of reach before the caller is told.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where a tree's shared session of a kind is: decided by the tree's root run.
#[async_trait]
pub trait Binder: Send + Sync + 'static {
    /// The node of the session: `node`, unless there is another one already that is not `replaces`.
    async fn bind(&self, root: &RunId, slot: String, node: String, replaces: Option<String>) -> Result<String, Fault>;

    /// The nodes that the tree's shared sessions were bound to.
    async fn bound(&self, root: &RunId) -> Result<Vec<String>, Fault>;
}

/// The sandboxes of all nodes. Cheap to clone.
#[derive(Clone)]
pub struct Nodes {
    inner: Arc<Inner>,
}

struct Inner {
    registry: SharedRegistry,
    token: Option<String>,
    binder: OnceLock<Arc<dyn Binder>>,
    clients: Mutex<HashMap<String, (String, NodeClient)>>,
    sessions: Mutex<HashMap<SandboxId, String>>,
    /// Where workspaces were seen; the registry counts, as long as it has not lost them.
    homes: Mutex<HashMap<String, WorkspaceHome>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nodes {
    /// `token` is the nodes' `SANDBOX_AUTH_TOKEN`.
    pub fn new(registry: SharedRegistry, token: Option<String>) -> Self {
        let inner = Inner {
            registry,
            token,
            binder: OnceLock::new(),
            clients: Mutex::default(),
            sessions: Mutex::default(),
            homes: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// To be called once, before the first open.
    pub fn connect(&self, binder: Arc<dyn Binder>) {
        self.inner.binder.set(binder).ok();
    }

    pub(crate) async fn live(&self) -> Result<Vec<NodeRow>, Fault> {
        let rows = self.inner.registry.nodes().await;
        rows.map_err(|error| Fault::unavailable(format!("the sandbox nodes are not known now: {error}")))
    }

    pub(crate) fn client(&self, row: &NodeRow) -> Result<NodeClient, Fault> {
        let mut clients = locked(&self.inner.clients);
        if let Some((url, client)) = clients.get(&row.node)
            && *url == row.url
        {
            return Ok(client.clone());
        }
        let client = NodeClient::new(&row.url, self.inner.token.as_deref()).map_err(told)?;
        clients.insert(row.node.clone(), (row.url.clone(), client.clone()));
        Ok(client)
    }

    /// Calls a tool of a node. Every call can be repeated, so one that was lost is sent again for as long
    /// as the node is registered.
    async fn call<T: DeserializeOwned>(
        &self,
        node: &str,
        caller: &Caller,
        tool: &'static str,
        args: &(impl Serialize + Sync),
    ) -> Result<T, Fault> {
        let args = serde_json::to_value(args).map_err(|error| Fault::internal(error.to_string()))?;
        read(self.insist(node, &Question::Call { caller, tool, args }).await?)
    }

    pub(crate) async fn insist(&self, node: &str, question: &Question<'_>) -> Result<Value, Fault> {
        let mut until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let rows = self.live().await?;
            let Some(row) = rows.iter().find(|row| row.node == node) else { return Err(lost_session(None)) };
            let began = tokio::time::Instant::now();
            match self.client(row)?.ask(question).await {
                Ok(outcome) => return outcome,
                Err(NoOutcome::Lost(reason)) => {
                    tracing::info!(node, reason, "a node was lost during a call; it is called again");
                    if began.elapsed() > PATIENCE {
                        // It had been working on it: patience begins anew.
                        until = tokio::time::Instant::now() + PATIENCE;
                    }
                    if tokio::time::Instant::now() > until {
                        return Err(Fault::unavailable("the sandbox node is out of reach; try again"));
                    }
                    tokio::time::sleep(CALL_AGAIN).await;
                }
                Err(refused) => return Err(told(refused)),
            }
        }
    }

    /// The node of a session: remembered, or written down at its open, or found by asking all.
    async fn node_of(&self, caller: &Caller, session: &SandboxId) -> Result<String, Fault> {
        if let Some(node) = locked(&self.inner.sessions).get(session).cloned() {
            return Ok(node);
        }
        let live = self.live().await?;
        if let Some(place) = self.place(caller, session).await? {
            if live.iter().any(|row| row.node == place.node) {
                self.remember(session.clone(), place.node.clone());
                return Ok(place.node);
            }
            return Err(lost_session(Some(&place)));
        }
        for row in &live {
            let Ok(Ok(rows)) = self.client(row)?.ask(&Question::ListAll).await else { continue };
            let rows: Vec<SessionRow> = read(rows)?;
            if rows.iter().any(|known| known.session_id == *session) {
                self.remember(session.clone(), row.node.clone());
                return Ok(row.node.clone());
            }
        }
        // Nobody has it. It was on a node that is gone, if the caller's own tree had its session on one.
        if let (Some(root), Some(binder)) = (&caller.root_run, self.inner.binder.get())
            && binder.bound(root).await?.iter().any(|node| live.iter().all(|row| row.node != *node))
        {
            return Err(lost_session(None));
        }
        Err(Fault::not_found())
    }

    /// Where the caller's session was opened, if that was written down. Another's is as one that never was.
    async fn place(&self, caller: &Caller, session: &SandboxId) -> Result<Option<SandboxPlace>, Fault> {
        let Ok(Some(place)) = self.inner.registry.sandbox(session).await else { return Ok(None) };
        let visible = place.principal == caller.principal
            && caller.root_run.as_ref().is_none_or(|root| place.root_run.as_ref() == Some(root));
        if visible { Ok(Some(place)) } else { Err(Fault::not_found()) }
    }

    /// Writes down where a session was opened, so that every replica can tell its caller what became of it.
    /// A registry that does not take it costs a look at all nodes.
    async fn note(&self, caller: &Caller, args: &OpenArgs, opened: &OpenResult) {
        let place = SandboxPlace {
            node: opened.node.clone(),
            principal: caller.principal.clone(),
            root_run: caller.root_run.clone(),
            workspace: args.workspace.clone(),
        };
        let lives = opened.expires_at.since(opened.idle_expires_at) + PLACE_KEPT;
        if let Err(error) = self.inner.registry.note_sandbox(&opened.session_id, place, lives).await {
            tracing::debug!(%error, "where a session was opened is not written down");
        }
    }

    fn remember(&self, session: SandboxId, node: String) {
        let mut sessions = locked(&self.inner.sessions);
        if sessions.len() >= SESSIONS_KEPT {
            sessions.clear();
        }
        sessions.insert(session, node);
    }

    async fn on_session<T: DeserializeOwned>(
        &self,
        session: &SandboxId,
        caller: &Caller,
        tool: &'static str,
        args: &(impl Serialize + Sync),
    ) -> Result<T, Fault> {
        let node = self.node_of(caller, session).await?;
        let answer = self.call(&node, caller, tool, args).await;
        match answer {
            Err(fault) if fault.code == FaultCode::SessionLost && fault.details.is_none() => {
                // Its node is gone: the caller is told what the node itself would tell.
                Err(self.place(caller, session).await?.map_or(fault, |place| lost_session(Some(&place))))
            }
            answer => answer,
        }
    }

    /// The node of an open: the tree's, if the tree has such a session; else the one that fits best.
    /// `avoid` is a node that has just said that it takes no sessions.
    async fn node_for(&self, caller: &Caller, args: &OpenArgs, avoid: Option<&str>) -> Result<String, Fault> {
        let mut rows = self.live().await?;
        rows.retain(|row| Some(row.node.as_str()) != avoid);
        let own = args.own == Some(true);
        let shared = caller.root_run.as_ref().filter(|_| !own);
        let affinity = match (&args.workspace, &caller.call, shared) {
            (Some(workspace), _, _) => workspace_affinity(&caller.principal, workspace),
            (None, _, Some(root)) => root.to_string(),
            (None, Some(call), None) => call.clone(),
            (None, None, None) => SandboxId::generate().to_string(),
        };
        let wanted = Wanted {
            isolation: args.isolation,
            runtime: args.runtime.clone(),
            workspace: args.workspace.is_some(),
            image: args.image.clone(),
            home: self.home(caller, args, &rows).await?,
            affinity,
        };
        let Some(root) = shared else {
            let chosen = choose(&rows, &wanted)?;
            self.settle(caller, args, chosen, wanted.home.as_ref()).await;
            return Ok(chosen.node.clone());
        };
        let slot = derive_hex(&["slot", args.image.as_deref().unwrap_or(""), args.workspace.as_deref().unwrap_or("")]);
        let Some(binder) = self.inner.binder.get() else {
            return Err(Fault::unavailable("this replica has just started; try again"));
        };
        // Without a node that fits, the tree's own may still be there and have the session.
        let fits = choose(&rows, &wanted).map(|row| row.node.clone());
        let proposed = fits.clone().or_else(|fault| rows.first().map(|row| row.node.clone()).ok_or(fault))?;
        let mut bound = binder.bind(root, slot.clone(), proposed, None).await?;
        if rows.iter().all(|row| row.node != bound) {
            bound = binder.bind(root, slot, fits?, Some(bound)).await?;
        }
        if let Some(row) = rows.iter().find(|row| row.node == bound) {
            self.settle(caller, args, row, wanted.home.as_ref()).await;
        }
        Ok(bound)
    }

    /// Where the workspace of an open is. That it is nowhere is known once the registry has been told by every node
    /// that lives what it has: one that has just lost everything knows nothing, not even which nodes there are, and
    /// an empty workspace elsewhere would pass for the one that is looked for.
    async fn home(&self, caller: &Caller, args: &OpenArgs, rows: &[NodeRow]) -> Result<Option<WorkspaceHome>, Fault> {
        let Some(name) = &args.workspace else { return Ok(None) };
        let key = workspace_key(&caller.principal, name);
        let unknown = |error| Fault::unavailable(format!("where the workspace is is not known now: {error}"));
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            if let Some(home) = self.inner.registry.home(&key).await.map_err(unknown)? {
                self.keep_home(&key, &home);
                return Ok(Some(home));
            }
            // What this replica knew the registry may have lost together with the node.
            let kept = locked(&self.inner.homes).get(&key).cloned();
            if let Some(home) = kept {
                return self.inner.registry.move_home(&key, home).await.map(Some).map_err(unknown);
            }
            let mut told = self.inner.registry.home(SETTLED).await.map_err(unknown)?.is_some();
            for row in rows.iter().filter(|row| row.workspaces) {
                told &= self.inner.registry.home(&told_mark(&row.node)).await.map_err(unknown)?.is_some();
            }
            if told {
                return Ok(None);
            }
            if tokio::time::Instant::now() > until {
                return Err(Fault::unavailable("a sandbox node has not told yet which workspaces it has; try again"));
            }
            tokio::time::sleep(CALL_AGAIN).await;
        }
    }

    fn keep_home(&self, key: &str, home: &WorkspaceHome) {
        let mut homes = locked(&self.inner.homes);
        if homes.len() >= HOMES_KEPT {
            homes.clear();
        }
        homes.insert(key.to_owned(), home.clone());
    }

    /// Its name is free again, anywhere.
    pub(crate) async fn forget_home(&self, principal: &str, workspace: &str) {
        let key = workspace_key(principal, workspace);
        locked(&self.inner.homes).remove(&key);
        if let Err(error) = self.inner.registry.forget_home(&key).await {
            tracing::warn!(%error, workspace, "the home of a workspace that was deleted stays in the registry");
        }
    }

    /// Remembers that the workspace of an open is on this node from now on.
    async fn settle(&self, caller: &Caller, args: &OpenArgs, row: &NodeRow, from: Option<&WorkspaceHome>) {
        let Some(workspace) = &args.workspace else { return };
        self.settle_at(&workspace_key(&caller.principal, workspace), row, from).await;
    }

    /// The same for one that was sent to a node as an archive.
    pub(crate) async fn settle_import(&self, principal: &str, workspace: &str, row: &NodeRow) {
        let key = workspace_key(principal, workspace);
        let from = self.inner.registry.home(&key).await.ok().flatten();
        self.settle_at(&key, row, from.as_ref()).await;
    }

    async fn settle_at(&self, key: &str, row: &NodeRow, from: Option<&WorkspaceHome>) {
        let Some(store) = &row.store else { return };
        if from.is_some_and(|home| home.node == row.node) {
            return;
        }
        let generation = from.map_or(1, |home| home.generation + 1);
        let home = WorkspaceHome { node: row.node.clone(), store: store.clone(), generation };
        match self.inner.registry.move_home(key, home).await {
            Ok(home) => self.keep_home(key, &home),
            Err(error) => tracing::debug!(%error, "the home of a workspace is not remembered; its node tells it again"),
        }
    }
}

/// Names a workspace in the registry.
pub(crate) fn workspace_key(principal: &str, workspace: &str) -> String {
    derive_hex(&["workspace-home", principal, workspace])
}

pub(crate) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    serde_json::from_value(value)
        .map_err(|error| Fault::internal(format!("a node's answer is not understood: {error}")))
}

fn lost_session(place: Option<&SandboxPlace>) -> Fault {
    let workspace = place.and_then(|place| place.workspace.as_ref());
    let kept = workspace.map(|name| format!("; the workspace {name} is found by its name")).unwrap_or_default();
    let message = format!("the sandbox node of this session is gone, and the session with it; open another one{kept}");
    let fault = Fault::new(FaultCode::SessionLost, message);
    match place {
        Some(place) => fault.with_details(json!({ "workspace": place.workspace, "reason": "lost" })),
        None => fault,
    }
}

pub(crate) fn told(error: NoOutcome) -> Fault {
    match error {
        NoOutcome::Lost(reason) => Fault::unavailable(format!("the sandbox node is out of reach: {reason}")),
        NoOutcome::Refused(reason) => {
            tracing::error!(reason, "a sandbox node refuses this replica's SANDBOX_AUTH_TOKEN");
            Fault::unavailable("the sandbox node refuses this replica; the operator checks SANDBOX_AUTH_TOKEN")
        }
    }
}

#[async_trait]
impl Sandboxes for Nodes {
    async fn open(&self, caller: &Caller, args: OpenArgs) -> Result<OpenResult, Fault> {
        let mut node = self.node_for(caller, &args, None).await?;
        let mut opened: Result<OpenResult, Fault> = self.call(&node, caller, "sandbox_open", &args).await;
        if opened.as_ref().is_err_and(|fault| fault.code == FaultCode::Draining) {
            // It has been draining for less than a beat, or the tree had a session there once.
            node = self.node_for(caller, &args, Some(&node)).await?;
            opened = self.call(&node, caller, "sandbox_open", &args).await;
        }
        let opened = opened?;
        self.remember(opened.session_id.clone(), node);
        self.note(caller, &args, &opened).await;
        Ok(opened)
    }

    async fn exec(&self, caller: &Caller, mut args: ExecArgs) -> Result<ExecResult, Fault> {
        // Named here, so that a call sent again finds the command that the first one started.
        args.exec_id.get_or_insert_with(ExecId::generate);
        self.on_session(&args.session_id, caller, "sandbox_exec", &args).await
    }

    async fn poll(&self, caller: &Caller, args: PollArgs) -> Result<ExecResult, Fault> {
        self.on_session(&args.session_id, caller, "sandbox_poll", &args).await
    }

    async fn kill(&self, caller: &Caller, args: KillArgs) -> Result<ExecResult, Fault> {
        self.on_session(&args.session_id, caller, "sandbox_kill", &args).await
    }

    async fn write(&self, caller: &Caller, args: WriteArgs) -> Result<WriteResult, Fault> {
        self.on_session(&args.session_id, caller, "sandbox_write", &args).await
    }

    async fn read(&self, caller: &Caller, args: ReadArgs) -> Result<ReadResult, Fault> {
        self.on_session(&args.session_id, caller, "sandbox_read", &args).await
    }

    async fn touch(&self, caller: &Caller, args: SessionArgs) -> Result<SessionRow, Fault> {
        self.on_session(&args.session_id, caller, "sandbox_touch", &args).await
    }

    async fn close(&self, caller: &Caller, args: SessionArgs) -> Result<(), Fault> {
        let closed: Result<Value, Fault> = self.on_session(&args.session_id, caller, "sandbox_close", &args).await;
        closed.map(|_| ())
    }

    /// Asks every node: which ones have sessions of the tree is known to them alone.
    async fn close_run(&self, caller: &Caller, root_run: &RunId, tombstone: bool) -> Result<CloseRunResult, Fault> {
        let rows = self.live().await?;
        let asked = rows.iter().map(|row| async move {
            read::<u64>(self.insist(&row.node, &Question::CloseTree { caller, root_run, tombstone }).await?)
        });
        // One that does not answer keeps nobody else's sessions open; the first failure is told at the end.
        let counts = join_all(asked).await.into_iter().collect::<Result<Vec<u64>, Fault>>()?;
        Ok(CloseRunResult { closed: counts.into_iter().sum() })
    }

    async fn list(&self, caller: &Caller) -> Result<Vec<SessionRow>, Fault> {
        let rows = self.live().await?;
        let asked = rows.iter().map(|row| async move {
            let listed: Value = self.call(&row.node, caller, "sandbox_list", &json!({})).await?;
            read::<Vec<SessionRow>>(listed["sandboxes"].clone())
        });
        Ok(join_all(asked).await.into_iter().collect::<Result<Vec<_>, Fault>>()?.concat())
    }

    async fn drain(&self, node: &str) -> Result<(), Fault> {
        if self.live().await?.iter().all(|row| row.node != node) {
            return Err(Fault::not_found());
        }
        self.insist(node, &Question::Drain { node }).await.map(drop)
    }

    async fn list_all(&self) -> Result<Vec<SessionRow>, Fault> {
        let rows = self.live().await?;
        let asked = rows
            .iter()
            .map(|row| async move { read::<Vec<SessionRow>>(self.insist(&row.node, &Question::ListAll).await?) });
        Ok(join_all(asked).await.into_iter().collect::<Result<Vec<_>, Fault>>()?.concat())
    }

    async fn list_some(&self) -> Result<(Vec<SessionRow>, bool), Fault> {
        let rows = self.live().await?;
        let asked = rows.iter().map(|row| async move {
            let client = self.client(row)?;
            match tokio::time::timeout(LIST_PATIENCE, client.ask(&Question::ListAll)).await {
                Ok(Ok(listed)) => read::<Vec<SessionRow>>(listed?),
                Ok(Err(lost)) => Err(told(lost)),
                Err(_) => Err(Fault::unavailable("the sandbox node does not answer")),
            }
        });
        let answers = join_all(asked).await;
        let partial = answers.iter().any(Result::is_err);
        Ok((answers.into_iter().filter_map(Result::ok).flatten().collect(), partial))
    }

    fn workspaces(&self) -> Option<&dyn Workspaces> {
        Some(self)
    }
}
