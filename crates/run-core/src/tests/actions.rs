//! What may happen to a run, in a form that shrinks well: commands by small numbers, made concrete
//! against the state that they meet.

use hearth_types::{
    AgentDefinition, Blocker, CallId, FaultCode, InputMode, ReplicaId, RunId, RunState, SandboxSpec, SessionId,
    ToolCall, ToolOutput, TurnError, TurnId, Usage,
};
use proptest::prelude::*;

use crate::{
    Accept, Cancel, ChildEnd, ChildKind, Close, Command, KeyUse, OpenChild, Parent, Run, RunSpec, StepReport,
    ToolReport,
};

#[derive(Debug, Clone)]
pub enum Action {
    Activate(u8),
    /// An input without a key: a new one, or one of the last few again.
    Accept {
        again: bool,
        text: u8,
    },
    AcceptKeyed {
        key: u8,
        body: u8,
        steer: bool,
    },
    Cancel {
        named: Option<u8>,
        key: Option<u8>,
        body: u8,
        partial: bool,
    },
    Close {
        key: Option<u8>,
        body: u8,
    },
    OpenChild {
        child: u8,
        spawn: bool,
        depth: u32,
        stale: bool,
        body: u8,
    },
    Confirm(u8),
    RefuseChild(u8),
    EndChild {
        child: u8,
        state: u8,
    },
    Step {
        stale: bool,
        calls: u8,
        text: bool,
        fails: bool,
    },
    Tool {
        stale: bool,
        call: u8,
    },
    Block,
    /// An override: none, or one of two.
    Override(u8),
    Forget,
    Settle,
    Tick,
    Release,
    /// The state is written down; whoever reads next begins there.
    Snapshot,
    /// Milliseconds that pass.
    Pass(u32),
}

pub fn action() -> impl Strategy<Value = Action> {
    let key = 0..12u8;
    let body = prop_oneof![9 => Just(0u8), 1 => Just(1u8)];
    prop_oneof![
        2 => (0..3u8).prop_map(Action::Activate),
        4 => (prop::bool::weighted(0.2), any::<u8>()).prop_map(|(again, text)| Action::Accept { again, text }),
        5 => (key.clone(), body.clone(), prop::bool::weighted(0.3))
            .prop_map(|(key, body, steer)| Action::AcceptKeyed { key, body, steer }),
        3 => (prop::option::of(0..6u8), prop::option::of(key.clone()), body.clone(), any::<bool>())
            .prop_map(|(named, key, body, partial)| Action::Cancel { named, key, body, partial }),
        1 => (prop::option::of(key), body.clone()).prop_map(|(key, body)| Action::Close { key, body }),
        4 => (0..20u8, any::<bool>(), 0..6u32, prop::bool::weighted(0.1), body)
            .prop_map(|(child, spawn, depth, stale, body)| Action::OpenChild { child, spawn, depth, stale, body }),
        2 => (0..20u8).prop_map(Action::Confirm),
        1 => (0..20u8).prop_map(Action::RefuseChild),
        3 => (0..20u8, 0..5u8).prop_map(|(child, state)| Action::EndChild { child, state }),
        7 => (prop::bool::weighted(0.05), 0..4u8, any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(stale, calls, text, fails)| Action::Step { stale, calls, text, fails }),
        7 => (prop::bool::weighted(0.05), 0..4u8).prop_map(|(stale, call)| Action::Tool { stale, call }),
        1 => Just(Action::Block),
        1 => (0..3u8).prop_map(Action::Override),
        1 => Just(Action::Forget),
        2 => Just(Action::Settle),
        2 => Just(Action::Tick),
        1 => Just(Action::Release),
        1 => Just(Action::Snapshot),
        2 => (0..40_000u32).prop_map(Action::Pass),
    ]
}

pub fn spec() -> impl Strategy<Value = RunSpec> {
    (any::<bool>(), prop::option::of(1_000..60_000u64), 1_000..60_000u64, 1..5u32, 2..8u32).prop_map(
        |(interactive, turn_timeout_ms, idle_ttl_ms, max_residents, max_iterations)| RunSpec {
            interactive,
            turn_timeout_ms,
            idle_ttl_ms,
            max_residents,
            ..run_spec("run_root", max_iterations)
        },
    )
}

pub fn run_spec(id: &str, max_iterations: u32) -> RunSpec {
    let run_id = RunId::parse(id).unwrap();
    let agent =
        AgentDefinition { name: "a".into(), max_iterations: Some(max_iterations), ..AgentDefinition::default() };
    RunSpec {
        session_id: SessionId::of_run(&run_id),
        root_run_id: run_id.clone(),
        run_id,
        parent: None,
        depth: 0,
        tenant: "t".into(),
        subject: "s".into(),
        user_id: None,
        metadata: std::collections::BTreeMap::new(),
        agent: std::sync::Arc::new(agent),
        interactive: true,
        idle_ttl_ms: 60_000,
        turn_timeout_ms: None,
        isolation: None,
        sandbox: None,
        max_residents: 3,
        key: None,
        trace: None,
    }
}

pub fn child_id(child: u8) -> RunId {
    RunId::parse(&format!("run_child{child}")).unwrap()
}

fn key_use(kind: &str, key: u8, body: u8) -> KeyUse {
    KeyUse { id: format!("k{key}"), digest: format!("{kind}{body}") }
}

/// The turn that a keyed input becomes: the same at each repeat, as the callers make it.
fn keyed_turn(key: u8) -> TurnId {
    TurnId::parse(&format!("turn_key{key}")).unwrap()
}

/// The `n`th of the turns that the state still names.
fn known_turn(run: &Run, n: u8) -> Option<TurnId> {
    let ended = run.ended.iter().map(|turn| &turn.turn_id);
    let current = run.current.iter().map(|turn| &turn.turn_id);
    let known: Vec<&TurnId> = ended.chain(current).chain(run.queue.iter().map(|queued| &queued.turn_id)).collect();
    known.get(usize::from(n) % known.len().max(1)).map(|turn_id| (*turn_id).clone())
}

fn running(run: &Run, stale: bool) -> TurnId {
    let stale_turn = || TurnId::parse("turn_stale").unwrap();
    match &run.current {
        Some(turn) if !stale => turn.turn_id.clone(),
        _ => known_turn(run, 0).filter(|_| stale).unwrap_or_else(stale_turn),
    }
}

impl Action {
    /// The command that this action is in the given state; `None` for what is none. `fresh` names
    /// what was never named before.
    pub fn command(&self, run: &Run, fresh: usize) -> Option<Command> {
        Some(match *self {
            Self::Activate(n) => Command::Activate { replica: ReplicaId::parse(&format!("replica-{n}")).unwrap() },
            Self::Accept { again, text } => Command::Accept(Accept {
                turn_id: known_turn(run, text)
                    .filter(|_| again)
                    .unwrap_or_else(|| TurnId::parse(&format!("turn_{fresh}")).unwrap()),
                prompt: format!("prompt {text}"),
                mode: InputMode::Queue,
                key: None,
                trace: None,
            }),
            Self::AcceptKeyed { key, body, steer } => Command::Accept(Accept {
                turn_id: keyed_turn(key),
                prompt: format!("prompt {body}"),
                mode: if steer { InputMode::Steer } else { InputMode::Queue },
                key: Some(key_use(if steer { "steer" } else { "queue" }, key, body)),
                trace: None,
            }),
            Self::Cancel { named, key, body, partial } => Command::Cancel(Cancel {
                turn_id: named.and_then(|n| known_turn(run, n)),
                reason: None,
                key: key.map(|key| key_use("cancel", key, body)),
                partial: if partial { "so far".into() } else { String::new() },
            }),
            Self::Close { key, body } => Command::Close(Close {
                reason: None,
                key: key.map(|key| key_use("close", key, body)),
                partial: String::new(),
            }),
            Self::OpenChild { child, spawn, depth, stale, body } => open_child(run, (child, body), spawn, depth, stale),
            Self::Confirm(child) => Command::ChildConfirmed { child_run_id: child_id(child) },
            Self::RefuseChild(child) => Command::ChildRefused { child_run_id: child_id(child) },
            Self::EndChild { child, state } => {
                let states = [RunState::Completed, RunState::Failed, RunState::Closed, RunState::Running];
                let state = states[usize::from(state) % states.len()];
                Command::ChildEnded(ChildEnd { child_run_id: child_id(child), state, closed_descendants: 1 })
            }
            Self::Step { stale, calls, text, fails } => Command::StepFinished(step(run, stale, calls, text, fails)),
            Self::Tool { stale, call } => Command::ToolFinished(tool(run, stale, call)),
            Self::Block => Command::Block { turn_id: running(run, false), blocker: blocker() },
            Self::Override(which) => Command::OverrideSandbox { sandbox: sandbox_override(which) },
            Self::Forget => Command::ForgetSandbox,
            Self::Settle => Command::Settle,
            Self::Tick => Command::Tick { partial: String::new() },
            Self::Release => Command::Release,
            Self::Snapshot | Self::Pass(_) => return None,
        })
    }
}

fn sandbox_override(which: u8) -> Option<SandboxSpec> {
    let workspace = (which > 0).then(|| format!("w{which}"))?;
    Some(SandboxSpec { workspace: Some(workspace), ..SandboxSpec::default() })
}

fn blocker() -> Blocker {
    Blocker { tripped: "loop".into(), last_safe_state: "before".into(), next_action: "change".into() }
}

fn open_child(run: &Run, (child, body): (u8, u8), spawn: bool, depth: u32, stale: bool) -> Command {
    let mut spec = run_spec(child_id(child).as_str(), 4);
    spec.parent = Some(Parent { run_id: run.spec.run_id.clone(), call_id: None });
    spec.depth = depth;
    spec.key = Some(KeyUse { id: format!("open{child}"), digest: format!("open{body}") });
    // A spawn is always for a turn; a resident may be opened from outside.
    let for_turn = (spawn || stale || child.is_multiple_of(2)).then(|| running(run, stale));
    Command::OpenChild(Box::new(OpenChild {
        turn_id: TurnId::derive(&["first", spec.run_id.as_str()]),
        spec,
        kind: if spawn { ChildKind::Spawn } else { ChildKind::Resident },
        prompt: "go".into(),
        for_turn,
    }))
}

fn step(run: &Run, stale: bool, calls: u8, text: bool, fails: bool) -> StepReport {
    let turn_id = running(run, stale);
    // The driver makes a step only when every call of the last one has its result; whoever asks
    // otherwise is no driver.
    let open = run.current.as_ref().is_some_and(|turn| turn.open_calls().next().is_some());
    let number = run.current.as_ref().map_or(0, |turn| turn.steps.len());
    let turn_id = if open { TurnId::parse("turn_stale").unwrap() } else { turn_id };
    let call = |index: u8| ToolCall {
        id: CallId::derive(&[turn_id.as_str(), &number.to_string(), &index.to_string()]),
        name: "Agent".into(),
        arguments: serde_json::json!({}),
    };
    let error = fails.then(|| TurnError { code: FaultCode::Unavailable, message: "the model is away".into() });
    StepReport {
        thinking: String::new(),
        text: if text { format!("text {number}") } else { String::new() },
        calls: if fails { Vec::new() } else { (0..calls).map(call).collect() },
        usage: Usage { input_tokens: u64::from(calls), output_tokens: 1 },
        truncated: false,
        error,
        turn_id,
    }
}

fn tool(run: &Run, stale: bool, call: u8) -> ToolReport {
    let last = run.current.as_ref().and_then(|turn| turn.steps.last());
    let calls: Vec<&CallId> = last.map(|step| step.calls.iter().map(|c| &c.call.id).collect()).unwrap_or_default();
    let call_id = calls
        .get(usize::from(call) % calls.len().max(1))
        .map_or_else(|| CallId::parse("call_unknown").unwrap(), |id| (*id).clone());
    ToolReport { turn_id: running(run, stale), call_id, output: ToolOutput::ok(serde_json::json!("done")) }
}
