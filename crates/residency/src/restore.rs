//! Runs on their way out of a journal and into one: what was said, in pages, and a state to begin at.

use hearth_journal::{Error as JournalError, Journal, LogKey, Position};
use hearth_run_core::{FrameError, Run};
use hearth_types::{Epoch, RunId, Seq};

use crate::Error;
use crate::history::{PAGE_BYTES, Page, append};
use crate::log::{Log, Place, decode, head};
use crate::residents::{Created, Residents};

/// Frames that one read asks for.
const FRAMES: usize = 32;
/// Tries to write a page that others write at the same time.
const TRIES: usize = 8;

/// What is still asked for of a run's events, up to one of them.
pub struct Pages<'j> {
    journal: &'j dyn Journal,
    run_id: RunId,
    through: Seq,
    told: Seq,
    page_at: Position,
    frame_at: Position,
}

impl<'j> Pages<'j> {
    pub fn new(journal: &'j dyn Journal, run_id: RunId, through: Seq) -> Self {
        Self { journal, run_id, through, told: Seq(0), page_at: Position(0), frame_at: Position(0) }
    }

    /// The next page; `None` after the one that ends at the last event.
    pub async fn next(&mut self) -> Result<Option<Page>, Error> {
        while self.told < self.through {
            if let Some(page) = self.folded().await? {
                return Ok(Some(page));
            }
            match self.written().await? {
                Written::Page(page) => return Ok(Some(page)),
                // Folded away between the two looks: the history has it now.
                Written::Behind if self.folded_meanwhile().await? => {}
                Written::Behind | Written::End => {
                    let source = FrameError::Gap { expected: self.told.next(), found: self.through };
                    return Err(Error::Fold { run: self.run_id.to_string(), source });
                }
            }
        }
        Ok(None)
    }

    async fn folded_meanwhile(&self) -> Result<bool, Error> {
        let more = self.journal.read(&LogKey::History(self.run_id.clone()), self.page_at, 1).await?;
        Ok(!more.is_empty())
    }

    async fn folded(&mut self) -> Result<Option<Page>, Error> {
        let key = LogKey::History(self.run_id.clone());
        while let Some(stored) = self.journal.read(&key, self.page_at, 1).await?.into_iter().next() {
            let page = Page::decode(&self.run_id, &stored.frame)?;
            self.page_at = stored.position;
            if page.through > self.told {
                let through = page.through.min(self.through);
                return Ok(Some(self.page(page.events, through)));
            }
        }
        Ok(None)
    }

    async fn written(&mut self) -> Result<Written, Error> {
        let key = LogKey::Run(self.run_id.clone());
        let (mut events, mut bytes, mut last) = (Vec::new(), 0, self.told);
        while last < self.through && bytes < PAGE_BYTES {
            let frames = self.journal.read(&key, self.frame_at, FRAMES).await?;
            if frames.is_empty() {
                return Ok(Written::End);
            }
            for stored in frames {
                let frame = decode(&self.run_id, &stored.frame)?;
                if frame.first_seq > last.next() {
                    return Ok(Written::Behind);
                }
                self.frame_at = stored.position;
                last = last.max(frame.last_seq());
                bytes += stored.frame.len();
                events.extend(frame.recorded());
                if bytes >= PAGE_BYTES {
                    break;
                }
            }
        }
        Ok(Written::Page(self.page(events, last.min(self.through))))
    }

    fn page(&mut self, events: Vec<hearth_run_core::Recorded>, through: Seq) -> Page {
        let told = self.told;
        let wanted = |recorded: &hearth_run_core::Recorded| {
            recorded.seq > told && recorded.seq <= through && recorded.event.is_history()
        };
        self.told = through;
        Page { v: 1, first: told.next(), through, events: events.into_iter().filter(wanted).collect() }
    }
}

enum Written {
    Page(Page),
    /// The journal begins later.
    Behind,
    End,
}

impl Residents {
    /// Writes a page of what was said in a run that has not begun here. Repeated, it changes nothing.
    pub async fn put_history(&self, run_id: &RunId, page: &Page) -> Result<(), Error> {
        let (journal, key) = (&*self.inner.journal, LogKey::History(run_id.clone()));
        let mut tries = 0;
        loop {
            let last = journal.last(&key).await?;
            let newest = journal.read(&key, Position(last.0.saturating_sub(1)), 1).await?;
            if let Some(stored) = newest.first()
                && Page::decode(run_id, &stored.frame)?.through >= page.through
            {
                return Ok(());
            }
            match append(journal, &key, last, page).await {
                Ok(_) => return Ok(()),
                Err(Error::Journal(JournalError::Fenced { .. } | JournalError::Unknown { .. })) if tries < TRIES => {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Begins a run at a state that was taken elsewhere. Nobody has it then: one that is mid-turn is taken up as after a
    /// crash, and a parked one when somebody calls.
    pub async fn restore(&self, run: Run) -> Result<Created, Error> {
        if self.is_draining() {
            return Err(Error::Draining);
        }
        if !run.state.is_final() {
            self.take_seat(&run.spec).await?;
        }
        let inner = &self.inner;
        let run_id = run.spec.run_id.clone();
        let mut log = Log::new(inner.journal.clone(), inner.clock.clone(), run_id.clone(), Epoch(0), Place::default());
        let frame = log.frame(run.seq.next(), vec![log.snapshot_of(&run)]);
        let mut folded = None;
        Run::fold(&mut folded, frame.clone()).map_err(|source| Error::Fold { run: run_id.to_string(), source })?;
        let Some(folded) = folded else { return Err(Error::NotFound) };
        match log.append(&frame, head(&folded)).await {
            Ok(_) => Ok(Created::New),
            Err(Error::Journal(JournalError::Fenced { .. })) => Ok(Created::Existing(self.look(&run_id).await?.0)),
            Err(error) => Err(error),
        }
    }
}
