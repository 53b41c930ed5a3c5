//! What was said and done in a run, from its beginning: the folded state does not hold it. It is in the
//! run's history as far as the journal was folded, and in the journal from there on.

use std::ops::ControlFlow;

use bytes::Bytes;
use hearth_journal::{Append, Journal, LogKey, Position};
use hearth_models::{Message, MessageRole};
use hearth_run_core::{EndedTurn, Event, Frame, FrameError, Recorded, Run};
use hearth_types::{Envelope, RunId, Seq, Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::log::{READ_BATCH, decode};
use crate::session::{Part, compressed};
use crate::{Error, metrics};

/// Pages of a history that one read asks for.
const PAGES: usize = 16;
/// A page is full at so many bytes of frames that it takes the place of.
pub(crate) const PAGE_BYTES: usize = 512 * 1024;

/// The events of many frames that readers still ask for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page {
    pub v: u32,
    /// The events that it stands for, whether it holds them or not.
    pub first: Seq,
    pub through: Seq,
    pub events: Vec<Recorded>,
}

impl Page {
    pub(crate) fn decode(run_id: &RunId, bytes: &[u8]) -> Result<Self, Error> {
        let damaged = |error| Error::Fold { run: run_id.to_string(), source: FrameError::Malformed(error) };
        let page: Self = hearth_types::from_own_json(bytes).map_err(damaged)?;
        if page.first > page.through || page.through.0 > u64::MAX >> 1 {
            return Err(damaged(serde::de::Error::custom("a page of the history counts wrongly")));
        }
        Ok(page)
    }
}

/// Visits what was said and done, in order, until the visitor has enough. Of what was folded away the
/// events that [`Event::is_history`] names are left, of the rest all.
pub async fn each_event(
    journal: &dyn Journal,
    run_id: &RunId,
    mut visit: impl FnMut(Recorded) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut told = Seq(0);
    let (mut page_at, mut frame_at) = (Position(0), Position(0));
    loop {
        let before = told;
        if each_page(journal, run_id, &mut page_at, &mut told, &mut visit).await?.is_break() {
            return Ok(());
        }
        match each_frame(journal, run_id, &mut frame_at, &mut told, &mut visit).await? {
            None => return Ok(()),
            // Folded away between the two looks: the history has it now.
            Some(_) if told > before => {}
            Some(found) => {
                let source = FrameError::Gap { expected: told.next(), found };
                return Err(Error::Fold { run: run_id.to_string(), source });
            }
        }
    }
}

async fn each_page(
    journal: &dyn Journal,
    run_id: &RunId,
    after: &mut Position,
    told: &mut Seq,
    visit: &mut impl FnMut(Recorded) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, Error> {
    let key = LogKey::History(run_id.clone());
    loop {
        let pages = journal.read(&key, *after, PAGES).await?;
        let whole = pages.len() == PAGES;
        for stored in pages {
            let page = Page::decode(run_id, &stored.frame)?;
            *after = stored.position;
            for recorded in page.events {
                if recorded.seq > *told && visit(recorded).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            *told = page.through.max(*told);
        }
        if !whole {
            return Ok(ControlFlow::Continue(()));
        }
    }
}

/// The number of the first event that does not follow what was told, if there is one.
async fn each_frame(
    journal: &dyn Journal,
    run_id: &RunId,
    after: &mut Position,
    told: &mut Seq,
    visit: &mut impl FnMut(Recorded) -> ControlFlow<()>,
) -> Result<Option<Seq>, Error> {
    let key = LogKey::Run(run_id.clone());
    loop {
        let frames = journal.read(&key, *after, READ_BATCH).await?;
        let whole = frames.len() == READ_BATCH;
        for stored in frames {
            let frame = decode(run_id, &stored.frame)?;
            if frame.first_seq > told.next() {
                return Ok(Some(frame.first_seq));
            }
            *after = stored.position;
            for recorded in frame.recorded() {
                if recorded.seq <= *told {
                    continue;
                }
                *told = recorded.seq;
                if visit(recorded).is_break() {
                    return Ok(None);
                }
            }
        }
        if !whole {
            return Ok(None);
        }
    }
}

/// Writes into the history what the frames before `end` say and it does not hold yet. Others may do the
/// same at the same time: what they write is the same, and the fence lets one of them.
pub(crate) async fn extend(journal: &dyn Journal, run_id: &RunId, end: Position) -> Result<(), Error> {
    let (own, log) = (LogKey::History(run_id.clone()), LogKey::Run(run_id.clone()));
    let mut last = journal.last(&own).await?;
    let newest = journal.read(&own, Position(last.0.saturating_sub(1)), 1).await?;
    let mut through = match newest.first() {
        Some(stored) => Page::decode(run_id, &stored.frame)?.through,
        None => Seq(0),
    };
    let mut page = Page { v: 1, first: through.next(), through, events: Vec::new() };
    let (mut bytes, mut after) = (0, Position(0));
    loop {
        let frames = journal.read(&log, after, READ_BATCH).await?;
        // Also of a log that was folded up to there already, whose frames all come after.
        let ends = frames.len() < READ_BATCH || frames.last().is_some_and(|last| last.position >= end);
        for stored in frames.into_iter().take_while(|stored| stored.position < end) {
            after = stored.position;
            let frame = decode(run_id, &stored.frame)?;
            if frame.last_seq() <= through {
                continue;
            }
            if frame.first_seq > through.next() {
                let source = FrameError::Gap { expected: through.next(), found: frame.first_seq };
                return Err(Error::Fold { run: run_id.to_string(), source });
            }
            through = frame.last_seq();
            bytes += stored.frame.len();
            page.through = through;
            page.events.extend(frame.recorded().filter(|recorded| recorded.event.is_history()));
            if bytes >= PAGE_BYTES {
                last = append(journal, &own, last, &page).await?;
                page = Page { v: 1, first: through.next(), through, events: Vec::new() };
                bytes = 0;
            }
        }
        if ends {
            break;
        }
    }
    if bytes > 0 {
        append(journal, &own, last, &page).await?;
    }
    Ok(())
}

pub(crate) async fn append(
    journal: &dyn Journal,
    key: &LogKey,
    last: Position,
    page: &Page,
) -> Result<Position, Error> {
    let encoded = serde_json::to_vec(page)
        .map_err(|error| Error::Fold { run: key.to_string(), source: FrameError::Malformed(error) })?;
    let append = Append {
        key: key.clone(),
        expected: last,
        append_id: format!("{}-{}", page.first, page.through),
        frame: Bytes::from(encoded),
        head: None,
        floor: Position(0),
    };
    Ok(journal.append(append).await?)
}

/// The envelope of a turn that ended too long ago to be in the folded state, or that never started.
/// `None`: the run knows no such turn, or it has not ended.
pub async fn ended_turn(journal: &dyn Journal, run: &Run, turn_id: &TurnId) -> Result<Option<Envelope>, Error> {
    metrics::TURN_LOOKUPS.inc();
    let mut followed = Followed::new(turn_id);
    let mut found = None;
    each_event(journal, &run.spec.run_id, |Recorded { at, event, .. }| {
        found = followed.see(at, event);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
    .await?;
    Ok(match found {
        Some(turn) => run.ended_envelope(&turn),
        None if followed.accepted && run.state.is_final() => Some(run.never_started(turn_id)),
        None => None,
    })
}

/// The envelope of a turn that this frame ends; `running` is the same turn's from before.
pub(crate) fn ended_by(frame: Frame, turn_id: &TurnId, running: &Envelope) -> Option<Envelope> {
    let mut followed = Followed::new(turn_id);
    let turn = frame.recorded().find_map(|Recorded { at, event, .. }| followed.see(at, event))?;
    Some(Envelope {
        state: turn.state,
        outcome: Some(turn.outcome),
        output: turn.output.unwrap_or_default(),
        truncated: turn.truncated,
        error: turn.error,
        blocker: turn.blocker,
        ..running.clone()
    })
}

/// One turn through the events of its run.
struct Followed<'a> {
    turn_id: &'a TurnId,
    accepted: bool,
    started_at: Option<Timestamp>,
    text: String,
}

impl<'a> Followed<'a> {
    fn new(turn_id: &'a TurnId) -> Self {
        Self { turn_id, accepted: false, started_at: None, text: String::new() }
    }

    /// The turn, once it has ended.
    fn see(&mut self, at: Timestamp, event: Event) -> Option<EndedTurn> {
        if event.turn_id() != Some(self.turn_id) {
            return None;
        }
        match event {
            Event::TurnAccepted { .. } => self.accepted = true,
            Event::TurnStarted { .. } => self.started_at = Some(at),
            Event::Text { text: step, .. } => self.text = step,
            Event::StepFinished { .. } => self.text.clear(),
            Event::TurnEnded { turn_id, outcome, output, truncated, error, blocker, state } => {
                return Some(EndedTurn {
                    turn_id,
                    outcome,
                    output: Some(output.unwrap_or_else(|| std::mem::take(&mut self.text))),
                    truncated,
                    error,
                    blocker,
                    state,
                    started_at: self.started_at.unwrap_or(at),
                    ended_at: at,
                });
            }
            _ => {}
        }
        None
    }
}

/// What was asked and answered, as models are told it.
#[derive(Default)]
pub(crate) struct Conversation {
    messages: Vec<Message>,
}

impl Conversation {
    /// Adds what a run has said, or a part of it.
    pub async fn read(&mut self, journal: &dyn Journal, part: &Part) -> Result<(), Error> {
        let mut prompts = std::collections::HashMap::new();
        let mut text = String::new();
        let told = |said: String| Value::String(if part.compress { compressed(said) } else { said });
        part.each_event(journal, |recorded| {
            match recorded.event {
                Event::TurnAccepted { turn_id, prompt, .. } => {
                    prompts.insert(turn_id, prompt);
                }
                Event::TurnStarted { turn_id } => {
                    let prompt = prompts.remove(&turn_id).unwrap_or_default();
                    self.messages.push(Message { role: MessageRole::User, content: told(prompt) });
                    text.clear();
                }
                Event::Text { text: step, .. } => text = step,
                Event::TurnEnded { output, .. } => {
                    let output = output.unwrap_or_else(|| std::mem::take(&mut text));
                    self.messages.push(Message { role: MessageRole::Assistant, content: told(output) });
                }
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .await
    }

    /// A prompt that was not answered: the turn that it began is another's, or was never ended.
    pub fn end_run(&mut self) {
        if self.messages.last().is_some_and(|message| message.role == MessageRole::User) {
            self.messages.pop();
        }
    }

    pub fn before_the_current_turn(mut self) -> Vec<Message> {
        self.end_run();
        self.messages
    }
}

#[cfg(test)]
mod tests {
    use hearth_journal::MemoryJournal;
    use hearth_run_core::FRAME_VERSION;
    use hearth_types::Epoch;

    use super::*;

    /// A log of so many frames with an event each, its floor at one of them.
    async fn log(run_id: &RunId, frames: u64, floor: u64) -> MemoryJournal {
        let journal = MemoryJournal::default();
        let mut last = Position(0);
        for first_seq in 1..=frames {
            let floor = Position(if first_seq == frames { floor } else { 0 });
            let frame = Frame {
                v: FRAME_VERSION,
                epoch: Epoch(1),
                append_id: first_seq.to_string(),
                prev: last.0,
                snapshot: 0,
                floor: floor.0,
                first_seq: Seq(first_seq),
                at: Timestamp::from_millis(1),
                events: vec![Event::TurnStarted { turn_id: TurnId::derive(&["t", &first_seq.to_string()]) }],
            };
            let append = Append {
                key: LogKey::Run(run_id.clone()),
                expected: last,
                append_id: frame.append_id.clone(),
                frame: frame.encode().unwrap().into(),
                head: None,
                floor,
            };
            last = journal.append(append).await.unwrap();
        }
        journal
    }

    async fn told(journal: &MemoryJournal, run_id: &RunId) -> u64 {
        let pages = journal.read(&LogKey::History(run_id.clone()), Position(0), 10).await.unwrap();
        pages.last().map_or(0, |page| Page::decode(run_id, &page.frame).unwrap().through.0)
    }

    #[tokio::test]
    async fn a_history_ends_where_it_was_to_end_however_long_the_log_is() {
        let run_id = RunId::generate();
        let frames = 3 * READ_BATCH as u64;
        let journal = log(&run_id, frames, 0).await;
        for end in [2, READ_BATCH as u64 + 1, READ_BATCH as u64 + 2, frames, frames + 5] {
            extend(&journal, &run_id, Position(end)).await.unwrap();
            assert_eq!(told(&journal, &run_id).await, (end - 1).min(frames));
        }
    }

    #[tokio::test]
    async fn a_log_that_was_folded_as_far_already_is_not_looked_through_for_ever() {
        let run_id = RunId::generate();
        let frames = 3 * READ_BATCH as u64;
        let journal = log(&run_id, frames, 10).await;
        for end in [5, 10] {
            extend(&journal, &run_id, Position(end)).await.unwrap();
            assert_eq!(told(&journal, &run_id).await, 0, "there is nothing before it");
        }
    }
}
