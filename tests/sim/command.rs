//! What a client asks and what it is told.

use hearth_api::{Caller, Cancel, Close, CreateRun, Input, OpenResident, Poll, Send, SessionMessage};
use hearth_types::{Envelope, Fault, InputMode, RunId, RunState, SessionId, TurnId, derive_hex};

use crate::cluster::Member;
use crate::script::{self, Script};

#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Create {
        interactive: bool,
        script: Script,
        timeout_s: Option<u64>,
    },
    Open {
        parent: Option<RunId>,
        script: Script,
        wait_ms: u64,
    },
    Send {
        run: RunId,
        script: Script,
        wait_ms: u64,
    },
    Input {
        run: RunId,
        text: String,
        steer: bool,
    },
    Cancel {
        run: RunId,
        turn: Option<TurnId>,
    },
    Close {
        run: RunId,
    },
    Poll {
        run: RunId,
        turn: Option<TurnId>,
        wait_ms: u64,
    },
    /// To whatever run of the session is live, else to one that goes on with it.
    Message {
        session: SessionId,
        script: Script,
        wait_ms: u64,
    },
}

/// An answer, as far as a repeat must give it again.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Turn(Envelope),
    Delivered { turn_id: TurnId, delivered: &'static str },
    Cancelled { envelope: Envelope, stopped: bool },
    Closed { state: RunState, descendants: u64 },
    Refused(Fault),
}

impl Command {
    /// The run that it is for; for one that opens, none.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::Create { .. } | Self::Open { .. } | Self::Message { .. } => None,
            Self::Send { run, .. }
            | Self::Input { run, .. }
            | Self::Cancel { run, .. }
            | Self::Close { run }
            | Self::Poll { run, .. } => Some(run),
        }
    }

    pub fn scope(&self) -> String {
        match self {
            Self::Create { .. } => "POST /v1/runs".to_owned(),
            Self::Open { .. } => "POST /v1/_resident".to_owned(),
            Self::Send { run, .. } => format!("POST /v1/_resident/{run}/send"),
            Self::Input { run, .. } => format!("POST /v1/runs/{run}/input"),
            Self::Cancel { run, .. } => format!("POST /v1/runs/{run}/cancel"),
            Self::Close { run } => format!("POST /v1/runs/{run}/close"),
            Self::Poll { run, .. } => format!("GET /v1/_resident/{run}"),
            Self::Message { session, .. } => format!("POST /v1/sessions/{session}/messages"),
        }
    }

    /// The body without the time-outs.
    pub fn digest(&self) -> String {
        let body = match self {
            Self::Open { parent, script, .. } => format!("{parent:?} {script:?}"),
            Self::Send { script, .. } | Self::Message { script, .. } => format!("{script:?}"),
            other => format!("{other:?}"),
        };
        derive_hex(&[&body])
    }

    pub fn brief(&self) -> String {
        match self {
            Self::Create { script, interactive, .. } => format!("create {} interactive {interactive}", script.label),
            Self::Open { parent: Some(parent), script, .. } => format!("open {} under {parent}", script.label),
            Self::Open { script, .. } => format!("open {}", script.label),
            Self::Send { run, script, .. } => format!("send {} to {run}", script.label),
            Self::Message { session, script, .. } => format!("message {} to {session}", script.label),
            other => format!("{other:?}"),
        }
    }
}

pub fn said(answer: Option<&Answer>) -> String {
    match answer {
        None => "nothing".to_owned(),
        Some(Answer::Turn(envelope)) => {
            let outcome = envelope.outcome.map_or("-", hearth_types::TurnOutcome::as_str);
            format!("{} {:?} {} {outcome}", envelope.run_id, envelope.turn_id, envelope.state.as_str())
        }
        Some(Answer::Refused(fault)) => fault.to_string(),
        Some(other) => format!("{other:?}"),
    }
}

/// Whether two answers are about the same, at whatever time they were given.
pub fn same_turn(first: &Answer, second: &Answer) -> bool {
    match (first, second) {
        (Answer::Turn(first), Answer::Turn(second)) => {
            (&first.run_id, &first.turn_id) == (&second.run_id, &second.turn_id)
        }
        (first, second) => same(first, second),
    }
}

/// Whether a repeat got the first answer. A turn that ran then may have ended since.
pub fn same(first: &Answer, again: &Answer) -> bool {
    match (first, again) {
        (Answer::Turn(first), Answer::Turn(again)) => {
            (&first.run_id, &first.turn_id) == (&again.run_id, &again.turn_id)
                && (first.outcome.is_none() || first.outcome == again.outcome)
        }
        (Answer::Cancelled { envelope: a, stopped: x }, Answer::Cancelled { envelope: b, stopped: y }) => {
            a.turn_id == b.turn_id && x == y
        }
        (Answer::Closed { state: a, .. }, Answer::Closed { state: b, .. }) => a == b,
        (first, again) => first == again,
    }
}

pub async fn call(member: &Member, caller: &Caller, command: &Command) -> Result<Answer, Fault> {
    let hearth = &member.hearth;
    let agent = script::AGENT.to_owned();
    match command.clone() {
        Command::Create { interactive, script, timeout_s } => {
            let prompt = Some(script.prompt());
            let run_timeout_seconds = timeout_s;
            let request = CreateRun { agent, prompt, interactive, run_timeout_seconds, ..CreateRun::default() };
            let answer = hearth.create_run(caller, request).await?;
            Ok(Answer::Turn(answer.body.envelope))
        }
        Command::Open { parent, script, wait_ms } => {
            let request = OpenResident {
                agent,
                prompt: script.prompt(),
                parent_run_id: parent.map(|run| run.to_string()),
                timeout_ms: Some(wait_ms),
                ..OpenResident::default()
            };
            Ok(Answer::Turn(hearth.open(caller, request).await?.body))
        }
        Command::Send { run, script, wait_ms } => {
            let request = Send { prompt: script.prompt(), timeout_ms: Some(wait_ms) };
            Ok(Answer::Turn(hearth.send(caller, run.as_str(), request).await?.body))
        }
        Command::Input { run, text, steer } => {
            let mode = if steer { InputMode::Steer } else { InputMode::Queue };
            let body = hearth.input(caller, run.as_str(), Input { text, mode }).await?.body;
            Ok(Answer::Delivered { turn_id: body.turn_id, delivered: body.delivered })
        }
        Command::Cancel { run, turn } => {
            let request = Cancel { reason: None, turn_id: turn };
            let body = hearth.cancel(caller, run.as_str(), request, true).await?.body;
            Ok(Answer::Cancelled { envelope: body.envelope, stopped: body.stopped })
        }
        Command::Close { run } => {
            let body = hearth.close(caller, run.as_str(), Close { reason: None }, true).await?.body;
            Ok(Answer::Closed { state: body.state, descendants: body.closed_descendants })
        }
        Command::Message { session, script, wait_ms } => {
            let request =
                SessionMessage { prompt: script.prompt(), wait_ms: Some(wait_ms), ..SessionMessage::default() };
            let answer = hearth.message(caller, session.as_str(), request).await?;
            Ok(Answer::Turn(answer.body.envelope))
        }
        Command::Poll { run, turn, wait_ms } => {
            let request = Poll { timeout_ms: Some(wait_ms), turn_id: turn };
            Ok(Answer::Turn(hearth.poll(caller, run.as_str(), request).await?))
        }
    }
}
