//! The books: every frame that a journal took, judged as it was taken, and what callers were told.

use std::collections::{BTreeMap, BTreeSet};

use hearth_journal::{Append, LogKey, Position};
use hearth_run_core::laws::{Breach, Laws, TurnEndSeen};
use hearth_run_core::{Event, Frame, Run};
use hearth_types::{Envelope, FaultCode, RunId, RunState, TurnId, TurnOutcome};

use crate::script;

/// One run as its journal tells it.
#[derive(Default)]
pub struct Book {
    pub laws: Laws,
    /// The fold of all frames from the first.
    pub run: Option<Run>,
    pub frames: u64,
    pub snapshot: u64,
    snapshots: BTreeSet<u64>,
    pub floor: u64,
    prompts: BTreeMap<String, TurnId>,
    /// Input that was steered into a turn.
    steered: BTreeMap<TurnId, Vec<String>>,
    /// Turns given up because activation after activation ended without progress.
    pub given_up: u32,
}

#[derive(Default)]
pub struct Books {
    pub runs: BTreeMap<RunId, Book>,
}

fn breach<T>(law: &'static str, what: String) -> Result<T, Breach> {
    Err(Breach { law, what })
}

impl Books {
    /// Takes what a journal has just taken.
    pub fn take(&mut self, append: &Append, position: Position) -> Result<(), Breach> {
        let LogKey::Run(run_id) = &append.key else { return Ok(()) };
        let frame = match Frame::decode(&append.frame) {
            Ok(frame) => frame,
            Err(error) => return breach("P2", format!("{run_id}: a frame that nobody can read: {error}")),
        };
        self.check_family(run_id, &frame)?;
        let book = self.runs.entry(run_id.clone()).or_default();
        let within = |breach: Breach| Breach { what: format!("{run_id}: {}", breach.what), ..breach };
        book.take(frame, position).map_err(within)?;
        book.check_head(append).map_err(within)
    }

    /// A child is journaled by its parent before it exists, and its end is told after it came.
    fn check_family(&self, run_id: &RunId, frame: &Frame) -> Result<(), Breach> {
        for event in &frame.events {
            match event {
                Event::Created { spec } => {
                    let live = self.runs.iter().find(|(id, book)| {
                        let is_of = book.laws.spec.as_ref().is_some_and(|other| other.session_id == spec.session_id);
                        *id != run_id && is_of && book.laws.end.is_none()
                    });
                    if let Some((other, _)) = live {
                        let session = &spec.session_id;
                        return breach("P1", format!("{run_id} begins in {session}, of which {other} is live"));
                    }
                    let Some(parent) = &spec.parent else { continue };
                    let named = self.runs.get(&parent.run_id).is_some_and(|p| p.laws.children.contains_key(run_id));
                    if !named {
                        return breach("P5", format!("{run_id} exists and {} never opened it", parent.run_id));
                    }
                }
                Event::ChildEnded { child_run_id, state, .. } => {
                    let end = self.runs.get(child_run_id).and_then(|child| child.laws.end);
                    if end != Some(*state) {
                        let told = state.as_str();
                        return breach("P5", format!("{run_id} heard that {child_run_id} is {told}; it is {end:?}"));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub fn book(&self, run_id: &RunId) -> Option<&Book> {
        self.runs.get(run_id)
    }

    pub fn end_of(&self, run_id: &RunId) -> Option<RunState> {
        self.book(run_id).and_then(|book| book.laws.end)
    }

    /// The runs below this one that have not ended.
    pub fn live_below(&self, run_id: &RunId) -> Vec<RunId> {
        let is_below = |book: &Book| {
            let mut parent = book.laws.spec.as_ref().and_then(|spec| spec.parent.clone());
            while let Some(above) = parent {
                if &above.run_id == run_id {
                    return true;
                }
                let spec = self.book(&above.run_id).and_then(|book| book.laws.spec.as_ref());
                parent = spec.and_then(|spec| spec.parent.clone());
            }
            false
        };
        self.runs
            .iter()
            .filter(|(_, book)| book.laws.end.is_none() && is_below(book))
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Whether a caller was told what the journal holds.
    pub fn check_envelope(&self, envelope: &Envelope) -> Result<(), String> {
        let run_id = &envelope.run_id;
        let Some(book) = self.book(run_id) else { return Err(format!("P2: {run_id} was told and does not exist")) };
        let Some(turn_id) = &envelope.turn_id else { return Ok(()) };
        if !book.laws.accepted.contains_key(turn_id) {
            return Err(format!("P2: {turn_id} was told and is not in the journal of {run_id}"));
        }
        let Some(outcome) = envelope.outcome else { return Ok(()) };
        match book.laws.ended.get(turn_id) {
            Some(end) => end.check(envelope, book.laws.end),
            None if book.laws.end.is_some() && !book.laws.has_started(turn_id) => {
                let never = outcome == TurnOutcome::Cancelled && Some(envelope.state) == book.laws.end;
                if never { Ok(()) } else { Err(format!("P4: {turn_id} never started and was told as {envelope:?}")) }
            }
            None => Err(format!("P2: {turn_id} was told to be {} and has not ended", outcome.as_str())),
        }
    }
}

trait Told {
    fn check(&self, envelope: &Envelope, end: Option<RunState>) -> Result<(), String>;
}

impl Told for TurnEndSeen {
    fn check(&self, envelope: &Envelope, end: Option<RunState>) -> Result<(), String> {
        let same = envelope.outcome == Some(self.outcome) && envelope.output == self.output;
        let state = envelope.state == self.state || Some(envelope.state) == end;
        if same && state { Ok(()) } else { Err(format!("P2: told {envelope:?}; the journal has {self:?}, {end:?}")) }
    }
}

impl Book {
    fn take(&mut self, frame: Frame, position: Position) -> Result<(), Breach> {
        if frame.prev != self.frames || position.0 != self.frames + 1 {
            let (prev, frames) = (frame.prev, self.frames);
            return breach("P1", format!("a frame after position {prev} stands at {position} after {frames} frames"));
        }
        if frame.snapshot != self.snapshot {
            let (found, known) = (frame.snapshot, self.snapshot);
            return breach("P2", format!("a frame names the snapshot at {found}; the last one is at {known}"));
        }
        if frame.floor < self.floor || (frame.floor > self.floor && !self.snapshots.contains(&frame.floor)) {
            let (found, known) = (frame.floor, self.floor);
            return breach("P2", format!("a frame lets reading begin at {found}, no snapshot or before {known}"));
        }
        self.floor = frame.floor;
        self.frames = position.0;
        if frame.is_snapshot() {
            self.snapshot = position.0;
            self.snapshots.insert(position.0);
        }
        self.laws.take(&frame)?;
        if let (Some(Event::Snapshot { run: snapshot, .. }), Some(run)) = (frame.events.first(), &self.run)
            && snapshot.as_ref() != run
        {
            return breach("P2", "a snapshot is not what the frames before it give".to_owned());
        }
        self.check_due(&frame)?;
        for event in &frame.events {
            self.note(event)?;
        }
        Run::fold(&mut self.run, frame).map_err(|error| Breach { law: "P2", what: error.to_string() })
    }

    /// What happens by itself happens when it is due, by the clock of whoever decides it.
    fn check_due(&self, frame: &Frame) -> Result<(), Breach> {
        let by_itself = |event: &Event| match event {
            Event::Closing { reason, .. } => reason.as_deref() == Some("idle"),
            Event::TurnEnded { error: Some(error), .. } => error.code == FaultCode::DeadlineExceeded,
            _ => false,
        };
        let due = self.run.as_ref().and_then(Run::due_at);
        if frame.events.iter().any(by_itself) && due.is_none_or(|due| frame.at < due) {
            return breach("P4", format!("ended by itself at {}; that is due at {due:?}", frame.at));
        }
        Ok(())
    }

    fn note(&mut self, event: &Event) -> Result<(), Breach> {
        match event {
            Event::TurnAccepted { turn_id, prompt, .. } => {
                // Every prompt of the simulation is one of a kind.
                let again = self.prompts.insert(prompt.clone(), turn_id.clone());
                if let Some(first) = again {
                    return breach("P3", format!("the prompt of {first} was accepted as {turn_id} too"));
                }
            }
            Event::Steered { turn_id, text, .. } => {
                self.steered.entry(turn_id.clone()).or_default().push(text.clone());
            }
            Event::TurnEnded { turn_id, outcome: TurnOutcome::Finished, .. } => {
                let prompt = self.laws.accepted.get(turn_id).map(String::as_str).unwrap_or_default();
                let output = self.laws.ended.get(turn_id).map(|end| end.output.as_str()).unwrap_or_default();
                if let Err(what) = script::check_output(prompt, output) {
                    return breach("P4", format!("{turn_id} {what}"));
                }
            }
            Event::TurnEnded { error: Some(error), .. } if error.message.contains("activations in a row") => {
                self.given_up += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// Input steered into turns that finished reached the model, or became a turn.
    pub fn check_steered(&self) -> Result<(), String> {
        for (turn_id, texts) in &self.steered {
            let Some(end) = self.laws.ended.get(turn_id) else { continue };
            if end.outcome != TurnOutcome::Finished {
                continue;
            }
            for text in texts {
                let seen = end.output.contains(text.as_str());
                let became_turn = self.laws.accepted.values().any(|prompt| prompt.contains(text.as_str()));
                if !seen && !became_turn {
                    return Err(format!("P2: {text:?}, steered into {turn_id}, reached nobody"));
                }
            }
        }
        Ok(())
    }

    /// The index row that came with a frame shows the state after it.
    fn check_head(&self, append: &Append) -> Result<(), Breach> {
        let (Some(head), Some(run)) = (&append.head, &self.run) else { return Ok(()) };
        let shown = (head.state, head.wake, head.due_at);
        let is = (run.state, run.wakes(), run.due_at());
        if shown == is { Ok(()) } else { breach("P2", format!("the index row says {shown:?}; the state is {is:?}")) }
    }
}
