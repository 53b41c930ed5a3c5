//! One run's journal, as its activation writes it: frames, fenced by the position of the last one.

use std::time::Duration;

use bytes::Bytes;
use hearth_journal::{Append, Error as JournalError, Journal, LogKey, Position, RunHead, SharedJournal};
use hearth_run_core::{Event, Frame, Run};
use hearth_types::{Epoch, RunId, Seq, SharedClock};

use crate::{Error, metrics};

/// Frames that one read asks for.
const READ_BATCH: usize = 256;
/// How long an append whose outcome is open is repeated before the activation gives up.
const APPEND_PATIENCE: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Frames of a journal that is read from its beginning without a look for a snapshot.
const SHORT: usize = 64;

/// A run as its journal gives it, and where that ends.
pub struct Folded {
    pub run: Run,
    pub position: Position,
    /// Where the last snapshot stands; zero for none.
    pub snapshot: Position,
}

/// Reads and folds a run's journal, from its last snapshot on; `None` when it is empty.
pub async fn read_run(journal: &dyn Journal, run_id: &RunId) -> Result<Option<Folded>, Error> {
    let mut fold = Fold { run_id, run: None, position: Position(0), snapshot: Position(0) };
    let key = LogKey::Run(run_id.clone());
    let first = journal.read(&key, Position(0), SHORT).await?;
    if first.len() == SHORT
        && let Some(from) = snapshot_before_end(journal, run_id).await?
    {
        fold.position = from;
    } else {
        for stored in first {
            fold.take(&stored)?;
        }
    }
    loop {
        let frames = journal.read(&key, fold.position, READ_BATCH).await?;
        for stored in &frames {
            fold.take(stored)?;
        }
        if frames.len() < READ_BATCH {
            let Fold { run, position, snapshot, .. } = fold;
            return Ok(run.map(|run| Folded { run, position, snapshot }));
        }
    }
}

/// The position right before the last snapshot, as the last frame names it.
async fn snapshot_before_end(journal: &dyn Journal, run_id: &RunId) -> Result<Option<Position>, Error> {
    let key = LogKey::Run(run_id.clone());
    let last = journal.last(&key).await?;
    let tail = journal.read(&key, Position(last.0.saturating_sub(1)), 1).await?;
    let Some(stored) = tail.first() else { return Ok(None) };
    let frame = decode(run_id, &stored.frame)?;
    let at = if frame.is_snapshot() { stored.position.0 } else { frame.snapshot };
    Ok((at > 0).then(|| Position(at - 1)))
}

struct Fold<'r> {
    run_id: &'r RunId,
    run: Option<Run>,
    position: Position,
    snapshot: Position,
}

impl Fold<'_> {
    fn take(&mut self, stored: &hearth_journal::StoredFrame) -> Result<(), Error> {
        let frame = decode(self.run_id, &stored.frame)?;
        self.position = stored.position;
        if frame.is_snapshot() {
            self.snapshot = stored.position;
        }
        let run = self.run_id.to_string();
        Run::fold(&mut self.run, frame).map_err(|source| Error::Fold { run, source })
    }
}

fn decode(run_id: &RunId, bytes: &[u8]) -> Result<Frame, Error> {
    Frame::decode(bytes).map_err(|source| Error::Fold { run: run_id.to_string(), source })
}

/// Visits the frames after a position, in order, and returns the position of the last one.
pub async fn each_frame(
    journal: &dyn Journal,
    run_id: &RunId,
    after: Position,
    mut visit: impl FnMut(Frame) -> Result<(), hearth_run_core::FrameError>,
) -> Result<Position, Error> {
    let key = LogKey::Run(run_id.clone());
    let mut position = after;
    loop {
        let frames = journal.read(&key, position, READ_BATCH).await?;
        let whole = frames.len() == READ_BATCH;
        for stored in frames {
            position = stored.position;
            let folded = Frame::decode(&stored.frame).and_then(&mut visit);
            folded.map_err(|source| Error::Fold { run: run_id.to_string(), source })?;
        }
        if !whole {
            return Ok(position);
        }
    }
}

/// The writing end of one activation.
pub struct Log {
    journal: SharedJournal,
    clock: SharedClock,
    run_id: RunId,
    epoch: Epoch,
    position: Position,
    snapshot: Position,
    /// Names this activation's appends apart from those of any other, of the same epoch too.
    nonce: String,
}

impl Log {
    pub fn new(
        journal: SharedJournal,
        clock: SharedClock,
        run_id: RunId,
        epoch: Epoch,
        (position, snapshot): (Position, Position),
    ) -> Self {
        let nonce = hearth_types::RunId::generate().to_string();
        Self { journal, clock, run_id, epoch, position, snapshot, nonce }
    }

    pub fn frame(&self, first_seq: Seq, events: Vec<Event>) -> Frame {
        Frame {
            v: hearth_run_core::FRAME_VERSION,
            epoch: self.epoch,
            append_id: format!("{}.{first_seq}", self.nonce),
            prev: self.position.0,
            snapshot: self.snapshot.0,
            first_seq,
            at: self.clock.now(),
            events,
        }
    }

    /// Appends a frame. An append whose outcome is unknown, or that the store could not take just
    /// now, is repeated with the identical bytes, as until its outcome is known nothing may follow it.
    pub async fn append(&mut self, frame: &Frame, head: RunHead) -> Result<(), Error> {
        let bytes = frame.encode().map_err(|source| Error::Fold { run: self.run_id.to_string(), source })?;
        let append = Append {
            key: LogKey::Run(self.run_id.clone()),
            expected: self.position,
            append_id: frame.append_id.clone(),
            frame: Bytes::from(bytes),
            head: Some(head),
        };
        let patience = tokio::time::Instant::now() + APPEND_PATIENCE;
        loop {
            match self.journal.append(append.clone()).await {
                Ok(position) => {
                    self.position = position;
                    if frame.is_snapshot() {
                        self.snapshot = position;
                    }
                    return Ok(());
                }
                Err(JournalError::Unknown { .. } | JournalError::Unavailable { .. })
                    if tokio::time::Instant::now() < patience =>
                {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                Err(error) => {
                    if let JournalError::Fenced { last } = &error
                        && *last < self.position
                    {
                        metrics::SHORTENED.inc();
                        tracing::error!(
                            run_id = %self.run_id, last = %last, acknowledged = %self.position,
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
        body: serde_json::to_value(run.head_body()).unwrap_or_default(),
    }
}
