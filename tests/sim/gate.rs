//! Whether a replica runs, as seen from outside: a stopped one sends nothing and sees nothing until it
//! is continued, a dead one never again.
//!
//! The tasks of a replica cannot be taken from the runtime one by one, and need not be: all that a
//! process can do to the world goes through its ports. So a replica is killed by letting none of its
//! port calls return, which no other process can tell from its death. What was on the wire at that
//! moment may still arrive.

use tokio::sync::watch;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    Runs,
    Stopped,
    Dead,
}

#[derive(Debug)]
pub struct Gate {
    power: watch::Sender<Power>,
}

impl Gate {
    pub fn new() -> Self {
        Self { power: watch::Sender::new(Power::Runs) }
    }

    pub fn power(&self) -> Power {
        *self.power.borrow()
    }

    pub fn is_dead(&self) -> bool {
        self.power() == Power::Dead
    }

    /// A dead one stays dead.
    pub fn set(&self, power: Power) {
        self.power.send_if_modified(|held| {
            let changes = *held != Power::Dead && *held != power;
            if changes {
                *held = power;
            }
            changes
        });
    }

    /// Returns when the replica runs; never once it is dead.
    pub async fn pass(&self) {
        if self.power() != Power::Runs {
            self.until(Power::Runs).await;
        }
    }

    /// Returns when the replica is dead.
    pub async fn died(&self) {
        self.until(Power::Dead).await;
    }

    async fn until(&self, wanted: Power) {
        let mut seen = self.power.subscribe();
        if seen.wait_for(|power| *power == wanted || *power == Power::Dead).await.is_ok_and(|power| *power == wanted) {
            return;
        }
        std::future::pending().await
    }
}
