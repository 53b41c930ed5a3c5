//! Where programs live: at most so many at once, and which one makes room.

use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::bounds::CodeBounds;
use super::record::Answered;
use super::thread::Running;
use super::watchdog::Watchdog;
use crate::{Error, ErrorKind};

/// A turn takes a permit to compute first and a place to live second, never the other way round: who
/// waits for a place holds none, and every place is held by a program that computes (and will stop),
/// waits for a tool (and makes room), or is on its way out.
#[derive(Debug)]
pub(super) struct Pool {
    pub bounds: CodeBounds,
    pub watchdog: Watchdog,
    computing: Semaphore,
    places: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Programs that wait for a tool, by when they began to wait.
    waiting: BTreeMap<u64, Waiting>,
    /// Turns that wait for a place.
    wanted: usize,
    /// Places whose programs were told to make room and are not gone yet.
    leaving: HashSet<u64>,
}

/// Dropping the sender wakes the program's thread, and it ends.
#[derive(Debug)]
struct Waiting {
    place: u64,
    answers: SyncSender<Arc<Answered>>,
}

impl Pool {
    pub fn new(bounds: CodeBounds) -> Arc<Self> {
        Arc::new(Self {
            watchdog: Watchdog::new(bounds.unresponsive),
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
        drop(state);
        Ok(Place { pool: self.clone(), id, permit: Some(permit) })
    }

    /// Notes that a program waits for a tool from now on.
    pub fn park(self: &Arc<Self>, mut running: Running) -> Parked {
        let mut state = self.lock();
        let key = state.next;
        state.next += 1;
        if let Some(answers) = running.answers.take() {
            state.waiting.insert(key, Waiting { place: running.place, answers });
        }
        state.make_room();
        drop(state);
        Parked { pool: self.clone(), key, running: Some(running) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn make_room(&mut self) {
        while self.wanted > self.leaving.len() {
            let Some((_, longest)) = self.waiting.pop_first() else { return };
            tracing::debug!("a waiting program makes room and will run again from its record");
            self.leaving.insert(longest.place);
        }
    }
}

/// One turn more that waits for a place.
struct Wanted<'a>(&'a Pool);

impl<'a> Wanted<'a> {
    fn new(pool: &'a Pool) -> Self {
        let mut state = pool.lock();
        state.wanted += 1;
        state.make_room();
        Self(pool)
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.lock().wanted -= 1;
    }
}

/// A place, held by the program's thread until its end.
#[derive(Debug)]
pub(super) struct Place {
    pool: Arc<Pool>,
    pub id: u64,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        state.leaving.remove(&self.id);
        self.permit.take();
        state.make_room();
    }
}

/// A program that waits for a tool. It may be gone when the result comes. Dropping this ends it.
#[derive(Debug)]
pub(super) struct Parked {
    pool: Arc<Pool>,
    key: u64,
    running: Option<Running>,
}

impl Parked {
    /// Hands over the result. `None`: the program made room.
    pub fn resume(mut self, answer: Arc<Answered>) -> Option<Running> {
        let waiting = self.pool.lock().waiting.remove(&self.key)?;
        let mut running = self.running.take()?;
        // Fails only if the thread died; the turn hears of that from its events.
        waiting.answers.try_send(answer).ok()?;
        running.answers = Some(waiting.answers);
        Some(running)
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        // The flag first, then the wake-up.
        self.running.take();
        self.pool.lock().waiting.remove(&self.key);
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Transient, "code agents are shutting down; try again elsewhere")
}
