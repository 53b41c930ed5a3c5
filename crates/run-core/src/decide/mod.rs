//! One command, one decision: the events it leads to, what follows, and the answer.

mod accept;
mod activate;
mod bind;
mod cancel;
mod children;
mod close;
mod create;
mod step;
mod tick;
mod turn_end;

use hearth_types::{
    Blocker, CallId, InputMode, ReplicaId, RunId, RunState, SandboxSpec, Timestamp, ToolCall, ToolOutput, TraceContext,
    TurnError, TurnId, Usage,
};
use serde::{Deserialize, Serialize};

pub use create::create;

use crate::{ChildKind, Effect, Event, KeyRecord, KeyUse, Refusal, Run, RunSpec};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// First command of an activation.
    Activate {
        replica: ReplicaId,
    },
    Accept(Accept),
    Cancel(Cancel),
    Close(Close),
    OpenChild(Box<OpenChild>),
    ChildConfirmed {
        child_run_id: RunId,
    },
    ChildRefused {
        child_run_id: RunId,
    },
    ChildEnded(ChildEnd),
    StepFinished(StepReport),
    ToolFinished(ToolReport),
    /// A guardrail tripped.
    Block {
        turn_id: TurnId,
        blocker: Blocker,
    },
    /// Where the tree's shared session of a kind is to be, if it is nowhere yet, or on `replaces`.
    BindSandbox {
        slot: String,
        node: String,
        replaces: Option<String>,
    },
    /// What the run and its descendants have to open from now on; absent: nothing in particular.
    OverrideSandbox {
        sandbox: Option<SandboxSpec>,
    },
    /// The run is to open anew: an ancestor's override has changed.
    ForgetSandbox,
    /// The subtree is down.
    Settle,
    /// Time has passed. `partial` is the output so far of the running turn.
    Tick {
        partial: String,
    },
    /// The activation is to end in good order.
    Release,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accept {
    /// The turn that the input becomes, unless it is steered into the running one.
    pub turn_id: TurnId,
    pub prompt: String,
    pub mode: InputMode,
    pub key: Option<KeyUse>,
    pub trace: Option<TraceContext>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cancel {
    /// Absent: the current turn.
    pub turn_id: Option<TurnId>,
    pub reason: Option<String>,
    pub key: Option<KeyUse>,
    /// The output so far of the running turn.
    pub partial: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Close {
    pub reason: Option<String>,
    pub key: Option<KeyUse>,
    /// The output so far of the running turn.
    pub partial: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenChild {
    pub spec: RunSpec,
    pub kind: ChildKind,
    pub turn_id: TurnId,
    pub prompt: String,
    /// The parent's turn that asks, for an open from inside.
    pub for_turn: Option<TurnId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildEnd {
    pub child_run_id: RunId,
    pub state: RunState,
    pub closed_descendants: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    pub turn_id: TurnId,
    pub thinking: String,
    pub text: String,
    pub calls: Vec<ToolCall>,
    pub usage: Usage,
    /// The provider cut the text.
    pub truncated: bool,
    /// Set when the step failed; the text is then what came before.
    pub error: Option<TurnError>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolReport {
    pub turn_id: TurnId,
    pub call_id: CallId,
    pub output: ToolOutput,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Accepted { turn_id: TurnId, queued: bool, replayed: bool },
    Cancelled { turn_id: Option<TurnId>, stopped: bool, replayed: bool },
    Closing { initiated: bool, replayed: bool },
    ChildOpened { turn_id: TurnId, existed: bool },
    SandboxBound { node: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub events: Vec<Event>,
    pub effects: Vec<Effect>,
    pub reply: Reply,
}

impl Decision {
    fn nothing(reply: Reply) -> Self {
        Self { events: Vec::new(), effects: Vec::new(), reply }
    }

    fn of(events: Vec<Event>, effects: Vec<Effect>, reply: Reply) -> Self {
        Self { events, effects, reply }
    }
}

/// Decides; changes nothing. A refused command leaves no trace.
pub fn decide(run: &Run, command: &Command, now: Timestamp) -> Result<Decision, Refusal> {
    #[cfg(feature = "breaks")]
    if let Some(broken) = crate::breaks::get() {
        return (broken.decide)(run, command, now);
    }
    sound(run, command, now)
}

pub(crate) fn sound(run: &Run, command: &Command, now: Timestamp) -> Result<Decision, Refusal> {
    match command {
        Command::Activate { replica } => Ok(activate::decide(run, replica)),
        Command::Accept(accept) => accept::decide(run, accept),
        Command::Cancel(cancel) => cancel::decide(run, cancel),
        Command::Close(close) => close::decide(run, close),
        Command::OpenChild(open) => children::open(run, open),
        Command::ChildConfirmed { child_run_id } => Ok(children::confirmed(run, child_run_id)),
        Command::ChildRefused { child_run_id } => Ok(children::refused(run, child_run_id)),
        Command::ChildEnded(end) => Ok(children::ended(run, end)),
        Command::StepFinished(report) => step::finished(run, report),
        Command::ToolFinished(report) => step::tool_finished(run, report),
        Command::Block { turn_id, blocker } => step::blocked(run, turn_id, blocker),
        Command::BindSandbox { slot, node, replaces } => bind::decide(run, slot, node, replaces.as_deref()),
        Command::OverrideSandbox { sandbox } => bind::overridden(run, sandbox.as_ref()),
        Command::ForgetSandbox => Ok(bind::forgotten(run)),
        Command::Settle => Ok(close::settle(run)),
        Command::Tick { partial } => Ok(tick::decide(run, partial, now)),
        Command::Release => Ok(activate::release(run)),
    }
}

/// The record of a key that was used before; another body under it is refused.
fn recorded<'r>(run: &'r Run, key: Option<&KeyUse>) -> Result<Option<&'r KeyRecord>, Refusal> {
    let Some(key) = key else { return Ok(None) };
    match run.keys.get(&key.id) {
        Some(record) if record.digest != key.digest => Err(Refusal::KeyConflict),
        found => Ok(found),
    }
}

fn refuse_if_over(run: &Run) -> Result<(), Refusal> {
    if run.state.is_final() {
        return Err(Refusal::Ended { state: run.state });
    }
    if run.closing.is_some() {
        return Err(Refusal::Closing);
    }
    Ok(())
}
