//! One run's journal, as its activation writes it: frames, fenced by the position of the last one.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use hearth_journal::{Append, Error as JournalError, Journal, LogKey, Position, RawJson, RunHead, SharedJournal};
use hearth_run_core::{Event, Frame, Mark, Run};
use hearth_types::{Epoch, RunId, Seq, SharedClock};

use crate::{Error, metrics};

/// Frames that one read asks for.
pub(crate) const READ_BATCH: usize = 256;
/// How long an append whose outcome is open is repeated before the activation gives up.
const APPEND_PATIENCE: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// A run as its journal gives it, and where that ends.
pub struct Folded {
    pub run: Run,
    pub place: Place,
}

/// Where a journal stands, as its last frame and its snapshots say.
#[derive(Debug, Clone, Default)]
pub struct Place {
    pub position: Position,
    /// The last snapshot; zero for none.
    pub snapshot: Position,
    /// Where reading begins.
    pub floor: Position,
    /// The snapshots that reading may begin at, oldest first.
    pub marks: VecDeque<Mark>,
}

/// Reads and folds a run's journal, from its last snapshot on; `None` when it is empty.
pub async fn read_run(journal: &dyn Journal, run_id: &RunId) -> Result<Option<Folded>, Error> {
    let key = LogKey::Run(run_id.clone());
    let last = journal.last(&key).await?;
    let mut position = Position(last.0.saturating_sub(1));
    // The last frame says where the last snapshot is.
    if let Some(tail) = journal.read(&key, position, 1).await?.first() {
        let frame = decode(run_id, &tail.frame)?;
        if !frame.is_snapshot() && frame.prev > 0 {
            position = Position(frame.snapshot.saturating_sub(1));
        }
    }
    let mut run = None;
    let mut place = Place { position, ..Place::default() };
    loop {
        let frames = journal.read(&key, place.position, READ_BATCH).await?;
        for stored in &frames {
            let frame = decode(run_id, &stored.frame)?;
            place.position = stored.position;
            place.floor = Position(frame.floor);
            if let Some(Event::Snapshot { earlier, .. }) = frame.events.first() {
                place.snapshot = stored.position;
                place.marks = earlier.iter().copied().collect();
                place.marks.push_back(Mark { seq: frame.first_seq, position: stored.position.0 });
            }
            Run::fold(&mut run, frame).map_err(|source| Error::Fold { run: run_id.to_string(), source })?;
        }
        if frames.len() < READ_BATCH {
            return Ok(run.map(|run| Folded { run, place }));
        }
    }
}

pub(crate) fn decode(run_id: &RunId, bytes: &[u8]) -> Result<Frame, Error> {
    Frame::decode(bytes).map_err(|source| Error::Fold { run: run_id.to_string(), source })
}

/// The writing end of one activation.
pub struct Log {
    journal: SharedJournal,
    clock: SharedClock,
    run_id: RunId,
    epoch: Epoch,
    place: Place,
    /// Names this activation's appends apart from those of any other, of the same epoch too.
    nonce: String,
}

impl Log {
    pub fn new(journal: SharedJournal, clock: SharedClock, run_id: RunId, epoch: Epoch, place: Place) -> Self {
        let nonce = hearth_types::RunId::generate().to_string();
        Self { journal, clock, run_id, epoch, place, nonce }
    }

    /// The snapshot that reading may begin at once `kept` events stay before the end at `seq`, if that is
    /// above the floor: what is before it is to be folded away.
    pub fn foldable(&self, seq: Seq, kept: u64) -> Option<Mark> {
        let old_enough = |mark: &&Mark| mark.seq.0.saturating_add(kept) <= seq.0;
        let mark = self.place.marks.iter().rev().find(old_enough)?;
        (mark.position > self.place.floor.0).then_some(*mark)
    }

    /// Lets the frames from the next one on say that reading begins at this snapshot.
    pub fn raise_floor(&mut self, floor: Position) {
        self.place.floor = self.place.floor.max(floor);
        while self.place.marks.front().is_some_and(|mark| mark.position < self.place.floor.0) {
            self.place.marks.pop_front();
        }
    }

    /// The state as a snapshot.
    pub fn snapshot_of(&self, run: &Run) -> Event {
        Event::Snapshot { run: Box::new(run.clone()), earlier: self.place.marks.iter().copied().collect() }
    }

    pub fn frame(&self, first_seq: Seq, events: Vec<Event>) -> Frame {
        Frame {
            v: hearth_run_core::FRAME_VERSION,
            epoch: self.epoch,
            append_id: format!("{}.{first_seq}", self.nonce),
            prev: self.place.position.0,
            snapshot: self.place.snapshot.0,
            floor: self.place.floor.0,
            first_seq,
            at: self.clock.now(),
            events,
        }
    }

    /// Appends a frame. An append whose outcome is unknown, or that the store could not take just
    /// now, is repeated with the identical bytes, as until its outcome is known nothing may follow it.
    /// Answers what it wrote.
    pub async fn append(&mut self, frame: &Frame, head: RunHead) -> Result<Bytes, Error> {
        let encoded = frame.encode().map_err(|source| Error::Fold { run: self.run_id.to_string(), source })?;
        let bytes = Bytes::from(encoded);
        let append = Append {
            key: LogKey::Run(self.run_id.clone()),
            expected: self.place.position,
            append_id: frame.append_id.clone(),
            frame: bytes.clone(),
            head: Some(head),
            floor: Position(frame.floor),
        };
        let patience = tokio::time::Instant::now() + APPEND_PATIENCE;
        loop {
            match self.journal.append(append.clone()).await {
                Ok(position) => {
                    self.place.position = position;
                    if frame.is_snapshot() {
                        self.place.snapshot = position;
                        self.place.marks.push_back(Mark { seq: frame.first_seq, position: position.0 });
                    }
                    return Ok(bytes);
                }
                Err(JournalError::Unknown { .. } | JournalError::Unavailable { .. })
                    if tokio::time::Instant::now() < patience =>
                {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => {
                    if let JournalError::Fenced { last } = &error
                        && *last < self.place.position
                    {
                        metrics::SHORTENED.inc();
                        tracing::error!(
                            run_id = %self.run_id, last = %last, acknowledged = %self.place.position,
                            "a journal is shorter than what it acknowledged: frames are lost"
                        );
                    }
                    return Err(error.into());
                }
            }
        }
    }
}

/// The index row of a run.
pub fn head(run: &Run) -> RunHead {
    let spec = &run.spec;
    RunHead {
        run_id: spec.run_id.clone(),
        tenant: spec.tenant.clone(),
        subject: spec.subject.clone(),
        agent: spec.agent.name.clone(),
        state: run.state,
        root_run_id: spec.root_run_id.clone(),
        parent_run_id: spec.parent.as_ref().map(|parent| parent.run_id.clone()),
        session_id: spec.session_id.clone(),
        resident: spec.interactive,
        created_at: run.created_at,
        wake: run.wakes(),
        due_at: run.due_at(),
        body: RawJson::of(&run.head_body()).unwrap_or_else(|_| serde_json::Value::Null.into()),
    }
}
