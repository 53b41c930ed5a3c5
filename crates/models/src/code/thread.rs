//! The thread of a program, and the turn's hold on it.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::sync::mpsc;

use super::host::{Event, Host};
use super::meter::{Control, Meter, Stop};
use super::pool::Place;
use super::program::{self, Program};
use super::random::Random;
use super::record::{Answered, Record};
use crate::{Error, ErrorKind};

/// Stack beyond the program's own bound: for the interpreter's and the host's own frames, among them
/// a JSON parser that goes 128 levels deep.
const NATIVE_STACK_BYTES: usize = 1 << 20;

/// Events that may wait for the turn; then the program does.
const EVENTS: usize = 64;

/// A live program. Dropping this ends its thread soon.
#[derive(Debug)]
pub(super) struct Running {
    pub control: Arc<Control>,
    pub events: mpsc::Receiver<Event>,
    /// Absent while the program is parked: the pool has it then.
    pub answers: Option<SyncSender<Arc<Answered>>>,
    pub place: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.control.cancel();
    }
}

struct Job {
    program: Arc<Program>,
    record: Record,
    control: Arc<Control>,
    answers: Receiver<Arc<Answered>>,
    events: mpsc::Sender<Event>,
    place: Place,
}

/// Starts the program from its top.
pub(super) fn start(
    program: Arc<Program>,
    record: Record,
    place: Place,
    bounds: &super::CodeBounds,
) -> Result<Running, Error> {
    let control = Arc::new(Control::default());
    let (answer_sender, answers) = sync_channel(1);
    let (events, event_receiver) = mpsc::channel(EVENTS);
    let id = place.id;
    let job = Job { program, record, control: control.clone(), answers, events, place };
    let bounds = bounds.clone();
    std::thread::Builder::new()
        .name("hearth-code".to_owned())
        .stack_size(bounds.stack_bytes + NATIVE_STACK_BYTES)
        .spawn(move || job.run(bounds))
        .map_err(|error| Error {
            kind: ErrorKind::Transient,
            message: "the machine has no thread for another program at the moment; try again".to_owned(),
            source: Some(Box::new(error)),
        })?;
    Ok(Running { control, events: event_receiver, answers: Some(answer_sender), place: id })
}

impl Job {
    fn run(self, bounds: super::CodeBounds) {
        let Self { program, record, control, answers, events, place } = self;
        let told = events.clone();
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(move || {
            let meter = Rc::new(Meter::new(control, bounds.cpu));
            let random = Random::from_hex(&program.seed);
            let host = Host::new(meter, record, (answers, events), program.started_at, random, bounds.clone());
            program::run(&program, Rc::new(host), &bounds)
        }));
        let ended = match outcome {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(Stop::Failed(error))) => Err(error),
            Ok(Err(Stop::Unwanted)) => return drop(place),
            Err(_) => Err(Error::new(
                ErrorKind::Agent,
                "the interpreter failed in a way it should not; the log has the details",
            )),
        };
        drop(place);
        // Nobody listens any more where the turn was dropped just now.
        told.blocking_send(Event::Ended(ended)).ok();
    }
}
