//! Where programs run: on threads of this process, or in a process of their own.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::bounds::CodeBounds;
use super::pool::Place;
use super::record::{Answered, Record};
use super::vm::{self, Event, Gone, Launch, Live, Program, Tell, Watchdog};
use super::worker::{CodeWorker, Workers};
use crate::Error;

/// Events that may wait for the turn; then the program does.
const EVENTS: usize = 64;

/// A turn's hold on its program. Dropping it ends the program soon.
pub(super) trait Hold: Send + Sync {
    /// Hands over the result that the program waits for. Whether it does.
    fn answer(&self, answered: Arc<Answered>) -> bool;

    /// Does what can be done about a program that cannot be stopped.
    fn abandon(&self);
}

/// A program in memory.
pub(super) struct Running {
    /// Ends without [`Event::Ended`] where the program died with its process.
    pub events: mpsc::Receiver<Event>,
    pub hold: Box<dyn Hold>,
    /// The id of its place.
    pub place: u64,
}

pub(super) enum Hosting {
    Threads(Watchdog),
    Process(Workers),
}

impl Hosting {
    pub fn new(worker: Option<CodeWorker>, bounds: &Arc<CodeBounds>) -> Self {
        match worker {
            Some(worker) => Self::Process(Workers::new(worker, bounds.clone())),
            None => Self::Threads(Watchdog::new(bounds.unresponsive)),
        }
    }

    /// Whether a program's death leaves this process alive, so that it can be tried again `alone`.
    pub fn survives(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    /// Starts the program from its top. `alone`: it shares its process with no other.
    pub fn start(
        &self,
        program: &Arc<Program>,
        record: Record,
        place: Place,
        bounds: &Arc<CodeBounds>,
        alone: bool,
    ) -> Result<Running, Error> {
        let (sender, events) = mpsc::channel(EVENTS);
        let id = place.id;
        let hold: Box<dyn Hold> = match self {
            Self::Threads(watchdog) => {
                let tell: Tell = Arc::new(move |event| sender.blocking_send(event).map_err(|_| Gone));
                let launch = Launch { program: program.clone(), record, bounds: bounds.clone(), tell };
                Box::new(vm::launch(launch, watchdog, place)?)
            }
            Self::Process(workers) => Box::new(workers.start(program.clone(), &record, place, sender, alone)?),
        };
        Ok(Running { events, hold, place: id })
    }
}

impl Hold for Live {
    fn answer(&self, answered: Arc<Answered>) -> bool {
        Self::answer(self, answered)
    }

    fn abandon(&self) {
        tracing::warn!("a program is inside one built-in operation that cannot be stopped; its thread goes on");
    }
}
