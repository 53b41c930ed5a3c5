//! Performs the effects of a decision, after its events stand.

use std::sync::Arc;
use std::time::Duration;

use hearth_engine::{LiveOutput, TurnStart};
use hearth_run_core::{ChildEnd, Close, Command, Effect, Reply, Run, RunSpec};
use hearth_types::{RunId, RunState, TurnId};
use ractor::ActorRef;
use tokio::sync::oneshot;

use crate::actor::{Message, State};
use crate::residents::{Created, Residents};
use crate::turn_port::ActorPort;
use crate::{Error, metrics, session};

/// Pause between tries of something that must happen in the end, doubled up to the largest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LARGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) fn perform(state: &mut State, myself: &ActorRef<Message>, effects: Vec<Effect>) {
    let mut children = Vec::new();
    let mut settles = false;
    let mut announces = false;
    for effect in effects {
        match effect {
            Effect::StartTurn { turn_id } => start_turn(state, myself, &turn_id),
            Effect::StopTurn { turn_id, abandoned } => {
                let trace = state.run.spec.trace.clone();
                if state.driver.as_ref().is_some_and(|(driven, _)| driven == &turn_id) {
                    state.stop_driver();
                }
                if !abandoned.is_empty() {
                    let (inner, spec) = (state.inner.clone(), state.run.spec.clone());
                    state.inner.tasks.spawn(async move {
                        inner.engine().abandon(&spec, &turn_id, abandoned, trace).await;
                    });
                }
            }
            Effect::CreateChild { child_run_id } => create_child(state, myself, &child_run_id, None),
            Effect::CloseChild { child_run_id } => {
                let child = state.run.children.get(&child_run_id);
                let unborn = child.and_then(|child| {
                    let (spec, prompt) = child.unconfirmed.as_deref()?.clone();
                    Some((spec, (child.turn_id.clone(), prompt)))
                });
                children.push((child_run_id, unborn));
            }
            Effect::Settle => settles = true,
            Effect::AnnounceEnd => announces = true,
        }
    }
    let residents = Residents::from_inner(state.inner.clone());
    if !children.is_empty() || settles {
        let spec = state.run.spec.clone();
        state.inner.tasks.spawn(close_children(residents.clone(), spec, children, settles));
    }
    if announces {
        state.inner.tasks.spawn(announce_end(residents, Box::new(state.run.clone())));
    }
}

fn start_turn(state: &mut State, myself: &ActorRef<Message>, turn_id: &TurnId) {
    let Some(turn) = state.run.current_turn(turn_id).cloned() else { return };
    state.stop_driver();
    // Of its own: what a driver that is being stopped still says must not show as this turn's.
    state.live = LiveOutput::default();
    metrics::TURNS_RUNNING.inc();
    let port = Arc::new(ActorPort {
        inner: state.inner.clone(),
        run_id: state.run.spec.run_id.clone(),
        actor: myself.clone(),
    });
    let (inner, live) = (state.inner.clone(), state.live.clone());
    let spec = state.run.spec.clone();
    let driver = hearth_telemetry::task::spawn("turn", async move {
        let engine = inner.engine();
        let history = if engine.needs_history(&spec) {
            session::conversation(&*inner.journal, &spec).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "a conversation could not be read; the turn starts without it");
                Vec::new()
            })
        } else {
            Vec::new()
        };
        engine.drive(TurnStart { run: spec, turn, history, live }, port).await
    });
    state.driver = Some((turn_id.clone(), driver));
}

/// Begins the child's journal and tells the parent; tries until it is known to have begun or to be
/// impossible. `reply` is answered with what became of it.
fn create_child(
    state: &State,
    myself: &ActorRef<Message>,
    child_run_id: &RunId,
    reply: Option<(Reply, oneshot::Sender<Result<Reply, Error>>)>,
) {
    let Some(child) = state.run.children.get(child_run_id) else { return };
    let Some(unconfirmed) = child.unconfirmed.clone() else {
        if let Some((answer, reply)) = reply {
            reply.send(Ok(answer)).ok();
        }
        return;
    };
    let (spec, prompt) = *unconfirmed;
    let (turn_id, parent) = (child.turn_id.clone(), myself.clone());
    let residents = Residents::from_inner(state.inner.clone());
    let child_run_id = child_run_id.clone();
    state.inner.tasks.spawn(async move {
        let mut pause = FIRST_PAUSE;
        let (command, result) = loop {
            match residents.create(spec.clone(), turn_id.clone(), prompt.clone()).await {
                Ok(Created::New) => break (Command::ChildConfirmed { child_run_id }, Ok(())),
                Ok(Created::Existing(run)) if run.spec.parent == spec.parent && run.spec.key == spec.key => {
                    break (Command::ChildConfirmed { child_run_id }, Ok(()));
                }
                Ok(Created::Existing(_)) => break (Command::ChildRefused { child_run_id }, Err(Error::Taken)),
                Err(Error::Journal(hearth_journal::Error::TooLarge { bytes, limit })) => {
                    let error = hearth_journal::Error::TooLarge { bytes, limit };
                    break (Command::ChildRefused { child_run_id }, Err(error.into()));
                }
                Err(Error::Draining) => return,
                Err(error) => {
                    tracing::warn!(%error, child_run_id = %spec.run_id, "a child could not be created yet");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LARGEST_PAUSE);
                }
            }
        };
        let (told, _answer) = oneshot::channel();
        // A parent that is gone by now creates and confirms again when it is next activated.
        let command = Box::new(command);
        let asked = tokio::time::Instant::now();
        parent.cast(Message::Command { command, reply: told, permit: None, ended: None, asked }).ok();
        if let Some((answer, reply)) = reply {
            reply.send(result.map(|()| answer)).ok();
        }
    });
}

/// Answers an open once the child exists.
pub(crate) fn answer_open(
    state: &State,
    myself: &ActorRef<Message>,
    child: &RunId,
    result: Result<Reply, Error>,
    reply: oneshot::Sender<Result<Reply, Error>>,
) {
    match result {
        Ok(answer) => create_child(state, myself, child, Some((answer, reply))),
        Err(error) => {
            reply.send(Err(error)).ok();
        }
    }
}

/// A child to close and, where it may not exist yet, what it was to begin with.
type ClosingChild = (RunId, Option<(RunSpec, (TurnId, String))>);

async fn close_children(residents: Residents, parent: Arc<RunSpec>, children: Vec<ClosingChild>, settles: bool) {
    let closing = children.into_iter().map(|child| close_child(&residents, &parent, child));
    futures::future::join_all(closing).await;
    if settles {
        if parent.is_root() {
            close_sandboxes(&residents, &parent).await;
        }
        insist("settle", || residents.tell(&parent.run_id, Command::Settle)).await;
    }
}

async fn close_child(residents: &Residents, parent: &RunSpec, (child, unborn): ClosingChild) {
    let closed = insist("close", || async {
        // A child that was journaled here but may not exist yet: its journal begins closed, so that a
        // creation that comes late finds its place taken.
        if let Some((spec, first)) = &unborn
            && let Created::New = residents.create_closed(spec.clone(), Some(first.clone())).await?
        {
            return Ok((RunState::Closed, 0));
        }
        let close = Close { reason: Some("the parent ended".to_owned()), key: None, partial: String::new() };
        residents.close_and_wait(&child, close).await
    })
    .await;
    let Some((state, closed_descendants)) = closed else { return };
    let command = Command::ChildEnded(ChildEnd { child_run_id: child, state, closed_descendants });
    insist("tell the parent", || residents.tell(&parent.run_id, command.clone())).await;
}

async fn announce_end(residents: Residents, run: Box<Run>) {
    if let Some(parent) = &run.spec.parent {
        let command = Command::ChildEnded(ChildEnd {
            child_run_id: run.spec.run_id.clone(),
            state: run.state,
            closed_descendants: run.closed_descendants,
        });
        insist("tell the parent", || residents.tell(&parent.run_id, command.clone())).await;
    } else {
        close_sandboxes(&residents, &run.spec).await;
    }
}

async fn close_sandboxes(residents: &Residents, root: &RunSpec) {
    let caller = hearth_sandbox::Caller {
        principal: root.tenant.clone(),
        root_run: Some(root.run_id.clone()),
        ..hearth_sandbox::Caller::default()
    };
    // One that cannot be closed now is closed by its node, which asks whether the tree has ended.
    if let Err(fault) = residents.inner.sandboxes.close_run(&caller, &root.run_id, true).await {
        tracing::warn!(%fault, root_run_id = %root.run_id, "the sandboxes of an ended tree are left to their node");
    }
}

/// Tries until it succeeds, is refused for good, or this replica stops: then whoever owns the run
/// next finds it undone and does it.
async fn insist<T, F, Fut>(what: &'static str, mut attempt: F) -> Option<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, Error>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Ok(value) => return Some(value),
            Err(Error::Draining | Error::Refused(_) | Error::NotFound | Error::Fold { .. }) => return None,
            Err(error) => {
                tracing::warn!(%error, what, "not done yet; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LARGEST_PAUSE);
            }
        }
    }
}
