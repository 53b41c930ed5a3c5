//! A process's side of its workers.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, mpsc};

use super::CodeWorker;
use super::frame::{FromWorker, ToWorker, encode, length};
use crate::code::CodeBounds;
use crate::code::hosting::Hold;
use crate::code::pool::Place;
use crate::code::record::{Answered, Record};
use crate::code::vm::{Event, Program};
use crate::{Error, ErrorKind};

/// One worker for all programs, and one more for each program that is under suspicion.
pub(in crate::code) struct Workers {
    command: CodeWorker,
    bounds: Arc<CodeBounds>,
    shared: Mutex<Option<Arc<Worker>>>,
}

impl Workers {
    pub fn new(command: CodeWorker, bounds: Arc<CodeBounds>) -> Self {
        Self { command, bounds, shared: Mutex::default() }
    }

    pub fn start(
        &self,
        program: Arc<Program>,
        record: &Record,
        place: Place,
        events: mpsc::Sender<Event>,
        alone: bool,
    ) -> Result<Remote, Error> {
        let worker = if alone { Worker::spawn(&self.command, &self.bounds)? } else { self.shared()? };
        let id = place.id;
        worker.0.begin(program, record, place, events);
        Ok(Remote { worker, id })
    }

    /// The worker that programs share: a new one where the last one died.
    fn shared(&self) -> Result<Arc<Worker>, Error> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        match shared.as_ref().filter(|worker| !worker.0.lock().dead) {
            Some(worker) => Ok(worker.clone()),
            None => Ok(shared.insert(Worker::spawn(&self.command, &self.bounds)?).clone()),
        }
    }
}

/// A worker process. Dropping this kills it.
struct Worker(Arc<Link>);

/// What this process knows of its worker.
#[derive(Default)]
struct Link {
    state: Mutex<State>,
    /// There is something in the outbox.
    filled: Notify,
    unwanted: Notify,
}

#[derive(Default)]
struct State {
    dead: bool,
    /// For each program what starts it, at most one answer, and its end; so the places bound it.
    outbox: VecDeque<ToWorker>,
    events: HashMap<u64, mpsc::Sender<Event>>,
    places: HashMap<u64, Place>,
}

impl Worker {
    fn spawn(command: &CodeWorker, bounds: &Arc<CodeBounds>) -> Result<Arc<Self>, Error> {
        let (child, stream) = connect(command).map_err(|error| Error {
            kind: ErrorKind::Transient,
            message: "the process that runs programs does not start; try again, and see the log".to_owned(),
            source: Some(Box::new(error)),
        })?;
        let link = Arc::new(Link::default());
        link.lock().outbox.push_back(ToWorker::Hello(bounds.clone()));
        drop(hearth_telemetry::task::spawn("code worker", tend(link.clone(), child, stream)));
        Ok(Arc::new(Self(link)))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.unwanted.notify_one();
    }
}

fn connect(command: &CodeWorker) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let child = Command::new(&command.program)
        .args(&command.arguments)
        .env_clear()
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .inspect_err(|error| tracing::error!(%error, program = %command.program.display(), "no code worker"))?;
    Ok((child, UnixStream::from_std(ours)?))
}

/// Carries frames until the worker is gone or nobody wants it.
async fn tend(link: Arc<Link>, mut child: Child, stream: UnixStream) {
    let (input, output) = stream.into_split();
    let wanted = tokio::select! {
        ended = receive(&link, input) => ended.map(|()| true),
        ended = send(&link, output) => ended.map(|()| true),
        () = link.unwanted.notified() => Ok(false),
    };
    link.die();
    if let Err(error) = child.start_kill() {
        tracing::debug!(%error, "the code worker is gone already");
    }
    let status = child.wait().await;
    match wanted {
        Ok(false) => {}
        Ok(true) => tracing::warn!(?status, "a code worker died; its programs run again in another"),
        Err(error) => tracing::warn!(?status, %error, "a code worker is lost; its programs run again in another"),
    }
}

async fn send(link: &Link, mut output: OwnedWriteHalf) -> io::Result<()> {
    loop {
        let frame = link.lock().outbox.pop_front();
        match frame {
            Some(frame) => output.write_all(&encode(&frame)?).await?,
            None => link.filled.notified().await,
        }
    }
}

/// A turn that takes its events slowly makes all programs of the worker wait for it.
async fn receive(link: &Link, mut input: OwnedReadHalf) -> io::Result<()> {
    loop {
        let mut header = [0; 4];
        match input.read_exact(&mut header).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let length = length(header)?;
        let mut bytes = Vec::new();
        (&mut input).take(length as u64).read_to_end(&mut bytes).await?;
        if bytes.len() < length {
            return Ok(());
        }
        match serde_json::from_slice(&bytes)? {
            FromWorker::Gone(id) => {
                // Dropped outside the lock: it may send another program of this worker away.
                let place = link.lock().places.remove(&id);
                drop(place);
            }
            FromWorker::Told(id, event) => {
                let events = link.lock().events.get(&id).cloned();
                if let Some(events) = events {
                    // Nobody listens where the turn was dropped just now.
                    events.send(event).await.ok();
                }
            }
        }
    }
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, program: Arc<Program>, record: &Record, place: Place, events: mpsc::Sender<Event>) {
        let id = place.id;
        let mut state = self.lock();
        // A dead worker drops both at once: the turn sees the end of its events.
        if !state.dead {
            state.outbox.push_back(ToWorker::Start(id, program));
            state.outbox.extend(record.calls().map(|answered| ToWorker::Recorded(id, answered.clone())));
            state.outbox.push_back(ToWorker::Go(id));
            state.events.insert(id, events);
            state.places.insert(id, place);
        }
        drop(state);
        self.filled.notify_one();
    }

    fn die(&self) {
        let gone = std::mem::replace(&mut *self.lock(), State { dead: true, ..State::default() });
        // Outside the lock: a place wakes its next owner.
        drop(gone);
    }
}

/// The hold on a program in a worker.
pub(in crate::code) struct Remote {
    worker: Arc<Worker>,
    id: u64,
}

impl Hold for Remote {
    fn answer(&self, answered: Arc<Answered>) -> bool {
        let mut state = self.worker.0.lock();
        if !state.events.contains_key(&self.id) {
            return false;
        }
        state.outbox.push_back(ToWorker::Answer(self.id, answered));
        drop(state);
        self.worker.0.filled.notify_one();
        true
    }

    /// The others run again in another worker.
    fn abandon(&self) {
        tracing::warn!("a program is inside one built-in operation that cannot be stopped; its worker is killed");
        self.worker.0.unwanted.notify_one();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let mut state = self.worker.0.lock();
        if state.events.remove(&self.id).is_some() {
            state.outbox.push_back(ToWorker::Drop(self.id));
        }
        drop(state);
        self.worker.0.filled.notify_one();
    }
}
