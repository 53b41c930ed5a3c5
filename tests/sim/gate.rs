//! Whether a replica runs, as seen from outside: a stopped one sends nothing and sees nothing until it
//! is continued, a dead one never again.
//!
//! The tasks of a replica cannot be taken from the runtime one by one, and need not be: all that a
//! process can do to the world goes through its ports. So a replica is killed by letting none of its
//! port calls return, which no other process can tell from its death. What was on the wire at that
//! moment may still arrive.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// A value that can be waited for. Who waits is woken in the order of coming: tokio's own watch
/// channel wakes in an order that differs from run to run.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T: Copy> Watched<T> {
    pub fn new(value: T) -> Self {
        Self { value: Mutex::new(value), changed: Notify::new() }
    }

    pub fn get(&self) -> T {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, value: T) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
        self.changed.notify_waiters();
    }

    pub async fn until(&self, wanted: impl Fn(T) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if wanted(self.get()) {
                return;
            }
            changed.await;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    Runs,
    Stopped,
    Dead,
}

#[derive(Debug)]
pub struct Gate(Watched<Power>);

impl Gate {
    pub fn new() -> Self {
        Self(Watched::new(Power::Runs))
    }

    pub fn power(&self) -> Power {
        self.0.get()
    }

    pub fn is_dead(&self) -> bool {
        self.power() == Power::Dead
    }

    /// A dead one stays dead.
    pub fn set(&self, power: Power) {
        if !self.is_dead() {
            self.0.set(power);
        }
    }

    /// Returns when the replica runs; never once it is dead.
    pub async fn pass(&self) {
        self.0.until(|power| power == Power::Runs).await;
    }

    /// Returns when the replica is dead.
    pub async fn died(&self) {
        self.0.until(|power| power == Power::Dead).await;
    }
}
