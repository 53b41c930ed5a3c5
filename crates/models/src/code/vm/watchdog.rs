//! Finds programs that cannot be stopped at the moment.
//!
//! The interpreter looks at its meter between operations. A few built-in ones take very long by
//! themselves (reversing an array with four billion holes), and no thread can be killed from
//! outside; so the turn is told, and goes without its program.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::meter::Control;
use super::{Event, Tell};

/// Looks per time-out: what counts is looks without a beat, so that a process that was stopped and
/// continued blames no program for it.
const LOOKS: u32 = 10;

#[derive(Default)]
struct State {
    next: u64,
    running: bool,
    watched: HashMap<u64, Watched>,
}

struct Watched {
    control: Arc<Control>,
    tell: Tell,
    beats: u64,
    still: u32,
}

/// Its thread lives only while a program computes.
#[derive(Clone)]
pub(in crate::code) struct Watchdog {
    tick: Duration,
    state: Arc<Mutex<State>>,
}

impl Watchdog {
    pub fn new(unresponsive: Duration) -> Self {
        Self { tick: unresponsive / LOOKS, state: Arc::default() }
    }

    /// Watches the program until the watch is dropped.
    pub(super) fn watch(&self, control: Arc<Control>, tell: Tell) -> Watch {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        drop(state);
        let watch = Watch { id, dog: self.clone(), control, tell };
        watch.resume();
        watch
    }

    fn run(&self) {
        loop {
            std::thread::sleep(self.tick);
            let mut state = self.lock();
            if state.watched.is_empty() {
                state.running = false;
                return;
            }
            let mut stuck = Vec::new();
            for watched in state.watched.values_mut() {
                let beats = watched.control.beats();
                watched.still = if beats == watched.beats { watched.still + 1 } else { 0 };
                watched.beats = beats;
                if watched.still == LOOKS {
                    stuck.push(watched.tell.clone());
                }
            }
            drop(state);
            for tell in stuck {
                // Where nobody listens, nobody needs to know.
                tell(Event::Stuck).ok();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Belongs to the program's thread.
pub(super) struct Watch {
    id: u64,
    dog: Watchdog,
    control: Arc<Control>,
    tell: Tell,
}

impl Watch {
    /// Does something that may take any time, unwatched.
    pub fn paused<T>(&self, wait: impl FnOnce() -> T) -> T {
        self.dog.lock().watched.remove(&self.id);
        let waited = wait();
        self.resume();
        waited
    }

    fn resume(&self) {
        let mut state = self.dog.lock();
        let (control, tell) = (self.control.clone(), self.tell.clone());
        state.watched.insert(self.id, Watched { beats: control.beats(), control, tell, still: 0 });
        if !state.running {
            let dog = self.dog.clone();
            let started = std::thread::Builder::new().name("hearth-watchdog".to_owned()).spawn(move || dog.run());
            // Without a thread the programs run unwatched until it is tried again; they are still
            // bounded in all but single built-in operations.
            state.running = started.inspect_err(|error| tracing::warn!(%error, "no thread for the watchdog")).is_ok();
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.dog.lock().watched.remove(&self.id);
    }
}
