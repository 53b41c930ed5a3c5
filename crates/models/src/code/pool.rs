//! Where programs live: at most so many at once, and which one makes room.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::bounds::CodeBounds;
use super::hosting::{Hosting, Running};
use super::record::Answered;
use super::worker::CodeWorker;
use crate::{Error, ErrorKind};

/// A turn takes a permit to compute first and a place to live second, never the other way round: who
/// waits for a place holds none, and every place is held by a program that computes (and will stop),
/// waits for a tool (and makes room), or is on its way out.
pub(super) struct Pool {
    pub bounds: Arc<CodeBounds>,
    pub hosting: Hosting,
    computing: Semaphore,
    places: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    /// Programs that wait for a tool, by when they began to wait. Dropping one ends it.
    waiting: BTreeMap<u64, Running>,
    /// Turns that wait for a place.
    wanted: usize,
    taken: HashSet<u64>,
    /// Places whose programs were told to make room and are not gone yet.
    leaving: HashSet<u64>,
}

impl Pool {
    pub fn new(bounds: CodeBounds, worker: Option<CodeWorker>) -> Arc<Self> {
        let bounds = Arc::new(bounds);
        Arc::new(Self {
            hosting: Hosting::new(worker, &bounds),
            computing: Semaphore::new(bounds.computing.get().min(Semaphore::MAX_PERMITS)),
            places: Arc::new(Semaphore::new(bounds.live.get().min(Semaphore::MAX_PERMITS))),
            state: Mutex::default(),
            bounds,
        })
    }

    /// Waits until the program may compute.
    pub async fn compute(&self) -> Result<SemaphorePermit<'_>, Error> {
        self.computing.acquire().await.map_err(|_| closed())
    }

    /// Waits for a place, and sends away a waiting program when there is none.
    pub async fn place(self: &Arc<Self>) -> Result<Place, Error> {
        let permit = match self.places.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _wanted = Wanted::new(self);
                self.places.clone().acquire_owned().await.map_err(|_| closed())?
            }
        };
        let mut state = self.lock();
        let id = state.next;
        state.next += 1;
        state.taken.insert(id);
        drop(state);
        Ok(Place { pool: self.clone(), id, permit: Some(permit) })
    }

    /// Takes a program that waits for a tool from now on.
    pub fn park(self: &Arc<Self>, running: Running) -> Parked {
        let mut state = self.lock();
        let key = state.next;
        state.next += 1;
        state.waiting.insert(key, running);
        let left = state.make_room();
        drop(state);
        drop(left);
        Parked { pool: self.clone(), key }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes out the programs that must go. They are to be dropped outside the lock.
    fn make_room(&mut self) -> Vec<Running> {
        let mut left = Vec::new();
        while self.wanted > self.leaving.len() {
            let Some((_, longest)) = self.waiting.pop_first() else { break };
            tracing::debug!("a waiting program makes room and will run again from its record");
            // Its place is free already where it died with its process.
            if self.taken.contains(&longest.place) {
                self.leaving.insert(longest.place);
            }
            left.push(longest);
        }
        left
    }
}

/// One turn more that waits for a place.
struct Wanted<'a>(&'a Pool);

impl<'a> Wanted<'a> {
    fn new(pool: &'a Pool) -> Self {
        let mut state = pool.lock();
        state.wanted += 1;
        let left = state.make_room();
        drop(state);
        drop(left);
        Self(pool)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.lock().wanted -= 1;
    }
}

/// A place, held until the program's thread is at its end.
pub(super) struct Place {
    pool: Arc<Pool>,
    pub id: u64,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.taken.remove(&self.id);
        state.leaving.remove(&self.id);
        self.permit.take();
        let left = state.make_room();
        drop(state);
        drop(left);
    }
}

/// A program that waits for a tool. It may be gone when the result comes. Dropping this ends it.
pub(super) struct Parked {
    pool: Arc<Pool>,
    key: u64,
}

impl Parked {
    /// Hands over the result. `None`: the program made room, or died with its process.
    pub fn resume(self, answer: Arc<Answered>) -> Option<Running> {
        let running = self.pool.lock().waiting.remove(&self.key)?;
        running.hold.answer(answer).then_some(running)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let running = self.pool.lock().waiting.remove(&self.key);
        // Outside the lock: ending a program can free a place.
        drop(running);
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Transient, "code agents are shutting down; try again elsewhere")
}
