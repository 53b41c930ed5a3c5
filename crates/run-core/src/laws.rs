//! What every history of a run keeps to, judged by its events alone.
//!
//! Nothing here shares code with the decisions or with the fold: it keeps its own, smaller account, so
//! that a mistake in those shows as a breach. Tests and the simulation feed it each frame as it is
//! appended.

use std::collections::{BTreeMap, VecDeque};

use hearth_types::{CallId, Epoch, RunId, RunState, Seq, TurnId, TurnOutcome, limits};

use crate::{ChildKind, Event, Frame, KeyResult, KeyUse, RunSpec};

/// A law that a history broke, and how.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{law}: {what}")]
pub struct Breach {
    /// The promise that is broken, such as `P4`.
    pub law: &'static str,
    pub what: String,
}

fn breach<T>(law: &'static str, what: impl Into<String>) -> Result<T, Breach> {
    Err(Breach { law, what: what.into() })
}

fn hold(law: &'static str, holds: bool, what: impl FnOnce() -> String) -> Result<(), Breach> {
    if holds { Ok(()) } else { breach(law, what()) }
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnEndSeen {
    pub outcome: TurnOutcome,
    pub output: String,
    pub state: RunState,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChildSeen {
    pub kind: ChildKind,
    pub confirmed: bool,
    pub end: Option<RunState>,
}

#[derive(Debug, Default)]
struct Running {
    turn_id: Option<TurnId>,
    /// The calls of the last step, and whether each has its result.
    calls: BTreeMap<CallId, bool>,
    /// Every call of the turn.
    called: Vec<CallId>,
    /// The events of a step are being taken.
    in_step: bool,
    text: String,
}

/// One run's history so far.
#[derive(Debug, Default)]
pub struct Laws {
    pub spec: Option<Box<RunSpec>>,
    pub epoch: Epoch,
    pub seq: Seq,
    pub accepted: BTreeMap<TurnId, String>,
    pub ended: BTreeMap<TurnId, TurnEndSeen>,
    pub children: BTreeMap<RunId, ChildSeen>,
    /// What each key gave, and its body's digest.
    pub keys: BTreeMap<String, (String, KeyResult)>,
    /// Accepted and not started, oldest first.
    pub waiting: VecDeque<TurnId>,
    pub closing: bool,
    /// The final state, once there is one.
    pub end: Option<RunState>,
    started: Vec<TurnId>,
    running: Running,
    /// Accepted in the frame that is being taken.
    just_accepted: Option<TurnId>,
    /// A turn that was said to be cancelled or blocked and whose end must follow.
    announced: Option<(TurnId, TurnOutcome)>,
}

impl Laws {
    pub fn current(&self) -> Option<&TurnId> {
        self.running.turn_id.as_ref()
    }

    pub fn live_children(&self) -> impl Iterator<Item = (&RunId, &ChildSeen)> {
        self.children.iter().filter(|(_, child)| child.end.is_none())
    }

    pub fn has_started(&self, turn_id: &TurnId) -> bool {
        self.started.contains(turn_id)
    }

    /// Takes the next frame of the history, or says which law it breaks.
    pub fn take(&mut self, frame: &Frame) -> Result<(), Breach> {
        hold("P1", frame.first_seq == self.seq.next(), || {
            format!("a frame begins at event {} after event {}", frame.first_seq, self.seq)
        })?;
        let before = self.epoch;
        self.just_accepted = None;
        for (place, event) in frame.events.iter().enumerate() {
            self.seq = self.seq.next();
            if let Event::Activated { epoch, .. } = event {
                let first = place == 0 || (place == 1 && matches!(frame.events[0], Event::Created { .. }));
                hold("P1", first, || format!("epoch {epoch} is not the first thing in its frame"))?;
                hold("P1", *epoch > before, || format!("epoch {epoch} after epoch {before}"))?;
                self.epoch = *epoch;
            } else {
                self.event(event)?;
            }
        }
        hold("P1", frame.epoch == self.epoch, || {
            format!("a frame of epoch {} while epoch {} is active", frame.epoch, self.epoch)
        })?;
        self.after_frame()
    }

    fn after_frame(&self) -> Result<(), Breach> {
        if let Some((turn, outcome)) = &self.announced {
            return breach("P4", format!("{turn} was said to be {} and did not end", outcome.as_str()));
        }
        hold("P4", !self.running.in_step, || "a model step is journaled in part".to_owned())?;
        let waiting = self.waiting.len();
        hold("P7", waiting <= limits::MAX_QUEUED_TURNS, || format!("{waiting} prompts wait"))?;
        let parked = self.end.is_none() && !self.closing && self.current().is_none();
        hold("P4", !parked || waiting == 0, || format!("the run is parked and {waiting} prompts wait"))
    }

    /// Nothing is under way: what must hold once all faults are over and time has passed.
    pub fn at_rest(&self) -> Result<(), Breach> {
        if let Some(turn) = self.current() {
            return breach("P4", format!("{turn} has not ended"));
        }
        hold("P5", !self.closing, || "a close has not come to its end".to_owned())?;
        for (child, seen) in self.live_children() {
            hold("P5", self.end.is_none(), || format!("{child} lives under a parent that has ended"))?;
            hold("P5", seen.confirmed, || format!("{child} was journaled and is not confirmed"))?;
            hold("P5", seen.kind == ChildKind::Resident, || format!("{child} outlives the turn that spawned it"))?;
        }
        Ok(())
    }

    fn event(&mut self, event: &Event) -> Result<(), Breach> {
        if let Some(end) = self.end {
            let after_end = matches!(
                event,
                Event::ChildConfirmed { .. }
                    | Event::ChildRefused { .. }
                    | Event::ChildEnded { .. }
                    | Event::Snapshot { .. }
            );
            hold("P2", after_end, || format!("the run was {} and then {event:?}", end.as_str()))?;
        }
        if self.closing {
            let goes_on = matches!(
                event,
                Event::TurnAccepted { .. }
                    | Event::TurnStarted { .. }
                    | Event::Text { .. }
                    | Event::ToolCalled { .. }
                    | Event::StepFinished { .. }
                    | Event::ToolFinished { .. }
                    | Event::Steered { .. }
                    | Event::Blocked { .. }
                    | Event::ChildOpened { .. }
            );
            hold("P5", !goes_on, || format!("the run is closing and goes on with {event:?}"))?;
        }
        if let Some((turn, _)) = &self.announced {
            let follows = matches!(event, Event::TurnEnded { turn_id, .. } if turn_id == turn);
            hold("P4", follows, || format!("between the last word on {turn} and its end: {event:?}"))?;
        }
        match event {
            Event::Created { spec } => self.created(spec),
            Event::TurnAccepted { turn_id, prompt, key, .. } => self.turn_accepted(turn_id, prompt, key.as_ref()),
            Event::TurnStarted { turn_id } => self.turn_started(turn_id),
            Event::TurnEnded { .. } => self.turn_ended(event),
            Event::TurnCancelled { turn_id, .. } => self.announce(turn_id, TurnOutcome::Cancelled),
            Event::Blocked { turn_id, .. } => self.announce(turn_id, TurnOutcome::Blocked),
            Event::Thinking { turn_id, .. } | Event::UsageCounted { turn_id, .. } => self.step(turn_id, event),
            Event::Text { turn_id, text } => {
                self.step(turn_id, event)?;
                self.running.text.clone_from(text);
                Ok(())
            }
            Event::ToolCalled { turn_id, call } => {
                self.step(turn_id, event)?;
                let new = !self.running.called.contains(&call.id);
                self.running.called.push(call.id.clone());
                self.running.calls.insert(call.id.clone(), false);
                hold("P4", new, || format!("{} is called twice", call.id))
            }
            Event::StepFinished { turn_id } => {
                self.step(turn_id, event)?;
                self.running.in_step = false;
                Ok(())
            }
            Event::ToolFinished { turn_id, call_id, .. } => self.tool_finished(turn_id, call_id),
            Event::Steered { turn_id, key, .. } => {
                self.must_run(turn_id, event)?;
                self.key(key.as_ref(), || KeyResult::Turn { turn_id: turn_id.clone(), queued: false })
            }
            Event::ChildOpened { spec, kind, .. } => self.child_opened(spec, *kind),
            Event::ChildConfirmed { child_run_id } => self.child_settled(child_run_id, true),
            Event::ChildRefused { child_run_id } => self.child_settled(child_run_id, false),
            Event::ChildEnded { child_run_id, state, .. } => self.child_ended(child_run_id, *state),
            Event::Closing { .. } => {
                hold("P5", !self.closing, || "closing twice".to_owned())?;
                self.closing = true;
                Ok(())
            }
            Event::Closed => self.finish(RunState::Closed),
            Event::KeyUsed { key, result } => self.key(Some(key), || result.clone()),
            Event::Activated { .. }
            | Event::Released
            | Event::Snapshot { .. }
            | Event::SandboxBound { .. }
            | Event::SandboxOverridden { .. }
            | Event::SandboxForgotten => Ok(()),
        }
    }

    fn created(&mut self, spec: &RunSpec) -> Result<(), Breach> {
        hold("P1", self.spec.is_none(), || "created twice".to_owned())?;
        self.spec = Some(Box::new(spec.clone()));
        Ok(())
    }

    fn turn_accepted(&mut self, turn_id: &TurnId, prompt: &str, key: Option<&KeyUse>) -> Result<(), Breach> {
        let new = self.accepted.insert(turn_id.clone(), prompt.to_owned()).is_none();
        hold("P3", new, || format!("{turn_id} was accepted twice"))?;
        let queued = self.current().is_some();
        self.waiting.push_back(turn_id.clone());
        self.just_accepted = Some(turn_id.clone());
        self.key(key, || KeyResult::Turn { turn_id: turn_id.clone(), queued })
    }

    fn turn_started(&mut self, turn_id: &TurnId) -> Result<(), Breach> {
        if let Some(running) = self.current() {
            return breach("P4", format!("{turn_id} starts while {running} runs"));
        }
        // Input that came too late for its turn is accepted and started at once, before what waits.
        let place = self.waiting.iter().position(|id| id == turn_id);
        let next = place == Some(0) || (place.is_some() && self.just_accepted.as_ref() == Some(turn_id));
        hold("P4", next, || format!("{turn_id} starts and is not the next one that waits"))?;
        self.waiting.retain(|id| id != turn_id);
        self.started.push(turn_id.clone());
        self.running = Running { turn_id: Some(turn_id.clone()), ..Running::default() };
        Ok(())
    }

    fn turn_ended(&mut self, event: &Event) -> Result<(), Breach> {
        let Event::TurnEnded { turn_id, outcome, output, state, .. } = event else { return Ok(()) };
        hold("P4", !self.ended.contains_key(turn_id), || format!("{turn_id} ends twice"))?;
        self.must_run(turn_id, event)?;
        if let Some((_, announced)) = self.announced.take() {
            hold("P4", announced == *outcome, || format!("{turn_id} ends {} otherwise than said", outcome.as_str()))?;
        }
        let open = self.running.calls.values().any(|done| !done);
        hold("P4", !open || *outcome != TurnOutcome::Finished, || format!("{turn_id} finished with a call open"))?;
        hold("P4", *state != RunState::Running, || format!("{turn_id} ends and leaves the run running"))?;
        let output = output.clone().unwrap_or_else(|| std::mem::take(&mut self.running.text));
        self.ended.insert(turn_id.clone(), TurnEndSeen { outcome: *outcome, output, state: *state });
        self.running = Running::default();
        if state.is_final() {
            self.waiting.clear();
            return self.finish(*state);
        }
        hold("P5", !self.closing, || format!("{turn_id} parks a run that is closing"))
    }

    fn finish(&mut self, state: RunState) -> Result<(), Breach> {
        hold("P4", self.current().is_none(), || "the run ended and its turn did not".to_owned())?;
        if self.closing || state == RunState::Closed {
            hold("P5", self.live_children().next().is_none(), || "closed over a child that lives".to_owned())?;
        }
        self.end = Some(state);
        self.closing = false;
        self.waiting.clear();
        Ok(())
    }

    fn must_run(&self, turn_id: &TurnId, event: &Event) -> Result<(), Breach> {
        hold("P4", self.current() == Some(turn_id), || format!("{turn_id} does not run, and {event:?}"))
    }

    fn announce(&mut self, turn_id: &TurnId, outcome: TurnOutcome) -> Result<(), Breach> {
        hold("P4", self.current() == Some(turn_id), || format!("{turn_id} is {} and does not run", outcome.as_str()))?;
        self.announced = Some((turn_id.clone(), outcome));
        Ok(())
    }

    /// A model step follows only once every call of the step before has its result.
    fn step(&mut self, turn_id: &TurnId, event: &Event) -> Result<(), Breach> {
        self.must_run(turn_id, event)?;
        let running = &mut self.running;
        if !running.in_step {
            let open = running.calls.values().filter(|done| !**done).count();
            hold("P4", open == 0, || format!("{turn_id} makes a step while {open} calls of the last one are open"))?;
            running.calls.clear();
            running.text.clear();
            running.in_step = true;
        }
        Ok(())
    }

    fn tool_finished(&mut self, turn_id: &TurnId, call_id: &CallId) -> Result<(), Breach> {
        hold("P4", self.current() == Some(turn_id), || format!("{call_id} has a result and its turn does not run"))?;
        match self.running.calls.get_mut(call_id) {
            Some(done) if !*done => {
                *done = true;
                Ok(())
            }
            _ => breach("P4", format!("{call_id} has a result and is not open")),
        }
    }

    fn child_opened(&mut self, spec: &RunSpec, kind: ChildKind) -> Result<(), Breach> {
        let child = &spec.run_id;
        hold("P3", !self.children.contains_key(child), || format!("{child} was opened twice"))?;
        hold("P7", spec.depth <= limits::MAX_DEPTH, || format!("{child} is at depth {}", spec.depth))?;
        let same_kind = self.live_children().filter(|(_, seen)| seen.kind == kind).count() + 1;
        let cap = match kind {
            ChildKind::Resident => self.spec.as_ref().map_or(0, |spec| spec.max_residents as usize),
            ChildKind::Spawn => limits::MAX_PARALLEL_SPAWNS,
        };
        hold("P7", same_kind <= cap, || format!("{same_kind} live children of kind {kind:?}; the cap is {cap}"))?;
        self.children.insert(child.clone(), ChildSeen { kind, confirmed: false, end: None });
        Ok(())
    }

    fn child_settled(&mut self, child: &RunId, confirmed: bool) -> Result<(), Breach> {
        match self.children.get_mut(child) {
            Some(seen) if !seen.confirmed && seen.end.is_none() => {
                seen.confirmed = true;
                if !confirmed {
                    self.children.remove(child);
                }
                Ok(())
            }
            _ => breach("P5", format!("{child} is confirmed or refused and was not waiting for that")),
        }
    }

    fn child_ended(&mut self, child: &RunId, state: RunState) -> Result<(), Breach> {
        hold("P5", state.is_final(), || format!("{child} ended {}", state.as_str()))?;
        match self.children.get_mut(child) {
            Some(seen) if seen.end.is_none() => {
                seen.end = Some(state);
                seen.confirmed = true;
                Ok(())
            }
            _ => breach("P5", format!("{child} ended and was not live")),
        }
    }

    fn key(&mut self, key: Option<&KeyUse>, result: impl FnOnce() -> KeyResult) -> Result<(), Breach> {
        let Some(key) = key else { return Ok(()) };
        let again = self.keys.insert(key.id.clone(), (key.digest.clone(), result()));
        let known = again.is_none() || self.keys.len() > limits::KEY_WINDOW_MIN;
        hold("P3", known, || format!("the key {} had two effects", key.id))
    }
}
