//! The thread of a program, and the hold on it.

use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use super::host::{Host, Ties};
use super::meter::{Control, Meter, Stop};
use super::program::{self, Program};
use super::{Event, Tell, Watchdog};
use crate::code::CodeBounds;
use crate::code::record::{Answered, Record};
use crate::{Error, ErrorKind};

/// Stack beyond the program's own bound: for the interpreter's and the host's own frames, among them
/// a JSON parser that goes 128 levels deep.
const NATIVE_STACK_BYTES: usize = 1 << 20;

/// What a program starts with.
pub(in crate::code) struct Launch {
    pub program: Arc<Program>,
    pub record: Record,
    pub bounds: Arc<CodeBounds>,
    pub tell: Tell,
}

/// A live program on a thread of this process. Dropping this ends it soon.
#[derive(Debug)]
pub(in crate::code) struct Live {
    control: Arc<Control>,
    answers: SyncSender<Arc<Answered>>,
}

impl Live {
    /// Hands over the result that the program waits for. Whether it does.
    pub fn answer(&self, answered: Arc<Answered>) -> bool {
        self.answers.try_send(answered).is_ok()
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The flag first: then the sender goes, which wakes the program where it waits.
        self.control.cancel();
    }
}

/// Runs a program from its top. Its thread drops `guard` at its end, when its memory is free.
pub(in crate::code) fn launch(launch: Launch, watchdog: &Watchdog, guard: impl Send + 'static) -> Result<Live, Error> {
    let control = Arc::new(Control::default());
    let (sender, answers) = sync_channel(1);
    let live = Live { control: control.clone(), answers: sender };
    let watchdog = watchdog.clone();
    std::thread::Builder::new()
        .name("hearth-code".to_owned())
        .stack_size(launch.bounds.stack_bytes + NATIVE_STACK_BYTES)
        .spawn(move || {
            let Launch { program, record, bounds, tell } = launch;
            let ending = ended(std::panic::catch_unwind(AssertUnwindSafe(|| {
                let watch = watchdog.watch(control.clone(), tell.clone());
                let meter = Rc::new(Meter::new(control, bounds.cpu));
                let ties = Ties { answers, tell: tell.clone(), watch };
                program::run(&program, Rc::new(Host::new(meter, record, ties, &program, bounds.clone())), &bounds)
            })));
            drop(guard);
            if let Some(ending) = ending {
                // Nobody listens any more where the turn was dropped just now.
                tell(ending).ok();
            }
        })
        .map_err(|error| Error {
            kind: ErrorKind::Transient,
            message: "the machine has no thread for another program at the moment; try again".to_owned(),
            source: Some(Box::new(error)),
        })?;
    Ok(live)
}

fn ended(outcome: std::thread::Result<Result<String, Stop>>) -> Option<Event> {
    let result = match outcome {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(Stop::Failed(error))) => Err(error),
        Ok(Err(Stop::Unwanted)) => return None,
        Err(_) => {
            Err(Error::new(ErrorKind::Agent, "the interpreter failed in a way it should not; the log has the details"))
        }
    };
    Some(Event::Ended(result.map_err(Into::into)))
}
