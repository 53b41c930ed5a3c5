//! The fold: events to state. It accepts whatever the journal holds and refuses nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use hearth_types::{Epoch, RunState, Seq, Timestamp, TurnId, Usage, limits};

use crate::run::{ENDED_OUTPUT_KEPT, ENDED_TURNS_KEPT, FINAL_CHILDREN_KEPT};
use crate::{
    CallRecord, Child, ChildKind, EndedTurn, Event, Frame, FrameError, KeyRecord, KeyResult, KeyUse, QueuedTurn, Run,
    RunSpec, StepRecord, Turn,
};

impl Run {
    fn begin(spec: RunSpec, seq: Seq, at: Timestamp) -> Self {
        Self {
            spec: Arc::new(spec),
            state: RunState::Running,
            epoch: Epoch(0),
            owner: None,
            seq,
            turns: 0,
            current: None,
            queue: VecDeque::new(),
            newest_turn: None,
            ended: VecDeque::new(),
            children: BTreeMap::new(),
            final_children: VecDeque::new(),
            keys: HashMap::new(),
            key_order: VecDeque::new(),
            usage: Usage::default(),
            sandbox_session: None,
            sandbox_nodes: BTreeMap::new(),
            sandbox_override: None,
            closing: None,
            closed_descendants: 0,
            fruitless_activations: 0,
            created_at: at,
            last_used_at: at,
            snapshot_seq: Seq(0),
            said_bytes: 0,
        }
    }

    /// Folds a frame into the state that the frames before it gave (`None` before the first). Only a
    /// snapshot may leave out what is before it.
    pub fn fold(run: &mut Option<Run>, frame: Frame) -> Result<(), FrameError> {
        let expected = run.as_ref().map_or(Seq(1), |run| run.seq.next());
        if frame.first_seq > expected && frame.is_snapshot() {
            // What is missing was folded into this snapshot and removed.
            *run = None;
        } else if frame.first_seq != expected {
            return Err(FrameError::Gap { expected, found: frame.first_seq });
        }
        for recorded in frame.recorded() {
            match run {
                Some(run) => run.apply(recorded.seq, recorded.at, &recorded.event),
                None => match recorded.event {
                    Event::Created { spec } => *run = Some(Self::begin(*spec, recorded.seq, recorded.at)),
                    Event::Snapshot { run: folded, .. } => {
                        *run = Some(Run { seq: recorded.seq, snapshot_seq: recorded.seq, ..*folded });
                    }
                    _ => {}
                },
            }
        }
        Ok(())
    }

    /// Folds the events of a frame that follows on this state.
    pub fn advance(&mut self, frame: &Frame) {
        for (event, seq) in frame.events.iter().zip(frame.first_seq.0..) {
            self.apply(Seq(seq), frame.at, event);
        }
    }

    fn apply(&mut self, seq: Seq, at: Timestamp, event: &Event) {
        self.seq = seq;
        self.said_bytes = self.said_bytes.saturating_add(event.said_bytes());
        match event {
            Event::Created { .. } => {}
            Event::Activated { epoch, replica } => {
                self.epoch = *epoch;
                self.owner = Some(replica.clone());
                if self.current.is_some() {
                    self.fruitless_activations = self.fruitless_activations.saturating_add(1);
                }
                return;
            }
            Event::TurnAccepted { turn_id, prompt, key, trace } => {
                let queued = self.current.is_some();
                self.queue.push_back(QueuedTurn {
                    turn_id: turn_id.clone(),
                    prompt: prompt.clone(),
                    trace: trace.clone(),
                });
                self.newest_turn = Some(turn_id.clone());
                self.last_used_at = at;
                self.remember(key.as_ref(), at, KeyResult::Turn { turn_id: turn_id.clone(), queued });
            }
            Event::TurnStarted { turn_id } => self.start_turn(turn_id, at),
            Event::Thinking { text, .. } => self.on_step(|step| step.thinking.clone_from(text)),
            Event::Text { text, .. } => self.on_step(|step| step.text.clone_from(text)),
            Event::ToolCalled { call, .. } => {
                self.on_step(|step| step.calls.push(CallRecord { call: call.clone(), result: None }));
            }
            Event::UsageCounted { usage, .. } => {
                self.usage.add(*usage);
                self.on_step(|step| step.usage = *usage);
            }
            Event::StepFinished { .. } => self.on_step(|step| step.finished = true),
            Event::ToolFinished { call_id, output, .. } => self.finish_tool(call_id, output, at),
            Event::Steered { turn_id, text, key } => {
                if let Some(turn) = &mut self.current {
                    turn.steered.push(text.clone());
                }
                self.last_used_at = at;
                self.remember(key.as_ref(), at, KeyResult::Turn { turn_id: turn_id.clone(), queued: false });
            }
            Event::TurnCancelled { .. } | Event::Blocked { .. } | Event::Released => {}
            Event::TurnEnded { .. } => self.end_turn(event, at),
            Event::ChildOpened { spec, kind, turn_id, prompt } => self.add_child(spec, *kind, turn_id, prompt),
            Event::ChildConfirmed { child_run_id } => {
                if let Some(child) = self.children.get_mut(child_run_id) {
                    child.unconfirmed = None;
                }
            }
            Event::ChildRefused { child_run_id } => {
                self.children.remove(child_run_id);
            }
            Event::ChildEnded { child_run_id, state, closed_descendants } => {
                self.end_child(child_run_id, *state);
                self.closed_descendants = self.closed_descendants.saturating_add(*closed_descendants);
            }
            Event::Closing { partial, .. } => {
                // What waits stays until the end, so that whoever waits for it is told then.
                self.closing = Some(partial.clone());
                self.last_used_at = at;
            }
            Event::Closed => {
                self.state = RunState::Closed;
                self.closing = None;
                self.queue.clear();
            }
            Event::Snapshot { .. } => {
                self.snapshot_seq = seq;
                return;
            }
            Event::SandboxBound { slot, node } => {
                self.sandbox_nodes.insert(slot.clone(), node.clone());
            }
            Event::SandboxOverridden { sandbox } => {
                self.sandbox_override.clone_from(sandbox);
                self.sandbox_session = None;
            }
            Event::SandboxForgotten => self.sandbox_session = None,
            Event::KeyUsed { key, result } => self.remember(Some(key), at, result.clone()),
        }
        self.fruitless_activations = 0;
    }

    fn start_turn(&mut self, turn_id: &TurnId, at: Timestamp) {
        let Some(place) = self.queue.iter().position(|queued| &queued.turn_id == turn_id) else { return };
        let Some(queued) = self.queue.remove(place) else { return };
        self.turns = self.turns.saturating_add(1);
        self.state = RunState::Running;
        self.current = Some(Box::new(Turn {
            turn_id: queued.turn_id,
            prompt: queued.prompt,
            trace: queued.trace,
            started_at: at,
            sandbox_session: self.sandbox_session.clone(),
            steps: Vec::new(),
            steered: Vec::new(),
        }));
    }

    /// Changes the step whose events are being folded.
    fn on_step(&mut self, change: impl FnOnce(&mut StepRecord)) {
        let Some(turn) = &mut self.current else { return };
        if turn.steps.last().is_none_or(|step| step.finished) {
            turn.steps.push(StepRecord::default());
        }
        if let Some(step) = turn.steps.last_mut() {
            change(step);
        }
    }

    fn finish_tool(&mut self, call_id: &hearth_types::CallId, output: &hearth_types::ToolOutput, at: Timestamp) {
        let Some(turn) = &mut self.current else { return };
        let Some(step) = turn.steps.last_mut() else { return };
        if let Some(record) = step.calls.iter_mut().find(|record| &record.call.id == call_id) {
            record.result = Some((output.clone(), at));
            if record.call.name == "mcp__sandbox__sandbox_open" && !output.is_error {
                let session = output.content.get("session_id").and_then(|id| id.as_str());
                self.sandbox_session = session.and_then(|id| id.parse().ok()).or(self.sandbox_session.take());
            }
        }
        if step.calls.iter().all(|record| record.result.is_some()) {
            step.steered.append(&mut turn.steered);
        }
    }

    fn end_turn(&mut self, event: &Event, at: Timestamp) {
        let Event::TurnEnded { turn_id, outcome, output, truncated, error, blocker, state } = event else { return };
        let turn = self.current.take();
        let own_step = turn.as_ref().and_then(|turn| turn.steps.last()).filter(|step| !step.finished);
        let text = output.clone().or_else(|| own_step.map(|step| step.text.clone())).unwrap_or_default();
        if let Some(before) = self.ended.back_mut()
            && before.output.as_ref().is_some_and(|output| output.len() > ENDED_OUTPUT_KEPT)
        {
            before.output = None;
        }
        self.ended.push_back(EndedTurn {
            turn_id: turn_id.clone(),
            outcome: *outcome,
            output: Some(text),
            truncated: *truncated,
            error: error.clone(),
            blocker: blocker.clone(),
            state: *state,
            started_at: turn.map_or(at, |turn| turn.started_at),
            ended_at: at,
        });
        if self.ended.len() > ENDED_TURNS_KEPT {
            self.ended.pop_front();
        }
        self.state = *state;
        self.last_used_at = at;
        if state.is_final() {
            self.queue.clear();
            self.closing = None;
        }
    }

    fn add_child(&mut self, spec: &RunSpec, kind: ChildKind, turn_id: &TurnId, prompt: &str) {
        let for_turn = self.current.as_ref().map(|turn| turn.turn_id.clone());
        let child = Child {
            agent: spec.agent.name.clone(),
            kind,
            turn_id: turn_id.clone(),
            unconfirmed: Some(Box::new((spec.clone(), prompt.to_owned()))),
            for_turn: for_turn.filter(|_| kind == ChildKind::Spawn),
            key: spec.key.clone(),
            state: None,
        };
        self.children.insert(spec.run_id.clone(), child);
    }

    fn end_child(&mut self, child_run_id: &hearth_types::RunId, state: RunState) {
        let Some(child) = self.children.get_mut(child_run_id) else { return };
        child.state = Some(state);
        child.unconfirmed = None;
        self.final_children.push_back(child_run_id.clone());
        if self.final_children.len() > FINAL_CHILDREN_KEPT
            && let Some(oldest) = self.final_children.pop_front()
        {
            self.children.remove(&oldest);
        }
    }

    /// Keeps a key for the window that the contract states, and no more than a bound.
    fn remember(&mut self, key: Option<&KeyUse>, at: Timestamp, result: KeyResult) {
        let Some(key) = key else { return };
        let record = KeyRecord { digest: key.digest.clone(), at, result };
        if self.keys.insert(key.id.clone(), record).is_none() {
            self.key_order.push_back(key.id.clone());
        }
        while self.key_order.len() > limits::KEY_WINDOW_MIN {
            let Some(oldest) = self.key_order.front() else { break };
            let old = self.keys.get(oldest).is_none_or(|record| at.since(record.at) > limits::KEY_WINDOW);
            if !old && self.key_order.len() <= limits::KEY_WINDOW_MAX {
                break;
            }
            if let Some(oldest) = self.key_order.pop_front() {
                self.keys.remove(&oldest);
            }
        }
    }
}
