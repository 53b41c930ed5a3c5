//! The sandbox port over all nodes: finds or chooses the node, and calls it until it answers or is gone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hearth_registry::{NodeRow, SharedRegistry};
use hearth_sandbox::{
    Caller, CloseRunResult, ExecArgs, ExecResult, KillArgs, OpenArgs, OpenResult, PollArgs, ReadArgs, ReadResult,
    Sandboxes, SessionArgs, SessionRow, WriteArgs, WriteResult,
};
use hearth_types::{ExecId, Fault, FaultCode, RunId, SandboxId, derive_hex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::client::{NoOutcome, NodeClient, Question};
use crate::placement::{Wanted, choose};

/// Sessions whose node is remembered; one that is forgotten is looked for on all nodes.
const SESSIONS_KEPT: usize = 100_000;
/// Pause before a node that was lost is called again.
const CALL_AGAIN: Duration = Duration::from_millis(200);
/// How long a node that is registered may be out of reach before the caller is told.
const PATIENCE: Duration = Duration::from_secs(15);

/// Where a tree's shared session of a kind is: decided by the tree's root run.
#[async_trait]
pub trait Binder: Send + Sync + 'static {
    /// The node of the session: `node`, unless there is another one already that is not `replaces`.
    async fn bind(&self, root: &RunId, slot: String, node: String, replaces: Option<String>) -> Result<String, Fault>;
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
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nodes {
    /// `token` is the nodes' `SANDBOX_AUTH_TOKEN`.
    pub fn new(registry: SharedRegistry, token: Option<String>) -> Self {
        let inner =
            Inner { registry, token, binder: OnceLock::new(), clients: Mutex::default(), sessions: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// To be called once, before the first open.
    pub fn connect(&self, binder: Arc<dyn Binder>) {
        self.inner.binder.set(binder).ok();
    }

    async fn live(&self) -> Result<Vec<NodeRow>, Fault> {
        let rows = self.inner.registry.nodes().await;
        rows.map_err(|error| Fault::unavailable(format!("the sandbox nodes are not known now: {error}")))
    }

    fn client(&self, row: &NodeRow) -> Result<NodeClient, Fault> {
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

    async fn insist(&self, node: &str, question: &Question<'_>) -> Result<Value, Fault> {
        let mut until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let rows = self.live().await?;
            let Some(row) = rows.iter().find(|row| row.node == node) else { return Err(lost_session()) };
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

    /// The node of a session: remembered, or found by asking all.
    async fn node_of(&self, session: &SandboxId) -> Result<String, Fault> {
        if let Some(node) = locked(&self.inner.sessions).get(session).cloned() {
            return Ok(node);
        }
        for row in self.live().await? {
            let Ok(Ok(rows)) = self.client(&row)?.ask(&Question::ListAll).await else { continue };
            let rows: Vec<SessionRow> = read(rows)?;
            if rows.iter().any(|known| known.session_id == *session) {
                self.remember(session.clone(), row.node.clone());
                return Ok(row.node);
            }
        }
        Err(Fault::not_found())
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
        let node = self.node_of(session).await?;
        self.call(&node, caller, tool, args).await
    }

    /// The node of an open: the tree's, if the tree has such a session; else the one that fits best.
    async fn node_for(&self, caller: &Caller, args: &OpenArgs) -> Result<String, Fault> {
        let rows = self.live().await?;
        let own = args.own == Some(true);
        let shared = caller.root_run.as_ref().filter(|_| !own);
        let affinity = match (&args.workspace, &caller.call, shared) {
            (Some(workspace), _, _) => derive_hex(&["workspace", &caller.principal, workspace]),
            (None, _, Some(root)) => root.to_string(),
            (None, Some(call), None) => call.clone(),
            (None, None, None) => SandboxId::generate().to_string(),
        };
        let wanted = Wanted {
            isolation: args.isolation,
            runtime: args.runtime.clone(),
            workspace: args.workspace.is_some(),
            affinity,
        };
        let Some(root) = shared else { return Ok(choose(&rows, &wanted)?.node.clone()) };
        let slot = derive_hex(&["slot", args.image.as_deref().unwrap_or(""), args.workspace.as_deref().unwrap_or("")]);
        let Some(binder) = self.inner.binder.get() else {
            return Err(Fault::unavailable("this replica has just started; try again"));
        };
        // Without a node that fits, the tree's own may still be there and have the session.
        let fits = choose(&rows, &wanted).map(|row| row.node.clone());
        let proposed = fits.clone().or_else(|fault| rows.first().map(|row| row.node.clone()).ok_or(fault))?;
        let bound = binder.bind(root, slot.clone(), proposed, None).await?;
        if rows.iter().any(|row| row.node == bound) {
            return Ok(bound);
        }
        binder.bind(root, slot, fits?, Some(bound)).await
    }
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, Fault> {
    serde_json::from_value(value)
        .map_err(|error| Fault::internal(format!("a node's answer is not understood: {error}")))
}

fn lost_session() -> Fault {
    Fault::new(
        FaultCode::SessionLost,
        "the sandbox node of this session is gone, and the session with it; open again (a durable workspace is found by its name)",
    )
}

fn told(error: NoOutcome) -> Fault {
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
        let node = self.node_for(caller, &args).await?;
        let opened: OpenResult = self.call(&node, caller, "sandbox_open", &args).await?;
        self.remember(opened.session_id.clone(), node);
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
        let mut closed = 0;
        for row in self.live().await? {
            let count: u64 = read(self.insist(&row.node, &Question::CloseTree { caller, root_run, tombstone }).await?)?;
            closed += count;
        }
        Ok(CloseRunResult { closed })
    }

    async fn list(&self, caller: &Caller) -> Result<Vec<SessionRow>, Fault> {
        let mut all = Vec::new();
        for row in self.live().await? {
            let listed: Value = self.call(&row.node, caller, "sandbox_list", &json!({})).await?;
            let rows: Vec<SessionRow> = read(listed["sandboxes"].clone())?;
            all.extend(rows);
        }
        Ok(all)
    }

    async fn list_all(&self) -> Result<Vec<SessionRow>, Fault> {
        let mut all = Vec::new();
        for row in self.live().await? {
            let rows: Vec<SessionRow> = read(self.insist(&row.node, &Question::ListAll).await?)?;
            all.extend(rows);
        }
        Ok(all)
    }
}
