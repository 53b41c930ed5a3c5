//! The window in which a key counts: a day, at least the last 1,024 of a run, never more than a bound.

use std::time::Duration;

use hearth_types::{Epoch, InputMode, ReplicaId, Seq, Timestamp, TurnId, limits};

use super::actions::run_spec;
use crate::{Accept, Cancel, Close, Command, Event, Frame, KeyUse, Refusal, Reply, Run, create, decide};

fn frame(first_seq: Seq, at: Timestamp, events: Vec<Event>) -> Frame {
    Frame { v: 1, epoch: Epoch(1), append_id: "a".into(), prev: 0, snapshot: 0, floor: 0, first_seq, at, events }
}

struct Used {
    run: Run,
    now: Timestamp,
}

impl Used {
    fn begin() -> Self {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let replica = ReplicaId::parse("replica-0").unwrap();
        let events = create(run_spec("run_keys", 4), TurnId::parse("turn_first").unwrap(), "go".into(), replica);
        let mut run = None;
        Run::fold(&mut run, frame(Seq(1), now, events)).unwrap();
        Self { run: run.unwrap(), now }
    }

    /// Uses the `n`th key: whether it was known.
    fn command(&mut self, n: usize) -> bool {
        let key = KeyUse { id: format!("k{n}"), digest: "d".into() };
        let turn_id = Some(TurnId::parse("turn_other").unwrap());
        let cancel = Cancel { turn_id, reason: None, key: Some(key), partial: String::new() };
        let decision = decide(&self.run, &Command::Cancel(cancel), self.now).unwrap();
        self.run.advance(&frame(self.run.seq.next(), self.now, decision.events));
        matches!(decision.reply, Reply::Cancelled { replayed: true, .. })
    }
}

#[test]
fn the_last_1024_keys_count_however_old_they_are() {
    let mut used = Used::begin();
    for n in 0..limits::KEY_WINDOW_MIN {
        assert!(!used.command(n));
    }
    used.now = used.now.plus(limits::KEY_WINDOW * 30);
    for n in 0..limits::KEY_WINDOW_MIN {
        assert!(used.command(n), "key {n} is forgotten");
    }
    assert!(!used.command(limits::KEY_WINDOW_MIN));
    assert!(!used.command(0), "past the window the oldest goes");
}

#[test]
fn more_keys_count_for_a_day_and_their_number_is_bounded() {
    let mut used = Used::begin();
    for n in 0..limits::KEY_WINDOW_MIN * 4 {
        used.command(n);
        used.now = used.now.plus(Duration::from_secs(1));
    }
    assert!(used.command(0), "a key of this day is forgotten");
    for n in 0..limits::KEY_WINDOW_MAX + 100 {
        used.command(n + 1_000_000);
    }
    assert!(used.run.keys.len() <= limits::KEY_WINDOW_MAX);
    assert_eq!(used.run.keys.len(), used.run.key_order.len());
}

#[test]
fn a_run_in_which_as_much_was_said_as_one_keeps_takes_no_more_turns_and_can_be_closed() {
    let mut used = Used::begin();
    assert_eq!(used.run.said_bytes, "go".len() as u64);
    let accept = |text: &str| {
        let turn_id = TurnId::parse("turn_next").unwrap();
        Command::Accept(Accept { turn_id, prompt: text.into(), mode: InputMode::Queue, key: None, trace: None })
    };
    let decision = decide(&used.run, &accept("more"), used.now).unwrap();
    used.run.advance(&frame(used.run.seq.next(), used.now, decision.events));
    assert_eq!(used.run.said_bytes, "gomore".len() as u64);
    used.run.said_bytes = limits::MAX_SAID_BYTES;
    used.run.queue.clear();
    assert_eq!(decide(&used.run, &accept("too much"), used.now).unwrap_err(), Refusal::TooMuchSaid);
    let close = Command::Close(Close { reason: None, key: None, partial: String::new() });
    assert!(decide(&used.run, &close, used.now).is_ok());
}
