//! When a program must stop, and why.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rquickjs::{Ctx, Persistent, String as JsString};
use rustix::time::{ClockId, clock_gettime};

use crate::{Error, ErrorKind};

/// What the thread of a program shares with whoever ends it and with the watchdog.
#[derive(Debug, Default)]
pub(super) struct Control {
    cancelled: AtomicBool,
    beats: AtomicU64,
}

impl Control {
    /// Ends the program at the interpreter's next look.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    /// Grows with every look of the interpreter at its meter.
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }
}

/// Why a program ends before its end.
#[derive(Debug)]
pub(super) enum Stop {
    /// Nobody waits for it any more, or it made room for another.
    Unwanted,
    Failed(Error),
}

/// Bytes of the interpreter's memory that are kept for the exception which stops the program: where
/// memory is full that exception could not be made, and the interpreter would run on or abort.
const BALLAST_BYTES: usize = 256 << 10;

/// Lives on the program's thread. The interpreter asks it every few thousand operations.
pub(super) struct Meter {
    control: Arc<Control>,
    cpu: Duration,
    since: Cell<Duration>,
    stop: RefCell<Option<Stop>>,
    ballast: RefCell<Option<Persistent<JsString<'static>>>>,
}

impl Meter {
    pub fn new(control: Arc<Control>, cpu: Duration) -> Self {
        let since = Cell::new(thread_cpu());
        Self { control, cpu, since, stop: RefCell::new(None), ballast: RefCell::new(None) }
    }

    pub fn load_ballast(&self, ctx: &Ctx<'_>) -> rquickjs::Result<()> {
        let text = JsString::from_str(ctx.clone(), &"-".repeat(BALLAST_BYTES))?;
        self.ballast.replace(Some(Persistent::save(ctx, text)));
        Ok(())
    }

    /// Whether the interpreter has no room for the ballast a second time.
    pub fn memory_is_full(&self, ctx: &Ctx<'_>) -> bool {
        let full = JsString::from_str(ctx.clone(), &"-".repeat(BALLAST_BYTES)).is_err();
        if full {
            drop(ctx.catch());
        }
        full
    }

    /// Must have happened when the interpreter is freed.
    pub fn drop_ballast(&self) {
        self.ballast.take();
    }

    /// Starts the processor time anew, after a call.
    pub fn restart(&self) {
        self.since.set(thread_cpu());
    }

    /// The interpreter's question: whether to end the program.
    pub fn interrupts(&self) -> bool {
        self.control.beats.fetch_add(1, Ordering::Relaxed);
        if self.control.cancelled.load(Ordering::Acquire) {
            self.stop(Stop::Unwanted);
        } else if thread_cpu().saturating_sub(self.since.get()) > self.cpu {
            self.stop(Stop::Failed(Error::new(
                ErrorKind::Agent,
                format!(
                    "the program computed for {:?} without a call, its bound; it may loop without end, \
                     or this much work belongs into the sandbox",
                    self.cpu
                ),
            )));
        }
        self.stopped()
    }

    /// The first reason counts.
    pub fn stop(&self, reason: Stop) {
        self.stop.borrow_mut().get_or_insert(reason);
        self.drop_ballast();
    }

    pub fn stopped(&self) -> bool {
        self.stop.borrow().is_some()
    }

    pub fn take_stop(&self) -> Option<Stop> {
        self.stop.take()
    }
}

fn thread_cpu() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(spent.tv_sec).unwrap_or(0), u32::try_from(spent.tv_nsec).unwrap_or(0))
}
