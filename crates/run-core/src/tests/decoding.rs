//! Whatever bytes a frame has, reading it is refused or gives a frame that can be folded; nothing panics.

use hearth_types::{Epoch, ReplicaId, Seq, Timestamp, TurnId};
use proptest::prelude::*;

use super::actions::run_spec;
use crate::{Event, Frame, Mark, Run, create};

/// Frames of each kind of content, as they are written.
fn written() -> Vec<Vec<u8>> {
    let replica = ReplicaId::parse("replica-0").unwrap();
    let turn_id = TurnId::parse("turn_first").unwrap();
    let first = create(run_spec("run_decoded", 4), turn_id.clone(), "go".into(), replica.clone());
    let mut run = None;
    let mut frames = Vec::new();
    let mut write = |run: &mut Option<Run>, events: Vec<Event>| {
        let first_seq = run.as_ref().map_or(Seq(1), |run: &Run| run.seq.next());
        let at = Timestamp::from_millis(1_700_000_000_000);
        let frame = Frame {
            v: 1,
            epoch: Epoch(1),
            append_id: "a".into(),
            prev: 3,
            snapshot: 2,
            floor: 1,
            first_seq,
            at,
            events,
        };
        frames.push(frame.encode().unwrap());
        Run::fold(run, frame).unwrap();
    };
    write(&mut run, first);
    write(
        &mut run,
        vec![
            Event::Text { turn_id: turn_id.clone(), text: "said".into() },
            Event::TurnCancelled { turn_id, reason: Some("enough".into()) },
        ],
    );
    let snapshot = Box::new(run.clone().unwrap());
    write(&mut run, vec![Event::Snapshot { run: snapshot, earlier: vec![Mark { seq: Seq(1), position: 1 }] }]);
    write(&mut run, vec![Event::Activated { epoch: Epoch(2), replica }]);
    frames
}

fn read_and_fold(bytes: &[u8]) {
    let Ok(frame) = Frame::decode(bytes) else { return };
    assert!(frame.last_seq() >= frame.first_seq || frame.events.is_empty());
    let mut run = None;
    // A frame that is out of place is refused; one that is not is folded.
    drop(Run::fold(&mut run, frame.clone()));
    drop(Run::fold(&mut run, frame));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        read_and_fold(&bytes);
    }

    #[test]
    fn a_changed_frame_is_refused_or_read(
        which in any::<proptest::sample::Index>(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..4u8), 1..6),
    ) {
        let frames = written();
        let mut bytes = frames[which.index(frames.len())].clone();
        for (at, byte, kind) in changes {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => bytes.truncate(at.max(1)),
                // What a flipped digit does, and what makes numbers huge.
                _ => bytes[at] = b'0' + byte % 10,
            }
        }
        read_and_fold(&bytes);
    }

    #[test]
    fn any_number_in_a_frame_is_refused_or_read(
        which in any::<proptest::sample::Index>(),
        place in any::<proptest::sample::Index>(),
        number in prop_oneof![Just(u64::MAX), Just(u64::MAX - 1), Just(i64::MAX as u64), any::<u64>()],
    ) {
        let frames = written();
        let text = String::from_utf8(frames[which.index(frames.len())].clone()).unwrap();
        let starts: Vec<usize> =
            text.char_indices().filter(|(at, c)| *c == ':' && text[at + 1..].starts_with(|c: char| c.is_ascii_digit())).map(|(at, _)| at + 1).collect();
        let at = starts[place.index(starts.len())];
        let end = at + text[at..].find(|c: char| !c.is_ascii_digit()).unwrap();
        read_and_fold(format!("{}{number}{}", &text[..at], &text[end..]).as_bytes());
    }
}
