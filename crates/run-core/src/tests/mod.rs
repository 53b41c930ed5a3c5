//! Random histories: thousands of sequences of commands, each decision judged by the laws, by what its
//! effects must be, and by folding what was written.

mod actions;
mod decoding;
mod keys;

use std::collections::BTreeMap;

use hearth_types::{Epoch, ReplicaId, RunState, Seq, Timestamp, TurnId, limits};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use crate::breaks::{BREAKS, Break};
use crate::laws::Laws;
use crate::{
    Accept, Cancel, ChildKind, Close, Command, Decision, Effect, Event, Frame, KeyUse, Refusal, Reply, Run, RunSpec,
    create, decide, pending_effects,
};
use actions::{Action, action};

const HISTORIES: u32 = 1_000;
const COMMANDS: usize = 90;

/// A run with everything that is known of it by other means.
struct World {
    run: Run,
    /// The same, folded from encoded frames.
    folded: Option<Run>,
    laws: Laws,
    now: Timestamp,
    frames: u64,
    /// What each key answered first.
    replies: BTreeMap<String, (String, Reply)>,
    announced: u32,
    machine: Break,
}

/// The state machine as it is.
const SOUND: Break = Break { name: "none", decide, pending: pending_effects };

impl World {
    fn begin(spec: RunSpec, machine: Break) -> Self {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let replica = ReplicaId::parse("replica-0").unwrap();
        let events = create(spec, TurnId::parse("turn_first").unwrap(), "first".into(), replica);
        let frame = frame(0, Epoch(1), Seq(1), now, events);
        let mut run = None;
        Run::fold(&mut run, frame.clone()).unwrap();
        let run = run.expect("the first frame makes a run");
        let (folded, laws) = (None, Laws::default());
        let mut world = Self { run, folded, laws, now, frames: 0, replies: BTreeMap::new(), announced: 0, machine };
        world.write(&frame);
        world
    }

    fn live(spec: RunSpec, history: &[Action], machine: Break) -> Self {
        let mut world = Self::begin(spec, machine);
        for action in history {
            world.act(action);
        }
        world
    }

    /// What a journal and its readers make of a frame.
    fn write(&mut self, frame: &Frame) {
        let read = Frame::decode(&frame.encode().unwrap()).unwrap();
        assert_eq!(&read, frame, "what is read is what was written");
        self.laws.take(&read).unwrap_or_else(|breach| panic!("{breach}\n{frame:#?}"));
        Run::fold(&mut self.folded, read).unwrap();
        self.frames += 1;
        assert_eq!(self.folded.as_ref(), Some(&self.run), "folding gives the state that was applied");
    }

    fn act(&mut self, action: &Action) {
        if let Action::Pass(ms) = action {
            self.now = self.now.plus(std::time::Duration::from_millis(u64::from(*ms)));
        }
        if let Action::Snapshot = action {
            self.journal(
                self.run.epoch,
                vec![Event::Snapshot { run: Box::new(self.run.clone()), earlier: Vec::new() }],
            );
        }
        let fresh = usize::try_from(self.run.seq.0).unwrap();
        let Some(command) = action.command(&self.run, fresh) else { return };
        let before = self.run.clone();
        match (self.machine.decide)(&before, &command, self.now) {
            Ok(decision) => {
                if let Command::OpenChild(open) = &command
                    && let Some(child) = before.children.get(&open.spec.run_id)
                {
                    assert_eq!(child.key, open.spec.key, "another body under a child's key was taken");
                }
                self.check_reply(&command, &decision);
                self.append(&command, &decision);
                self.check_effects(&before, &decision);
            }
            Err(refusal) => self.check_refusal(&before, &command, &refusal),
        }
        self.check_state();
    }

    fn append(&mut self, command: &Command, decision: &Decision) {
        if let (Command::Tick { .. }, due) = (command, self.run.due_at()) {
            let is_due = due.is_some_and(|due| due <= self.now);
            assert_eq!(is_due, !decision.events.is_empty(), "a tick does something exactly when something is due");
        }
        if decision.events.is_empty() {
            assert!(decision.effects.is_empty(), "what is not journaled has no effect: {:?}", decision.effects);
            return;
        }
        let epoch = match &decision.events[0] {
            Event::Activated { epoch, .. } => *epoch,
            _ => self.run.epoch,
        };
        self.journal(epoch, decision.events.clone());
    }

    fn journal(&mut self, epoch: Epoch, events: Vec<Event>) {
        let frame = frame(self.frames, epoch, self.run.seq.next(), self.now, events);
        self.run.advance(&frame);
        if frame.is_snapshot() {
            // Readers begin here and know nothing of what was before.
            self.folded = None;
        }
        self.write(&frame);
    }

    /// A key answered once answers the same again, and does nothing more.
    fn check_reply(&mut self, command: &Command, decision: &Decision) {
        let Some(key) = key_of(command) else { return };
        if let Some((digest, first)) = self.replies.get(&key.id) {
            assert_eq!(digest, &key.digest, "another body under {} was taken", key.id);
            assert!(decision.events.is_empty(), "a repeat of {} led to {:?}", key.id, decision.events);
            assert_eq!(decision.reply, replayed(first.clone()), "a repeat of {} got another answer", key.id);
            return;
        }
        let recorded = decision.events.iter().any(|event| match event {
            Event::TurnAccepted { key: used, .. } | Event::Steered { key: used, .. } => used.as_ref() == Some(key),
            Event::KeyUsed { key: used, .. } => used == key,
            _ => false,
        });
        if recorded {
            self.replies.insert(key.id.clone(), (key.digest.clone(), decision.reply.clone()));
        }
    }

    fn check_refusal(&self, run: &Run, command: &Command, refusal: &Refusal) {
        if let Some(key) = key_of(command)
            && let Some((digest, _)) = self.replies.get(&key.id)
        {
            assert_ne!(digest, &key.digest, "a repeat of {} was refused: {refusal}", key.id);
            assert_eq!(refusal, &Refusal::KeyConflict);
            return;
        }
        let told = match refusal {
            Refusal::Ended { state } => run.state == *state && state.is_final(),
            Refusal::Closing => run.closing.is_some(),
            Refusal::KeyConflict => match command {
                Command::OpenChild(open) => run.children.get(&open.spec.run_id).is_some_and(|c| c.key != open.spec.key),
                _ => false,
            },
            Refusal::QueueFull => {
                let steered = run.current.as_ref().map_or(0, |turn| turn.steered.len());
                run.queue.len().max(steered) == limits::MAX_QUEUED_TURNS
            }
            Refusal::TooMuchSaid => run.said_bytes >= limits::MAX_SAID_BYTES,
            Refusal::ResidentLimit { limit } => run.live_residents() == *limit as usize,
            Refusal::TooDeep | Refusal::StaleTurn | Refusal::TooManySandboxes { .. } => true,
            Refusal::TooManySpawns { limit } => run.live_children().count() >= *limit,
        };
        assert!(told, "refused for a reason that does not hold: {refusal}");
    }

    /// The effects are those that the events ask for.
    fn check_effects(&mut self, before: &Run, decision: &Decision) {
        let mut expected = Vec::new();
        let was_open = |id: &TurnId| before.current_turn(id).map(|turn| turn.open_calls().cloned().collect());
        for event in &decision.events {
            match event {
                Event::TurnStarted { turn_id } => expected.push(Effect::StartTurn { turn_id: turn_id.clone() }),
                // At the end of a close the turn has been stopped already.
                Event::TurnEnded { turn_id, .. } if before.closing.is_none() => {
                    let abandoned = was_open(turn_id).unwrap_or_default();
                    expected.push(Effect::StopTurn { turn_id: turn_id.clone(), abandoned });
                }
                Event::Closing { .. } => {
                    if let Some(turn) = &before.current {
                        let abandoned = turn.open_calls().cloned().collect();
                        expected.push(Effect::StopTurn { turn_id: turn.turn_id.clone(), abandoned });
                    }
                    expected.push(Effect::Settle);
                }
                _ => {}
            }
        }
        let turn_ended = decision.events.iter().any(|event| matches!(event, Event::TurnEnded { .. }));
        let over = self.run.state.is_final() || self.run.closing.is_some();
        let begins = over && !(before.state.is_final() || before.closing.is_some());
        for (id, child) in before.live_children() {
            if begins || (turn_ended && child.kind == ChildKind::Spawn && before.closing.is_none()) {
                expected.push(Effect::CloseChild { child_run_id: id.clone() });
            }
        }
        let down = |run: &Run| run.state.is_final() && run.live_children().next().is_none();
        if down(&self.run) && !down(before) {
            self.announced += 1;
            expected.push(Effect::AnnounceEnd);
        }
        let sorted = |effects: &[Effect]| {
            let mut names: Vec<String> = effects.iter().map(|effect| format!("{effect:?}")).collect();
            names.sort();
            names
        };
        assert_eq!(sorted(&decision.effects), sorted(&expected), "{:#?}", decision.events);
    }

    /// What the state says of itself agrees with what has happened.
    fn check_state(&self) {
        let (run, laws) = (&self.run, &self.laws);
        assert_eq!(run.state.is_final(), laws.end.is_some());
        if let Some(end) = laws.end {
            assert_eq!(run.state, end, "a final state never changes");
        }
        assert!(self.announced <= 1, "an end is announced once");
        assert_eq!(run.current.as_ref().map(|turn| &turn.turn_id), laws.current());
        assert_eq!(run.queue.iter().map(|queued| &queued.turn_id).collect::<Vec<_>>(), Vec::from_iter(&laws.waiting));
        assert_eq!(run.state == RunState::Running, laws.current().is_some() && laws.end.is_none());
        assert!(run.live_residents() <= run.spec.max_residents as usize);
        // A close that is under way is no turn that could be given up.
        assert!(run.closing.is_some() || run.fruitless_activations <= limits::MAX_FRUITLESS_ACTIVATIONS);
        self.check_envelopes();
        self.check_pending();
        let idle_at = run.last_used_at.plus(std::time::Duration::from_millis(run.spec.idle_ttl_ms));
        let deadline = |turn: &crate::Turn| {
            let limit = run.spec.turn_timeout_ms?;
            Some(turn.started_at.plus(std::time::Duration::from_millis(limit)))
        };
        let due = match (&run.current, laws.end.is_some() || laws.closing) {
            (_, true) => None,
            (None, false) => Some(idle_at),
            (Some(turn), false) => deadline(turn),
        };
        assert_eq!(run.due_at(), due);
    }

    fn check_envelopes(&self) {
        for (turn_id, end) in &self.laws.ended {
            let Some(envelope) = self.run.envelope(turn_id, "live") else { continue };
            assert_eq!(envelope.outcome, Some(end.outcome), "{turn_id}");
            assert_eq!(envelope.output, end.output, "{turn_id}");
            assert_eq!(envelope.state, self.laws.end.unwrap_or(end.state), "{turn_id}");
        }
        let under_way = self.laws.current().into_iter().chain(&self.laws.waiting);
        for turn_id in under_way {
            let envelope = self.run.envelope(turn_id, "live").expect("a turn that is under way is shown");
            assert_eq!((envelope.state, envelope.outcome), (RunState::Running, None), "{turn_id}");
        }
    }

    /// A new activation restarts exactly what is under way.
    fn check_pending(&self) {
        let (run, laws) = (&self.run, &self.laws);
        let mut expected = Vec::new();
        let over = laws.end.is_some() || laws.closing;
        for (id, child) in laws.live_children() {
            let for_current = run.children[id].for_turn.as_ref() == laws.current();
            if over || (child.kind == ChildKind::Spawn && !for_current) {
                expected.push(Effect::CloseChild { child_run_id: id.clone() });
            } else if !child.confirmed {
                expected.push(Effect::CreateChild { child_run_id: id.clone() });
            }
        }
        let needs_owner = laws.closing || (laws.current().is_some() && !over) || !expected.is_empty();
        let waits_for_spawn = laws.live_children().any(|(_, child)| child.kind == ChildKind::Spawn);
        assert_eq!(run.wakes(), needs_owner || (waits_for_spawn && !over), "{run:#?}");
        match (laws.end, laws.closing, laws.current()) {
            (Some(_), ..) if expected.is_empty() => expected.push(Effect::AnnounceEnd),
            (Some(_), ..) => {}
            (None, true, _) => expected.push(Effect::Settle),
            (None, false, Some(turn_id)) => expected.push(Effect::StartTurn { turn_id: turn_id.clone() }),
            (None, false, None) => {}
        }
        assert_eq!((self.machine.pending)(run), expected);
    }
}

fn frame(prev: u64, epoch: Epoch, first_seq: Seq, at: Timestamp, events: Vec<Event>) -> Frame {
    let append_id = format!("a.{first_seq}");
    Frame { v: crate::FRAME_VERSION, epoch, append_id, prev, snapshot: 0, floor: 0, first_seq, at, events }
}

fn key_of(command: &Command) -> Option<&KeyUse> {
    match command {
        Command::Accept(Accept { key, .. })
        | Command::Cancel(Cancel { key, .. })
        | Command::Close(Close { key, .. }) => key.as_ref(),
        _ => None,
    }
}

fn replayed(reply: Reply) -> Reply {
    match reply {
        Reply::Accepted { turn_id, queued, .. } => Reply::Accepted { turn_id, queued, replayed: true },
        Reply::Cancelled { turn_id, stopped, .. } => Reply::Cancelled { turn_id, stopped, replayed: true },
        Reply::Closing { initiated, .. } => Reply::Closing { initiated, replayed: true },
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: HISTORIES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_laws_and_folds_to_the_state_it_led_to(
        spec in actions::spec(),
        history in prop::collection::vec(action(), 1..COMMANDS),
    ) {
        World::live(spec, &history, SOUND);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: HISTORIES / 4, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever has happened, a close ends the run once its children have ended.
    #[test]
    fn every_run_can_be_closed(
        spec in actions::spec(),
        history in prop::collection::vec(action(), 1..COMMANDS),
    ) {
        let mut world = World::live(spec, &history, SOUND);
        world.act(&Action::Close { key: None, body: 0 });
        for child in 0..20 {
            world.act(&Action::EndChild { child, state: 2 });
        }
        world.act(&Action::Settle);
        assert!(world.run.state.is_final(), "{:#?}", world.run);
        world.laws.at_rest().unwrap();
    }
}

/// Each break shows in a history. A test that could not fail would show nothing.
#[test]
fn every_break_of_the_state_machine_is_noticed() {
    let histories = (actions::spec(), prop::collection::vec(action(), COMMANDS));
    let unnoticed: Vec<&str> = BREAKS.iter().filter(|broken| !is_noticed(broken, &histories)).map(|b| b.name).collect();
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}

fn is_noticed(broken: &Break, histories: &impl Strategy<Value = (RunSpec, Vec<Action>)>) -> bool {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    (0..HISTORIES).any(|_| {
        let (spec, history) = histories.new_tree(&mut runner).unwrap().current();
        std::panic::catch_unwind(|| World::live(spec, &history, *broken)).is_err()
    })
}
