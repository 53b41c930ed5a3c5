//! A sandbox node that counts: each command once, none that outlives its session.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use hearth_sandbox::{
    Caller, CloseRunResult, ExecArgs, ExecResult, KillArgs, Liveness, OpenArgs, OpenResult, PollArgs, ReadArgs,
    ReadResult, RunLiveness, Sandboxes, SessionArgs, SessionRow, WriteArgs, WriteResult,
};
use hearth_types::{ExecId, Fault, FaultCode, Isolation, RunId, SandboxId, SandboxLimits, Timestamp};
use tokio::time::Instant;

use crate::gate::Watched;
use crate::world::{Line, Lost, Peer, World};

#[derive(Default)]
struct State {
    sessions: BTreeMap<SandboxId, Session>,
    ended_trees: BTreeMap<RunId, ()>,
    execs: BTreeMap<ExecId, Exec>,
    /// Which exec each command was started as.
    started: BTreeMap<String, ExecId>,
}

struct Session {
    root: RunId,
    open: bool,
}

struct Exec {
    session: SandboxId,
    command: String,
    until: Instant,
    killed: Arc<Watched<bool>>,
}

#[derive(Clone)]
pub struct Node {
    world: Arc<World>,
    state: Arc<Mutex<State>>,
}

impl Node {
    pub fn new(world: Arc<World>) -> Self {
        Self { world, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Trees with a session that is open.
    pub fn open_trees(&self) -> Vec<RunId> {
        self.state().sessions.values().filter(|session| session.open).map(|session| session.root.clone()).collect()
    }

    /// Closes what belongs to trees that have ended, as a node does by itself now and then.
    pub async fn sweep(&self, liveness: &dyn RunLiveness) {
        for root in self.open_trees() {
            if liveness.liveness(&root).await == Liveness::Ended {
                self.close_tree(&root);
            }
        }
    }

    fn close_tree(&self, root: &RunId) -> u64 {
        self.world.story.tell(|| format!("node: the sessions of {root} are closed"));
        let mut state = self.state();
        state.ended_trees.insert(root.clone(), ());
        let mut closed = Vec::new();
        for (id, session) in &mut state.sessions {
            if &session.root == root && session.open {
                session.open = false;
                closed.push(id.clone());
            }
        }
        for exec in state.execs.values().filter(|exec| closed.contains(&exec.session)) {
            exec.killed.set(true);
        }
        closed.len() as u64
    }

    fn open(&self, caller: &Caller) -> Result<OpenResult, Fault> {
        let root = caller.root_run.clone().ok_or_else(|| Fault::internal("no tree"))?;
        let mut state = self.state();
        if state.ended_trees.contains_key(&root) {
            return Err(Fault::new(FaultCode::RunEnded, "the tree has ended"));
        }
        let session_id = SandboxId::derive(&["session", root.as_str()]);
        let warm = state.sessions.insert(session_id.clone(), Session { root, open: true }).is_some();
        Ok(OpenResult {
            session_id,
            workspace_path: "/work".into(),
            persistent: false,
            network: "none".into(),
            isolation: Isolation::L1,
            runtime: "none".into(),
            limits: SandboxLimits::default(),
            expires_at: Timestamp::default(),
            idle_expires_at: Timestamp::default(),
            node: "node".into(),
            warm,
            notice: None,
        })
    }

    /// Starts a command, or finds it: when it ends, and how to hear that it was killed.
    fn start(&self, args: &ExecArgs) -> Result<(Instant, Arc<Watched<bool>>), Fault> {
        let exec_id = args.exec_id.clone().ok_or_else(|| Fault::internal("an exec without an id"))?;
        let mut state = self.state();
        if let Some(known) = state.execs.get(&exec_id) {
            self.world.hold("P3", known.command == args.command, || {
                format!("{exec_id} is {:?} and was asked for {:?}", known.command, args.command)
            });
            return Ok((known.until, known.killed.clone()));
        }
        if !state.sessions.get(&args.session_id).is_some_and(|session| session.open) {
            return Err(Fault::new(FaultCode::SessionLost, "the session is closed"));
        }
        let first = state.started.insert(args.command.clone(), exec_id.clone());
        self.world.hold("P3", first.is_none(), || format!("{:?} ran as {first:?} and as {exec_id}", args.command));
        let ms = args.command.rsplit(' ').next().and_then(|ms| ms.parse().ok()).unwrap_or(0);
        let killed = Arc::new(Watched::new(false));
        let until = Instant::now() + Duration::from_millis(ms);
        let exec =
            Exec { session: args.session_id.clone(), command: args.command.clone(), until, killed: killed.clone() };
        state.execs.insert(exec_id, exec);
        Ok((until, killed))
    }
}

fn result(exec_id: ExecId, killed: bool) -> ExecResult {
    ExecResult {
        exec_id,
        output: String::new(),
        encoding: None,
        exit_code: Some(if killed { 137 } else { 0 }),
        signal: None,
        timed_out: false,
        oom_killed: false,
        truncated: false,
        output_bytes: 0,
        duration_ms: 0,
    }
}

/// The node as one replica reaches it. `close_runs` is false for a broken one that closes nothing.
pub struct Reached {
    pub line: Line,
    pub node: Node,
    pub close_runs: bool,
}

impl Reached {
    async fn carry<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let lost = |_: Lost| Fault::unavailable("the node is out of reach");
        self.line.carry(Peer::Node, work).await.map_err(lost)?
    }
}

fn unused<T>() -> Result<T, Fault> {
    Err(Fault::internal("no script asks for this"))
}

#[async_trait]
impl Sandboxes for Reached {
    async fn open(&self, caller: &Caller, _args: OpenArgs) -> Result<OpenResult, Fault> {
        self.carry(async { self.node.open(caller) }).await
    }

    async fn exec(&self, _caller: &Caller, args: ExecArgs) -> Result<ExecResult, Fault> {
        self.carry(async {
            let (until, killed) = self.node.start(&args)?;
            let exec_id = args.exec_id.clone().ok_or_else(|| Fault::internal("an exec without an id"))?;
            let ended = tokio::time::timeout_at(until, killed.until(|killed| killed)).await;
            Ok(result(exec_id, ended.is_ok()))
        })
        .await
    }

    async fn kill(&self, _caller: &Caller, args: KillArgs) -> Result<ExecResult, Fault> {
        self.carry(async {
            if let Some(exec) = self.node.state().execs.get(&args.exec_id) {
                exec.killed.set(true);
            }
            Ok(result(args.exec_id, true))
        })
        .await
    }

    async fn close_run(&self, _caller: &Caller, root: &RunId, _tombstone: bool) -> Result<CloseRunResult, Fault> {
        if !self.close_runs {
            return Ok(CloseRunResult { closed: 0 });
        }
        self.carry(async { Ok(CloseRunResult { closed: self.node.close_tree(root) }) }).await
    }

    async fn poll(&self, _caller: &Caller, _args: PollArgs) -> Result<ExecResult, Fault> {
        unused()
    }

    async fn write(&self, _caller: &Caller, _args: WriteArgs) -> Result<WriteResult, Fault> {
        unused()
    }

    async fn read(&self, _caller: &Caller, _args: ReadArgs) -> Result<ReadResult, Fault> {
        unused()
    }

    async fn touch(&self, _caller: &Caller, _args: SessionArgs) -> Result<SessionRow, Fault> {
        unused()
    }

    async fn close(&self, _caller: &Caller, _args: SessionArgs) -> Result<(), Fault> {
        unused()
    }

    async fn list(&self, _caller: &Caller) -> Result<Vec<SessionRow>, Fault> {
        unused()
    }

    async fn list_all(&self) -> Result<Vec<SessionRow>, Fault> {
        unused()
    }
}
