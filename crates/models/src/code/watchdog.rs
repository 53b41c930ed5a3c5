//! Finds programs that cannot be stopped at the moment.
//!
//! The interpreter looks at its meter between operations. A few built-in ones take very long by
//! themselves (reversing an array with four billion holes), and no thread can be killed from
//! outside; so the turn is told to go without its program.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::meter::Control;

/// Looks per time-out: what counts is looks without a beat, so that a process that was stopped and
/// continued blames no program for it.
const LOOKS: u32 = 10;

#[derive(Debug, Default)]
struct State {
    next: u64,
    running: bool,
    watched: HashMap<u64, Watched>,
}

#[derive(Debug)]
struct Watched {
    control: Arc<Control>,
    beats: u64,
    still: u32,
}

/// Its thread lives only while a program computes.
#[derive(Debug, Clone)]
pub(super) struct Watchdog {
    tick: Duration,
    state: Arc<Mutex<State>>,
}

/// A program is watched until this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    id: u64,
    dog: Watchdog,
}

impl Watchdog {
    pub fn new(unresponsive: Duration) -> Self {
        Self { tick: unresponsive / LOOKS, state: Arc::default() }
    }

    pub fn watch(&self, control: &Arc<Control>) -> Watch {
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.watched.insert(id, Watched { control: control.clone(), beats: control.beats(), still: 0 });
        if !state.running {
            let dog = self.clone();
            let started = std::thread::Builder::new().name("hearth-watchdog".to_owned()).spawn(move || dog.run());
            // Without a thread the programs run unwatched until the next one starts; they are
            // still bounded in all but single built-in operations.
            state.running = started.inspect_err(|error| tracing::warn!(%error, "no thread for the watchdog")).is_ok();
        }
        Watch { id, dog: self.clone() }
    }

    fn run(&self) {
        loop {
            std::thread::sleep(self.tick);
            let mut state = self.lock();
            if state.watched.is_empty() {
                state.running = false;
                return;
            }
            for watched in state.watched.values_mut() {
                let beats = watched.control.beats();
                watched.still = if beats == watched.beats { watched.still + 1 } else { 0 };
                watched.beats = beats;
                if watched.still == LOOKS {
                    watched.control.stuck.notify_one();
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.dog.lock().watched.remove(&self.id);
    }
}
