//! Turns whose end somebody waited for and did not hear: whoever waits at another replica does so for a moment, and then
//! asks again. A busy resident has ended many more turns by then than its state holds, and to read a turn in the
//! journal is to read all before it.

use std::collections::{BTreeSet, VecDeque};

use hearth_run_core::Run;
use hearth_types::{Envelope, TurnId};

/// Envelopes at the most, and the bytes of their outputs.
const MOST: usize = 64;
const MOST_BYTES: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Missed {
    /// Turns that go on.
    waited_for: BTreeSet<TurnId>,
    /// In the order of their ends.
    ended: VecDeque<Envelope>,
}

impl Missed {
    /// Somebody went away who had waited for the turn.
    pub(crate) fn left(&mut self, turn_id: TurnId) {
        self.waited_for.insert(turn_id);
    }

    /// Keeps what has ended meanwhile.
    pub(crate) fn keep(&mut self, run: &Run) {
        let ended = &mut self.ended;
        self.waited_for.retain(|turn_id| match run.envelope(turn_id, "") {
            Some(envelope) if envelope.outcome.is_none() => true,
            Some(envelope) => {
                ended.push_back(envelope);
                false
            }
            None => false,
        });
        let mut bytes: usize = ended.iter().map(|envelope| envelope.output.len()).sum();
        while ended.len() > MOST || bytes > MOST_BYTES {
            bytes -= ended.pop_front().map_or(bytes, |envelope| envelope.output.len());
        }
    }

    pub(crate) fn find(&self, turn_id: &TurnId, run: &Run) -> Option<Envelope> {
        let kept = self.ended.iter().find(|envelope| envelope.turn_id.as_ref() == Some(turn_id))?;
        let state = if run.state.is_final() { run.state } else { kept.state };
        Some(Envelope { state, ..kept.clone() })
    }
}
