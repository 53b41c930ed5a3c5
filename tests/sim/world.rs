//! What all parts of a simulated cluster share: chance, the wires, the books, the story.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hearth_types::{ReplicaId, SeededRandom};

use crate::books::Books;
use crate::gate::Gate;
use crate::plan::{Fault, Plan};
use crate::story::Story;

/// What a replica talks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    Journal,
    Registry,
    Bus,
    Node,
}

pub struct World {
    pub plan: Plan,
    pub story: Story,
    /// Frames that the journal gave to whoever read.
    pub frames_read: AtomicU64,
    random: SeededRandom,
    /// Misfortunes befall whoever lives in it: not at the start, and not any more once it is healed.
    unlucky: AtomicBool,
    cuts: Mutex<BTreeSet<(ReplicaId, Peer)>>,
    splits: Mutex<BTreeSet<(ReplicaId, ReplicaId)>>,
    books: Mutex<Books>,
    breach: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    pub fn new(seed: u64, plan: Plan, told: bool) -> Arc<Self> {
        Arc::new(Self {
            plan,
            story: Story::new(told),
            frames_read: AtomicU64::new(0),
            random: SeededRandom::new(seed),
            unlucky: AtomicBool::new(false),
            cuts: Mutex::default(),
            splits: Mutex::default(),
            books: Mutex::default(),
            breach: Mutex::default(),
        })
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    /// True in so many of a thousand cases, while the world is unlucky.
    pub fn befalls(&self, fault: Fault, thousandths: u64) -> bool {
        self.plan.has(fault) && !self.is_lucky() && self.below(1_000) < thousandths
    }

    pub fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }

    /// Keeps the first breach; the rest follows from it.
    pub fn breach(&self, what: impl std::fmt::Display) {
        let mut breach = lock(&self.breach);
        if breach.is_none() {
            self.story.tell(|| format!("BREACH {what}"));
            *breach = Some(what.to_string());
        }
    }

    pub fn breached(&self) -> Option<String> {
        lock(&self.breach).clone()
    }

    pub fn hold(&self, law: &str, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.breach(format!("{law}: {}", what()));
        }
    }

    pub fn is_lucky(&self) -> bool {
        !self.unlucky.load(Ordering::Relaxed)
    }

    pub fn begin(&self) {
        self.unlucky.store(true, Ordering::Relaxed);
    }

    pub fn heal(&self) {
        self.unlucky.store(false, Ordering::Relaxed);
        lock(&self.cuts).clear();
        lock(&self.splits).clear();
        self.story.tell(|| "all misfortune is over".to_owned());
    }

    pub fn cut(&self, replica: &ReplicaId, peer: Peer, cut: bool) {
        let mut cuts = lock(&self.cuts);
        if cut && !self.is_lucky() {
            cuts.insert((replica.clone(), peer));
        } else {
            cuts.remove(&(replica.clone(), peer));
        }
    }

    pub fn is_cut(&self, replica: &ReplicaId, peer: Peer) -> bool {
        lock(&self.cuts).contains(&(replica.clone(), peer))
    }

    pub fn split(&self, a: &ReplicaId, b: &ReplicaId, split: bool) {
        let mut splits = lock(&self.splits);
        for pair in [(a.clone(), b.clone()), (b.clone(), a.clone())] {
            if split && !self.is_lucky() {
                splits.insert(pair);
            } else {
                splits.remove(&pair);
            }
        }
    }

    pub fn is_split(&self, a: &ReplicaId, b: &ReplicaId) -> bool {
        lock(&self.splits).contains(&(a.clone(), b.clone()))
    }

    /// The time of one way of one message.
    pub async fn way(&self) {
        if self.is_lucky() {
            return tokio::task::yield_now().await;
        }
        let draw = self.below(1_000);
        let ms = match draw {
            0..600 => 0,
            600..900 => 1 + self.below(4),
            900..990 => 5 + self.below(40),
            _ => 50 + self.below(350),
        };
        let slow = self.befalls(Fault::Slow, 100);
        let ms = if slow { ms + self.below(1_500) } else { ms };
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// What became of a call that got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// It never arrived.
    Before,
    /// It was done and its answer was lost.
    After,
}

/// How one replica reaches everything outside itself.
#[derive(Clone)]
pub struct Line {
    pub world: Arc<World>,
    pub gate: Arc<Gate>,
    pub replica: ReplicaId,
}

impl Line {
    /// Carries one call there and its answer back. What is on its way when the replica is stopped
    /// arrives; when it dies, perhaps.
    pub async fn carry<T>(&self, peer: Peer, work: impl Future<Output = T>) -> Result<T, Lost> {
        let world = &self.world;
        self.gate.pass().await;
        if world.is_cut(&self.replica, peer) {
            tokio::time::sleep(Duration::from_millis(world.below(2_000))).await;
            self.gate.pass().await;
            return Err(Lost::Before);
        }
        world.way().await;
        if self.gate.is_dead() && world.below(2) == 0 {
            std::future::pending::<()>().await;
        }
        let done = work.await;
        world.way().await;
        let lost = world.is_cut(&self.replica, peer);
        self.gate.pass().await;
        if lost { Err(Lost::After) } else { Ok(done) }
    }
}
